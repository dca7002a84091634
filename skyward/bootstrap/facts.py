"""Run on the node, by its own interpreter, once its environment is made: sees that a worker can start, and says so.

    python -m skyward.bootstrap.facts FILE HASH [VARIABLE ...]

FILE then begins with HASH, and holds on its second line what `events.Facts` describes.
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
    """Write the file, whole or not at all."""
    import_module("skyward.worker.__main__")
    part = Path(f"{path}.new")
    part.write_text(f"{image_hash}\n{facts(*names)}\n")
    part.replace(path)


def facts(*names: str) -> str:
    """What `events.Facts` describes, as JSON."""
    found: dict[str, str] = {}
    for each in distributions():
        if each.name:
            found.setdefault(normalised(each.name), each.version)  # the first one is imported
    said = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": dict(sorted(found.items())),
        "variables": {name: os.environ[name] for name in names if name in os.environ},
    }
    return json.dumps(said)


if __name__ == "__main__":
    main(*sys.argv[1:])
