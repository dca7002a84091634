"""Archives of the files that a plan sends to a node, and the command that receives them."""

import gzip
import io
import secrets
import shlex
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from skyward.bootstrap.plan import Plan, Supplies
from skyward.bootstrap.script import root

__all__ = ["SendCommand", "contents", "send_commands", "sizes"]

_PACK = 8 * 2**20
"""Size in bytes, before compression, at which a pack is closed."""

_PIECE = 16 * 2**20
"""Size in bytes of the pieces of a larger file."""

_RECEIVE = """umask 077; {root}
into=$root/run/sent.$$
mkdir -p "$root/blobs" "$into" && cd "$into" && tar -xzomf - &&
  find . -type f -exec sh -c 'mv -f "$@" "$0"' "$root/blobs" {{}} +
status=$?
cd / && rm -rf "$into"
exit $status"""
"""Shell text that receives a pack. Contents appear atomically, with the time of their arrival."""


_JOIN = """umask 077; {root}
cd "$root/blobs" || exit
cat {pieces} >../run/{part} && rm -f {pieces} || exit
if command -v sha256sum >/dev/null 2>&1; then
  case $(sha256sum <../run/{part}) in
    {digest}*) ;;
    *) rm -f ../run/{part}; echo 'a file was damaged on its way, or changed here' >&2; exit 1 ;;
  esac
fi
mv -f ../run/{part} {digest}"""
"""Shell text that joins the pieces of a large content."""


def contents(plan: Plan, supplies: Supplies | None = None) -> dict[str, bytes | Path]:
    """Return all contents that a node may lack, by SHA-256 in hex."""
    found: dict[str, bytes | Path] = {file.digest: file.origin for file in plan.includes.files}
    if plan.source.wheel:
        found[plan.source.digest] = plan.source.wheel
    if supplies is not None:
        found.update((file.digest, file.origin) for file in supplies.files)
    return found


def sizes(parts: Iterable[bytes | Path]) -> int:
    """Return the size of contents in bytes."""
    return sum(len(each) if isinstance(each, bytes) else each.stat().st_size for each in parts)


@dataclass(frozen=True, slots=True)
class SendCommand:
    """One command that sends contents, with its input.

    Attributes:
        completes: digests of the contents that are complete afterwards.
    """

    command: str
    data: bytes
    completes: tuple[str, ...]


def send_commands(
    plan: Plan, parts: Iterable[tuple[str, bytes | Path]], *, compressed: bool = False
) -> Iterator[SendCommand]:
    """Yield the commands that send contents: archives of a few MiB each, and large files in pieces.

    With `compressed`, the contents are compressed already.
    """
    level = 0 if compressed else 1
    held: list[tuple[str, bytes]] = []
    for digest, content in parts:
        if isinstance(content, Path) and content.stat().st_size > _PIECE:
            yield from _in_pieces(plan, digest, content, level)
            continue
        data = content if isinstance(content, bytes) else content.read_bytes()
        if held and sum(len(each) for _, each in held) + len(data) > _PACK:
            yield _command(plan, held, level)
            held = []
        held.append((digest, data))
    if held:
        yield _command(plan, held, level)


def _command(plan: Plan, held: Sequence[tuple[str, bytes]], level: int) -> SendCommand:
    return SendCommand(_receive_command(plan), _pack(held, level), tuple(digest for digest, _ in held))


def _in_pieces(plan: Plan, digest: str, content: Path, level: int) -> Iterator[SendCommand]:
    """Yield the commands that send a file. Other bootstraps on the machine may send it, too."""
    token, names = secrets.token_hex(4), list[str]()
    with content.open("rb") as stream:
        while data := stream.read(_PIECE):
            names.append(f"{digest}.{token}.{len(names)}")
            yield SendCommand(_receive_command(plan), _pack([(names[-1], data)], level), ())
    text = _JOIN.format(root=root(plan.directory), pieces=" ".join(names), part=f"{digest}.{token}", digest=digest)
    yield SendCommand(f"sh -c {shlex.quote(text)}", b"", (digest,))


def _pack(held: Iterable[tuple[str, bytes]], level: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in held:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getbuffer(), level)


def _receive_command(plan: Plan) -> str:
    """Return the command that receives one pack on standard input."""
    return f"sh -c {shlex.quote(_RECEIVE.format(root=root(plan.directory)))}"
