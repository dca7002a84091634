"""Builds the recipe for conda, and runs its tests, without a server of packages.

    python tests/package/conda_build.py RECIPE ENVIRONMENT FOLDER

Needs py-rattler-build and py-rattler. All that the recipe requires is made from a virtual environment that has it: its
interpreter, and a package of each of its distributions, in a channel that is a folder. Prints what was built, as JSON.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rattler.index import index_fs
from rattler_build import FileEntry, Stage0Recipe, assemble_package
from rattler_build import Package as CondaPackage

PLATFORM = "linux-64"
NOT_NEEDED = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter", "turtledemo"}
)
"""Folders of the interpreter that no package uses here."""

LIST = """
import json, sys, sysconfig
from importlib.metadata import distributions
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

def needed(text):
    wanted = Requirement(text)
    if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
        yield f"{canonicalize_name(wanted.name)} {wanted.specifier}".strip()

found = []
for each in distributions():
    files = [str(each.locate_file(file)) for file in each.files or ()]
    depends = [one for text in each.requires or () for one in needed(text)]
    found.append([canonicalize_name(each.metadata["Name"]), each.version, depends, files])
print(json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])),
    "program": sys._base_executable,
    "library": sysconfig.get_path("stdlib"),
    "distributions": found,
}))
"""
"""Program that lists the distributions of its environment, and the files of its interpreter."""


def main(recipe: Path, environment: Path, folder: Path) -> None:
    """Make the channel, build the recipe, and run its tests."""
    os.environ["RATTLER_CACHE_DIR"] = str(folder / "cache")
    listed = subprocess.run([environment / "bin" / "python", "-c", LIST], check=True, capture_output=True, text=True)
    found = json.loads(listed.stdout)
    channel = folder / "channel"
    (channel / "noarch").mkdir(parents=True)
    (channel / PLATFORM).mkdir()
    minor = found["version"].rpartition(".")[0]
    package(channel, "python", found["version"], [], interpreter(found, minor))
    for name, version, depends, files in found["distributions"]:
        entries = of_environment(environment, [Path(os.path.normpath(file)) for file in files], folder / "scripts")
        package(channel, name, version, [f"python {minor}.*", *depends], entries)
    asyncio.run(index_fs(channel))
    (built,) = Stage0Recipe.from_file(recipe).run_build(channels=[channel.as_uri()], output_dir=folder / "built")
    (path,) = built.packages
    made = CondaPackage.from_file(path)
    results = made.run_tests(channel=[channel.as_uri()])
    shown: dict[str, Any] = {"name": made.name, "version": made.version, "noarch": made.noarch}
    shown |= {"depends": made.depends, "constrains": made.constrains, "files": made.files}
    shown |= {
        "tests": [result.success for result in results],
        "output": ["\n".join(result.output) for result in results],
    }
    print(json.dumps(shown))  # the output of this program


def package(channel: Path, name: str, version: str, depends: list[str], files: Iterator[FileEntry]) -> None:
    """Add a package to the channel."""
    assemble_package(
        name,
        version,
        PLATFORM,
        "0",
        channel / PLATFORM,
        files=[*files],
        depends=depends,
        compression_level=1,
        detect_prefix=False,
    )


def interpreter(found: dict[str, Any], minor: str) -> Iterator[FileEntry]:
    """Return the files of the interpreter."""
    yield FileEntry.from_paths(Path(found["program"]).resolve(), f"bin/python{minor}")
    yield FileEntry.from_paths(Path(found["program"]).resolve(), "bin/python")
    library = Path(found["library"])
    for at, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in NOT_NEEDED]
        for path in (Path(at, name) for name in names):
            yield FileEntry.from_paths(path, f"lib/python{minor}/{path.relative_to(library)}")


def of_environment(environment: Path, files: list[Path], scripts: Path) -> Iterator[FileEntry]:
    """Return the files of a distribution, whose scripts run the interpreter on PATH."""
    scripts.mkdir(exist_ok=True)
    for file in files:
        inside = file.relative_to(environment)
        if inside.suffix == ".pyc" or not file.is_file():
            continue
        if inside.parts[0] == "bin":
            copy = scripts / file.name
            copy.write_bytes(file.read_bytes().replace(f"{environment}/bin/python".encode(), b"/usr/bin/env python", 1))
            copy.chmod(0o755)
            file = copy
        yield FileEntry.from_paths(file, str(inside))


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))
