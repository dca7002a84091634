"""Figure 6: cost of `import skyward` over a bare Python."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.figure import Aim, Figure, Peer, median, timed
from benchmarks.settings import Settings

__all__ = ["figures"]

PEERS = ("distributed", "ipyparallel")


def figures(settings: Settings) -> Iterator[Figure]:
    """Return the milliseconds over `python -c pass`."""
    names = ["skyward", *(PEERS if settings.peers else ())]
    there = [name for name in names if importlib.util.find_spec(name) is not None]
    programs = {"": "pass", **{name: f"import {name}" for name in there}}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(6 if settings.quick else 21):
        for name, program in programs.items():
            times[name].append(timed(lambda program=program: _run(program)))  # type: ignore[misc]
    middle = {name: median(seconds[1:]) * 1e3 for name, seconds in times.items()}
    yield Figure(
        "`import skyward` over bare Python",
        "ms",
        middle["skyward"] - middle[""],
        aim=Aim("value", 40),
        floor_name=f"python -c pass: {middle['']:.3g} ms",
        peers=[
            Peer(name, middle[name] - middle[""]) if name in middle else Peer(name, None, "not installed")
            for name in names[1:]
        ],
    )


def _run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True)
