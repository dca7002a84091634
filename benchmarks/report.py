"""Environment of a run, and the run's table in a Markdown file."""

import os
import platform
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.figure import Figure, table

__all__ = ["circumstances", "replaced", "report"]

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
PACKAGES = (
    "skyward-jupyter",
    "casty",
    "uvloop",
    "cloudpickle",
    "numpy",
    "ipython",
    "obstore",
    "joblib",
    "distributed",
    "ipyparallel",
    "ray",
    "torch",
)


def circumstances() -> str:
    """Return the current time, the machine, its load and the versions."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}. "
        f"{os.cpu_count()} cores of {_processor()}, {memory:.0f} GiB, {platform.system()} {platform.release()}. "
        f"Load average of the last 1, 5 and 15 minutes: {load}.\n"
        f"Python {platform.python_version()}, {', '.join(filter(None, map(_version, PACKAGES)))}."
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def report(before: str, figures: Sequence[Figure], seconds: float) -> str:
    """Return the report of a run: its environment, as before the run, and its table."""
    return f"{before} The run took {seconds:,.0f} s.\n\n{table(figures)}"


def replaced(text: str, new: str) -> str:
    """Return a text with the part between its two marks replaced.

    Raises:
        ValueError: The text does not have each mark once, in order.
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"there must be one line {BEGIN} and, after it, one line {END}")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{new}\n{END}{rest.partition(END)[2]}"
