"""Values of the names that pages use without defining them: models, data and trainings of the reader."""

import concurrent.futures
import functools
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import skyward as sky

__all__ = ["STAND_INS"]


class Model:
    """A model."""

    def __init__(self, *_: Any) -> None:
        self.steps = 0

    def __call__(self, batch: list[str]) -> list[float]:
        return [0.5 for _ in batch]

    def fit(self, *_: Any, **__: Any) -> "Model":
        self.steps += 1
        return self


@sky.function
def train(*_: Any, **__: Any) -> float:
    """A training."""
    return 0.5


@sky.function
def losses(steps: int) -> Iterator[float]:
    yield from (1 / step for step in range(1, steps + 1))


@sky.function
def score(*_: Any) -> float:
    return 0.5


@sky.function
def roll() -> int:
    return random.randint(1, 6)


@sky.function
def square(n: int) -> int:
    return n * n


@sky.function
def load(*_: Any) -> list[float]:
    return [0.5]


def evaluate(*_: Any) -> float:
    return 0.5


STAND_INS: dict[str, Any] = {
    **{"concurrent": concurrent, "functools": functools, "os": os, "random": random},
    **{"threading": threading, "time": time, "as_completed": concurrent.futures.as_completed},
    **{"AsyncIterator": AsyncIterator, "Iterator": Iterator},
    **{"Model": Model, "DistributedDataParallel": lambda model: model, "make_model": Model, "model": Model()},
    **{"train": train, "losses": losses, "score": score, "roll": roll, "square": square, "load": load},
    **{"train_epoch": evaluate, "evaluate": evaluate, "simulate": abs},
    **{
        "X": [[0.0], [1.0]] * 10,
        "y": [0, 1] * 10,
        "data": [*range(10)],
        "config": {},
        "storage": sky.Storage.minio("https://minio.example.com:9000"),
    },
}
