"""Functions that the tests of the local tier send to nodes. Importable by name, as those of an installed package."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import skyward as sky


@sky.function
def add(a: int, b: int) -> int:
    return a + b


@sky.function
def pid() -> int:
    return os.getpid()


@sky.function
def place() -> tuple[int, str, str | None]:
    return sky.instance_info().node, str(Path.cwd()), os.environ.get("TESTED")


@sky.function
def info() -> sky.InstanceInfo:
    return sky.instance_info()


@sky.function
def info_slowly() -> sky.InstanceInfo:
    """Return `info` after a delay, so that several calls need several slots."""
    time.sleep(0.3)
    return sky.instance_info()


@sky.function
def fail(message: str) -> None:
    raise ValueError(message)


@sky.function
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@sky.function
def spin(seconds: float) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "spun"


@sky.function
def heartbeat(path: str, seconds: float) -> None:
    """Write the time to a file in a loop, so that a test can see whether the task still runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        Path(path).write_text(str(time.monotonic()))
        time.sleep(0.01)


@sky.function
def stubborn(path: str, seconds: float) -> None:
    """Write as `heartbeat` does, but ignore interrupts."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            Path(path).write_text(str(time.monotonic()))
            time.sleep(0.01)
        except KeyboardInterrupt:
            continue


@sky.function
def die_once(path: str) -> str:
    """Kill the process the first time, return the second time."""
    marker = Path(path)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@sky.function
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@sky.function
def append(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text)


@sky.function
def count(n: int) -> Iterator[int]:
    yield from range(n)


@sky.function
def small_then_large(n: int) -> Iterator[int | bytes]:
    """Yield `n` numbers, and then an element of 2 MiB."""
    yield from range(n)
    yield bytes(2 * 1024 * 1024)


@sky.function
def count_then_wait(n: int, path: str) -> Iterator[int]:
    """Yield `n` numbers, and end once a file exists at `path`."""
    yield from range(n)
    while not Path(path).exists():
        time.sleep(0.01)


@sky.function
def wait_for_file(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


@sky.function
def plus_one(numbers: Iterator[int]) -> Iterator[int]:
    for number in numbers:
        yield number + 1


@sky.function
def count_then_fail(n: int) -> Iterator[int]:
    yield from range(n)
    raise RuntimeError("the generator broke")


@sky.function
def forever(path: str) -> Iterator[int]:
    number = 0
    try:
        while True:
            yield number
            number += 1
    finally:
        Path(path).touch()


@sky.function
def yield_then_die(n: int, path: str) -> Iterator[int]:
    """Yield `n` numbers, and die once a file exists at `path`."""
    yield from range(n)
    while not Path(path).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


@sky.function
def blocks(n: int, size: int) -> Iterator[bytes]:
    for index in range(n):
        yield bytes([index % 256]) * size


@sky.function
def total(numbers: Iterator[int], scale: int = 1) -> int:
    return sum(numbers) * scale


@sky.function
def first(numbers: Iterator[int], n: int) -> list[int]:
    return [next(numbers) for _ in range(n)]


@sky.function
def doubled(numbers: Iterator[int]) -> Iterator[int]:
    for number in numbers:
        yield number * 2


@sky.function
def speak(text: str) -> None:
    print(text)
    print(text.upper(), file=sys.stderr)


@sky.function
def speak_low(text: str) -> None:
    """Write to the descriptors, as a subprocess or a C library does."""
    os.write(1, f"{text}\n".encode())
    os.system(f"echo {text} from a shell")


@sky.function
def nested() -> Any:
    with sky.Compute(nodes=1) as pool:
        return add(1, 2) >> pool


@sky.function
def import_missing() -> None:
    import a_module_that_nobody_has  # type: ignore[import-not-found]  # intended

    a_module_that_nobody_has.work()


@sky.function
def shared(data: list[int]) -> list[int]:
    return sky.shard(data)


@sky.function
def shared_slowly(data: list[int], path: str) -> list[int]:
    """Return the shard; the first node waits until the file exists."""
    end = time.monotonic() + 20
    while sky.instance_info().node == 0 and not Path(path).exists() and time.monotonic() < end:
        time.sleep(0.01)
    return sky.shard(data)


@sky.function
def started() -> int:
    """Return the time at which it runs, in nanoseconds."""
    return time.monotonic_ns()


@sky.function
def started_too() -> int:
    """Return the same as `started`, as another function."""
    return time.monotonic_ns()
