"""The examples in the docstrings of public names run as they stand."""

import concurrent.futures
import contextlib
import inspect
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import dedent
from types import FunctionType
from typing import Any

import joblib
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import skyward as sky
from skyward.scaling.registry import POLICIES, find_policy

pytestmark = pytest.mark.local

MODULES = {name for name in sky.__all__ if inspect.ismodule(getattr(sky, name))}
ERRORS = {
    name for name in sky.__all__ if isinstance(public := getattr(sky, name), type) and issubclass(public, BaseException)
}
CLOUDS = {"AWS", "Fargate", "GCP", "Hyperstack", "Lambda", "RunPod", "VastAI", "Verda"}
ELSEWHERE = CLOUDS | {
    "Adapter",
    "Container",
    "Kubernetes",
    "ObjectEntry",
    "SSH",
    "Slurm",
    "Spec",
    "Storage",
    "build_image",
}
"""Names whose examples name machines that this one does not have: their examples are compiled."""
FRAMEWORKS = {
    f"plugins.{name}" for name in ("accelerate", "cuml", "huggingface", "jax", "keras", "mig", "mps", "torch")
}
"""Plugins whose examples need what this environment does not have, which are compiled too."""


class Model:
    """A model of the examples."""

    def cuda(self) -> "Model":
        return self


@sky.function
def train(*_: Any) -> float:
    """The training of the examples."""
    return 0.5


@sky.function
def evaluate(*_: Any) -> float:
    return 0.5


@sky.function
def roll() -> int:
    return random.randint(1, 6)


@sky.function
def load() -> sky.Kept[Model]:
    return sky.keep(Model(), "model")


def example_of(public: object) -> str:
    """The code below `Example:` in a docstring, without prompts; empty where there is none."""
    found = re.search(
        r"^Example:\n((?:(?:    .*)?\n?)+)", inspect.cleandoc(getattr(public, "__doc__", None) or ""), re.M
    )
    lines = dedent(found[1]).splitlines() if found else []
    return "\n".join(re.sub(r"^(?:>>>|\.\.\.) ?", "", line) for line in lines)


def parts(name: str) -> Iterator[tuple[str, object]]:
    """A public name, and the public methods of a class, each with what it stands for."""
    public = getattr(sky, name)
    yield name, public
    if isinstance(public, type) and name not in ERRORS:
        for method, value in vars(public).items():
            if isinstance(value, FunctionType) and not method.startswith("_"):
                yield f"{name}.{method}", value


EXAMPLES = {
    part: code
    for name in sky.__all__
    if name not in MODULES
    for part, value in parts(name)
    if (code := example_of(value))
} | {
    f"{module}.{name}": code
    for module in sorted(MODULES)
    for name in getattr(getattr(sky, module), "__all__", ())
    if (code := example_of(getattr(getattr(sky, module), name)))
}


@pytest.fixture(scope="module")
def pool() -> Iterator[sky.Compute]:
    with sky.Compute(nodes=2, name="train") as pool:
        yield pool


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name: str, pool: sky.Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile(EXAMPLES[name], f"<example of sky.{name}>", "exec")
    if name.partition(".")[0] in ELSEWHERE or name in FRAMEWORKS:
        return
    names: dict[str, Any] = {
        **{"__name__": "example", "contextlib": contextlib, "sky": sky, "pool": pool, "Model": Model},
        **{"train": train, "evaluate": evaluate, "load": load, "model": load() >> pool},
        **{"concurrent": concurrent, "contextmanager": contextlib.contextmanager, "dataclass": dataclass},
        **{"joblib": joblib, "random": random, "roll": roll, "simulate": abs},
        **{"GridSearchCV": GridSearchCV, "SVC": SVC, "X": [[0.0], [1.0]] * 10, "y": [0, 1] * 10},
    }
    attach: Callable[[str], sky.Compute] = lambda _: pool  # noqa: E731  # what a pool that was left behind would be
    monkeypatch.setattr(sky, "attach", attach)
    exec(code, names)


IN_MODULES = {"scaling.Policy", "providers.Provider"}
IN_MODULES |= {f"time.{name}" for name in sky.time.__all__}
IN_MODULES |= {f"collections.{name}" for name in sky.collections.__all__}
IN_MODULES |= {f"scaling.{type(find_policy(name)).__name__}" for name in POLICIES}
"""Names of public modules that have examples."""


@pytest.mark.parametrize("name", sorted({*sky.__all__} - ERRORS - MODULES | IN_MODULES))
def test_public_name_has_an_example(name: str) -> None:
    assert name in EXAMPLES, f"the docstring of sky.{name} has no `Example:`"
