"""Run on the node, by its own interpreter, after its environment is made: checks that a worker can start, and reports.

    python -m skyward.bootstrap.facts FILE HASH [VARIABLE ...]

Afterwards FILE has HASH on its first line, and the JSON of `events.Facts` on its second.
"""

import json
import os
import platform
import sys
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path

from skyward.bootstrap.names import normalised

__all__ = ["facts", "main"]


def main(path: str, image_hash: str, *names: str) -> None:
    """Write the file atomically."""
    import_module("skyward.worker.__main__")
    part = Path(f"{path}.new")
    part.write_text(f"{image_hash}\n{facts(*names)}\n")
    part.replace(path)


def facts(*names: str) -> str:
    """Return `events.Facts` of this interpreter, as JSON."""
    found: dict[str, str] = {}
    for each in distributions():
        if each.name:
            found.setdefault(normalised(each.name), each.version)  # the first one is what Python imports
    result = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": dict(sorted(found.items())),
        "variables": {name: os.environ[name] for name in names if name in os.environ},
    }
    return json.dumps(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
