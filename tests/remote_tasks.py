"""Tasks for nodes on any machine, which need no file of this one."""

import os
import socket
import zlib
from collections.abc import Iterator
from typing import Any

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


@sky.function
def where() -> tuple[str, int]:
    """Return the name of the machine, and the process id of the worker."""
    return socket.gethostname(), os.getpid()


@sky.function
def total(data: npt.NDArray[Any]) -> int:
    return int(data.sum())


@sky.function
def crc(data: npt.NDArray[np.uint8]) -> int:
    return zlib.crc32(data)
