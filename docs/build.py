"""Build of the documentation site, strict and without a network: `python -m docs.build [FOLDER]`."""

import sys
from pathlib import Path

__all__ = ["FOLDER", "build"]

_ROOT = Path(__file__).parents[1]
FOLDER = _ROOT / ".cache" / "docs"
"""Folder of the site, unless another one is given."""


def build(folder: Path = FOLDER) -> int:
    """Build the site into a folder; return the exit status. Every warning is an error, and all of them are shown."""
    from sphinx.cmd.build import main

    strict = ["--fail-on-warning", "--nitpicky", "--fresh-env", "--quiet"]
    return main(["-b", "html", *strict, "-d", str(folder / "doctrees"), str(_ROOT / "docs"), str(folder / "html")])


if __name__ == "__main__":
    sys.exit(build(*map(Path, sys.argv[1:])))
