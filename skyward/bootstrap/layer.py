"""Run on this machine by the client's interpreter: layers a new environment over the client's own.

    python layer.py begin|finish SITE_PACKAGES SOURCE

`begin` makes the new environment import missing modules from the packages of the interpreter that runs this, and
Skyward from the folder SOURCE. It also writes the metadata of those packages into SITE_PACKAGES, so that uv regards
them as installed: uv adds missing packages, and replaces a package only if its version does not fit. `finish` removes
the metadata again.

It is run as a file, by interpreters that may not be able to import Skyward, so it imports the standard library only.
"""

import re
import shutil
import site
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

__all__ = ["begin", "finish", "package_folders"]

_INSTALLER = "skyward-layer"
"""Value of `INSTALLER` that marks metadata without a package."""

_VERSION = re.compile(r"v?(\d+!)?\d+(\.\d+)*[-_.a-z0-9]*(\+[a-z0-9._-]+)?", re.IGNORECASE)
"""Pattern of valid versions. System packages may have others, which no installer accepts."""


def package_folders() -> list[str]:
    """Return the folders of this interpreter's packages, in search order."""
    known = [*site.getsitepackages(), site.getusersitepackages()]
    return [folder for folder in dict.fromkeys(known) if folder in sys.path]


def begin(packages: Path, source: str) -> None:
    """Make `packages` see those of this interpreter, and make uv regard them as installed there."""
    lines = [source, *(f"import site; site.addsitedir({folder!r})" for folder in package_folders())]
    (packages / "skyward_layer.pth").write_text("".join(f"{line}\n" for line in lines))
    seen = set[str]()
    for found in distributions():
        name = re.sub(r"[-_.]+", "_", found.metadata["Name"] or "").lower()
        if name and name not in seen and _VERSION.fullmatch(found.version or ""):
            seen.add(name)
            _write_metadata(packages / f"{name}-{found.version}.dist-info", found)


def _write_metadata(folder: Path, found: Distribution) -> None:
    folder.mkdir()
    (folder / "METADATA").write_text("".join(f"{line}\n" for line in _metadata(found)))
    (folder / "INSTALLER").write_text(f"{_INSTALLER}\n")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))


def _metadata(found: Distribution) -> Iterator[str]:
    yield "Metadata-Version: 2.1"
    yield f"Name: {found.metadata['Name']}"
    yield f"Version: {found.version}"
    yield from (f"Requires-Dist: {' '.join(requirement.split())}" for requirement in found.requires or ())
    yield from (f"Provides-Extra: {extra}" for extra in found.metadata.get_all("Provides-Extra") or ())


def finish(packages: Path) -> None:
    """Remove the metadata of packages that are not in `packages` itself."""
    for installer in packages.glob("*.dist-info/INSTALLER"):
        if installer.read_text().strip() == _INSTALLER:
            shutil.rmtree(installer.parent)


def main(step: str, packages: str, source: str) -> None:
    """Run one step."""
    if step == "begin":
        begin(Path(packages), source)
    else:
        finish(Path(packages))


if __name__ == "__main__":
    main(*sys.argv[1:])
