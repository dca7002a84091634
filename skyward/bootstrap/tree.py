"""Run on the node: builds the folder of included files from their contents.

    python -m skyward.bootstrap.tree DIRECTORY DIGEST <MANIFEST

An existing folder is complete: it is built under another name and then renamed.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["build_tree", "main"]


def build_tree(directory: Path, digest: str, manifest: Iterable[str]) -> None:
    """Build `directory/trees/digest` from `directory/blobs`.

    Raises:
        ValueError: a content does not match its digest. It is removed, so that it is sent again.
    """
    made = directory / "trees" / digest
    part = made.with_name(f".{digest}.{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)
    try:
        for line in manifest:
            content, mode, path = line.rstrip("\n").split(" ", 2)
            _place(directory / "blobs" / content, content, part / path, 0o755 if mode == "x" else 0o644)
        try:
            part.rename(made)
        except OSError:
            if not made.is_dir():  # otherwise another bootstrap has built it
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _place(blob: Path, digest: str, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.utime(blob)  # marks it as used
    shutil.copyfile(blob, target)
    with target.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != digest:
            blob.unlink()
            raise ValueError(f"{target.name} does not match its digest: it changed while it was sent")
    target.chmod(mode)


def main(directory: str, digest: str) -> None:
    """Build the tree of the manifest on standard input."""
    try:
        build_tree(Path(directory), digest, sys.stdin)
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
