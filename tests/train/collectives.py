"""Functions of collectives, the same for each framework, which run in pools."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import skyward as sky

__all__ = ["losses", "place", "places", "rounds", "total"]

_FOR_EVER = 3600.0


def place(framework: str) -> tuple[int, int]:
    """Return the rank of this process, and the number of processes, as a framework has them."""
    match framework:
        case "torch":
            from torch import distributed

            return (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
        case "jax":
            import jax

            return jax.process_index(), jax.process_count()
        case _:
            from accelerate import Accelerator

            accelerator = Accelerator()
            return accelerator.process_index, accelerator.num_processes


def total(framework: str, number: float) -> float:
    """Return the sum of the numbers of all processes, which a framework computes."""
    match framework:
        case "torch":
            import torch
            from torch import distributed

            numbers = torch.tensor([number])
            distributed.all_reduce(numbers)
            return float(numbers)
        case "jax":
            import numpy
            from jax.experimental import multihost_utils

            return float(multihost_utils.process_allgather(numpy.array([number])).sum())
        case _:
            import torch
            from accelerate import Accelerator

            return float(Accelerator().reduce(torch.tensor([number])))


@sky.function
def places(framework: str) -> tuple[tuple[int, int], int]:
    """Return the place of this process in a framework, and the number of the process."""
    return place(framework), os.getpid()


@sky.function
def rounds(framework: str, folder: str, bad: int = -1, how: str = "raise") -> float:
    """Return the sum of the ranks. Between two sums, the member `bad` fails, once."""
    rank, _ = place(framework)
    total(framework, 1.0)
    failed = Path(folder, "failed")
    if rank == bad and not failed.exists():
        failed.touch()
        match how:
            case "raise":
                raise ValueError(f"member {rank} failed")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "block":
                time.sleep(_FOR_EVER)
    return total(framework, rank)


@sky.function
def losses(framework: str, data: list[int], steps: int) -> Iterator[float]:
    """Yield the sum of all members' parts of the data, after each step, and print it."""
    mine = sky.shard(data)
    for step in range(steps):
        loss = total(framework, sum(mine) / (step + 1))
        print(f"loss of step {step}: {loss:g}, from {mine}")
        yield loss
