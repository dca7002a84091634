"""Tasks for nodes that are not processes of this machine."""

import socket
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import skyward as sky


@sky.function
def hostname() -> str:
    print(f"this is node {sky.instance_info().node}")
    return socket.gethostname()


@sky.function
def doubled(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return data * 2


@sky.function
def count(n: int) -> Iterator[int]:
    yield from range(n)
