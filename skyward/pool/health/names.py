"""The names of the program and of its package, which other distributions have too."""

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["conflict", "pilot_note", "version"]

OURS = "skyward-jupyter"


def version() -> str:
    """Return the distribution, its version, and the folder of the package."""
    found = _installed(OURS)
    number = "(not installed)" if found is None else found.version
    return f"{OURS} {number} from {Path(__file__).parents[2]}"


def conflict() -> str:
    """Return a sentence about an installed distribution that has our import package; empty if there is none.

    The published distribution `skyward` has: of two files of one name, the one that was installed last is there.
    """
    if (published := _installed("skyward")) is None:
        return ""
    return (
        f"the distribution skyward {published.version} is installed beside {OURS}, and both have an import package "
        f"`skyward`: uninstall both, and install {OURS} again."
    )


def pilot_note() -> str:
    """Return a sentence about SkyPilot, which has a command `sky` too; empty if it is not installed."""
    if (pilot := _installed("skypilot")) is None:
        return ""
    return (
        f"SkyPilot {pilot.version} is installed too, and its command is also called `sky`: write `skyward` or `python "
        "-m skyward` for this one."
    )


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
