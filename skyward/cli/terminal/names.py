"""The names of the program, which other packages have too."""

from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["conflict", "version"]

OURS = "skyward-jupyter"


def version() -> str:
    """Return the distribution, its version, and the folder of the package."""
    import skyward

    found = _installed(OURS)
    number = "unknown version" if found is None else found.version
    return f"{OURS} {number} from {Path(skyward.__file__).parent}"


def conflict() -> str:
    """Return a sentence about an installed distribution that has our names; empty if there is none.

    The published distribution `skyward` has our import package, of which one overwrites the other; SkyPilot has a
    command `sky`, too.
    """
    if (published := _installed("skyward")) is not None:
        return (
            f"the distribution skyward {published.version} is installed beside {OURS}, and both have an import package "
            f"`skyward`: uninstall both, and install {OURS} again."
        )
    if (pilot := _installed("skypilot")) is not None:
        return (
            f"SkyPilot {pilot.version} is installed too, and has a command `sky` of its own: write `skyward` or "
            "`python -m skyward` for this one."
        )
    return ""


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
