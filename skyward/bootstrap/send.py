"""Archives of the files that a plan sends to a node, and the command that receives them."""

import gzip
import io
import shlex
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from skyward.bootstrap.plan import Plan
from skyward.bootstrap.script import root

__all__ = ["contents", "packs", "receive_command"]

_PACK = 8 * 2**20
"""Size in bytes, before compression, at which a pack is closed."""

_RECEIVE = """umask 077; {root}
into=$root/run/sent.$$
mkdir -p "$root/blobs" "$into" && cd "$into" && tar -xzomf - &&
  find . -type f -exec sh -c 'mv -f "$@" "$0"' "$root/blobs" {{}} +
status=$?
cd / && rm -rf "$into"
exit $status"""
"""Shell text that receives a pack. Contents appear atomically, with the time of their arrival."""


def contents(plan: Plan) -> dict[str, bytes | Path]:
    """Return all contents that a node may lack, by SHA-256 in hex."""
    found: dict[str, bytes | Path] = {file.digest: file.origin for file in plan.includes.files}
    if plan.source.wheel:
        found[plan.source.digest] = plan.source.wheel
    return found


def packs(parts: Iterable[tuple[str, bytes | Path]]) -> Iterator[bytes]:
    """Yield compressed archives of a few MiB each with all parts; a larger part has one of its own."""
    held: list[tuple[str, bytes]] = []
    for digest, content in parts:
        data = content if isinstance(content, bytes) else content.read_bytes()
        if held and sum(len(each) for _, each in held) + len(data) > _PACK:
            yield _pack(held)
            held = []
        held.append((digest, data))
    if held:
        yield _pack(held)


def _pack(held: Iterable[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for digest, data in held:
            entry = tarfile.TarInfo(digest)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getbuffer(), 1)


def receive_command(plan: Plan) -> str:
    """Return the command that receives one pack on standard input."""
    return f"sh -c {shlex.quote(_RECEIVE.format(root=root(plan.directory)))}"
