"""An exception on its way home: its own type where it can be rebuilt, and a traceback with source lines always.

A node does not have the source of a notebook's cells; the client does. So frames travel as names and numbers, with the
line only where the node knows it, and the text is made at the client, which looks up the rest.
"""

import linecache
import pickle
import traceback
from dataclasses import dataclass

from skyward.errors import RemoteError, RemoteTraceback
from skyward.wire.payload import dumps

__all__ = ["Failure", "Frame", "capture_failure"]

_INTERNAL = ("skyward/worker/", "skyward/wire/")
_MAX_FRAMES = 200


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback."""

    filename: str
    line: int
    function: str
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """One exception of a chain: its frames, the lines that name it, and how it came from the one before."""

    frames: tuple[Frame, ...]
    headline: str
    relation: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception and its traceback, ready to travel.

    Attributes:
        pickled: the exception, or None where it cannot be pickled.
        type_name: qualified name of its type.
        message: its text.
        chain: the exceptions that led to it, oldest first, itself last.
        node: rank of the node that raised it.
    """

    pickled: bytes | None
    type_name: str
    message: str
    chain: tuple[Link, ...]
    node: int | None = None

    def rebuild(self) -> BaseException:
        """The exception, of its own type, with a `RemoteTraceback` as its cause; a `RemoteError` if it cannot be."""
        error: BaseException | None = None
        if self.pickled is not None:
            try:
                error = pickle.loads(self.pickled)
            except Exception:
                error = None
        if not isinstance(error, BaseException):
            error = RemoteError(f"{self.type_name}: {self.message}", self.type_name)
        BaseException.__setattr__(error, "__cause__", RemoteTraceback(self.render()))  # its own may refuse
        return error

    def render(self) -> str:
        """The traceback as text, with the source lines that this side can find."""
        where = "" if self.node is None else f" on node {self.node}"
        parts = []
        for link in self.chain:
            if link.relation:
                parts.append(link.relation)
            summary = traceback.StackSummary.from_list(
                [(f.filename, f.line, f.function, f.text or linecache.getline(f.filename, f.line)) for f in link.frames]
            )
            head = f"Traceback (most recent call last{where}):\n"
            parts.append(head + "".join(summary.format()) + link.headline)
        return "\n\n".join(parts)


def capture_failure(error: BaseException, node: int | None = None) -> Failure:
    """`error` and the exceptions that led to it, ready to travel, without the frames of the worker itself."""
    try:
        pickled: bytes | None = dumps(error)
    except Exception:
        pickled = None
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    return Failure(pickled, name, _text(error), tuple(_chain(error)), node)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def _chain(error: BaseException) -> list[Link]:
    links: list[Link] = []
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        before, relation = _origin(current)
        headline = "".join(traceback.format_exception_only(current)).rstrip()
        links.append(Link(_frames(current), headline, relation))
        current = before
    return links[::-1]


def _origin(error: BaseException) -> tuple[BaseException | None, str]:
    if error.__cause__ is not None:
        return error.__cause__, "The above exception was the direct cause of the following exception:"
    if error.__context__ is not None and not error.__suppress_context__:
        return error.__context__, "During handling of the above exception, another exception occurred:"
    return None, ""


def _frames(error: BaseException) -> tuple[Frame, ...]:
    stack = traceback.extract_tb(error.__traceback__, limit=-_MAX_FRAMES)
    own = [f for f in stack if not any(part in f.filename.replace("\\", "/") for part in _INTERNAL)]
    return tuple(Frame(f.filename, f.lineno or 0, f.name, f.line or "") for f in own)
