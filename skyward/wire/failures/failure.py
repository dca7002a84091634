"""Exceptions sent from a node to the client: with their own type where it can be rebuilt, and always with a traceback.

A node does not have the source of a notebook's cells; the client does. So frames are sent as names and line numbers,
with the source line only where the node knows it; the client looks up the rest and renders the text.
"""

import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from skyward.errors import RemoteError, RemoteTraceback
from skyward.formatting import first_line
from skyward.wire.failures.frames import FrameRecorder, FrameState
from skyward.wire.kinds.exceptions import make_exception, parts_of_exception, restore_exception
from skyward.wire.payloads.payload import Packed, pack

__all__ = ["Failure", "Frame", "capture_failure", "message_of"]

type PackObject = Callable[[object], Packed]
type Unpack = Callable[[Packed], Any]
type MakeTraceback = Callable[[tuple["Frame", ...]], TracebackType | None]

_INTERNAL = ("skyward/worker/", "skyward/wire/", "skyward/pool/map.py")
_MAX_FRAMES = 200
_MAX_RECORDED = 1200
"""Frames of one traceback that are sent with their state: more than Python's default recursion limit."""

_FIRST = 100
"""Frames from the start of a longer traceback that are sent."""

_MAX_LINKS = 100
"""Exceptions of one chain that are sent: the most recent ones."""

_CAUSE = "The above exception was the direct cause of the following exception:"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback. `state`: its code and variables, for a frame of a cell."""

    filename: str
    line: int
    function: str
    text: str
    state: FrameState | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Link:
    """One exception of a chain.

    Attributes:
        frames: its traceback.
        headline: the lines that name it.
        relation: its relation to the previous exception, as worded in a traceback; empty for the first.
        packed: the exception; its `_Parts` for a group, or where some parts were dropped; None where it cannot be
            pickled.
        type_name: qualified name of its type.
        message: its text.
        members: the exceptions of an exception group.
    """

    frames: tuple[Frame, ...]
    headline: str
    relation: str
    packed: Packed | None = field(compare=False)
    type_name: str
    message: str
    members: "tuple[Failure, ...]" = ()

    def rebuild(self, node: int | None, unpack: Unpack, make_traceback: MakeTraceback | None = None) -> BaseException:
        """Return the exception with its own type, or a `RemoteError` if that fails."""
        error: object = None
        if self.packed is not None:
            try:
                error = unpack(self.packed)
                if isinstance(error, _Parts):
                    members = [Failure(each.chain, node).rebuild(unpack, make_traceback) for each in self.members]
                    error = error.build(members)
            except Exception:
                error = None
        if not isinstance(error, BaseException):
            error = RemoteError(f"{self.type_name}: {self.message}", self.type_name)
        if make_traceback is not None:
            _set(error, "__traceback__", make_traceback(self.frames))
        return error


@dataclass(frozen=True, slots=True)
class _Parts:
    """An exception that could not be pickled whole, or a group, whose members are failures of their own."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    attributes: dict[str, Any]
    slots: dict[str, Any]

    def build(self, members: list[BaseException]) -> BaseException:
        """Return the exception; for a group, with `members`."""
        kind, args = self.kind, self.args
        if issubclass(kind, BaseExceptionGroup):
            args = (*args, members)
            if kind is BaseExceptionGroup and all(isinstance(member, Exception) for member in members):
                kind = ExceptionGroup
        error = make_exception(kind, args)
        restore_exception(error, (self.attributes, self.slots))
        return error


@dataclass(frozen=True, slots=True)
class Failure:
    """A serialized exception and its traceback.

    Attributes:
        chain: the exceptions that led to it, oldest first, then the exception itself.
        node: rank of the node that raised it.
    """

    chain: tuple[Link, ...]
    node: int | None = None

    @property
    def type_name(self) -> str:
        """Qualified name of the type of the exception."""
        return self.chain[-1].type_name

    @property
    def message(self) -> str:
        """The text of the exception."""
        return self.chain[-1].message

    @property
    def reason(self) -> str:
        """The first line of the text, shortened; empty if it has none."""
        return first_line(self.message)

    def rebuild(self, unpack: Unpack = Packed.unpack, make_traceback: MakeTraceback | None = None) -> BaseException:
        """Return the exception with its own type, or a `RemoteError` if that fails.

        Its context is the exception that it came from on the node, if any.

        Args:
            unpack: opens the packed parts.
            make_traceback: makes tracebacks of frames. Where it is None or makes none, the cause of the exception is a
                `RemoteTraceback`; otherwise, the cause is the exception's own.
        """
        before: BaseException | None = None
        for link in self.chain:
            error = link.rebuild(self.node, unpack, make_traceback)
            if link.relation == _CAUSE:
                _set(error, "__cause__", before)
            _set(error, "__context__", before)
            before = error
        assert before is not None  # a chain has at least one link
        if make_traceback is None or (self.chain[-1].frames and before.__traceback__ is None):
            _set(before, "__cause__", RemoteTraceback(self.render()))
        return before

    def as_remote_error(self) -> BaseException:
        """Return a `RemoteError` with its text; no code of its type is run."""
        return Failure(tuple(replace(link, packed=None) for link in self.chain), self.node).rebuild()

    def render(self) -> str:
        """Return the traceback as text, with the source lines that this side can find."""
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


def _set(error: BaseException, name: str, value: BaseException | TracebackType | None) -> None:
    BaseException.__dict__[name].__set__(error, value)  # the type's own `__setattr__` may refuse


def capture_failure(
    error: BaseException, node: int | None = None, packing: PackObject = pack, recorder: FrameRecorder | None = None
) -> Failure:
    """Serialize `error` and the exceptions that led to it, without the frames of the worker itself.

    Args:
        error: the exception.
        node: rank of the node that raised it.
        packing: packs what is pickled.
        recorder: records the state of frames, for a debugger; None for a traceback to read only.
    """
    links: list[Link] = []
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and len(links) < _MAX_LINKS:
        seen.add(id(current))
        before, relation = _origin(current)
        if id(before) in seen:
            before, relation = None, ""
        links.append(_link(current, relation if len(links) < _MAX_LINKS - 1 else "", packing, recorder))
        current = before
    return Failure(tuple(links[::-1]), node)


def _link(error: BaseException, relation: str, packing: PackObject, recorder: FrameRecorder | None) -> Link:
    frames = _frames(error) if recorder is None else _recorded_frames(error, recorder)
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    headline = "".join(traceback.format_exception_only(error)).rstrip()
    members: tuple[Failure, ...] = ()
    if isinstance(error, BaseExceptionGroup):
        members = tuple(capture_failure(member, None, packing, recorder) for member in error.exceptions)
    return Link(frames, headline, relation, _packed(error, packing), name, message_of(error), members)


def _packed(error: BaseException, packing: PackObject) -> Packed | None:
    """Return `error`, packed; without the parts that cannot be pickled, and with a note that names them."""
    try:
        if not isinstance(error, BaseExceptionGroup):
            return packing(error)
    except Exception:  # some part cannot be pickled
        pass
    try:
        args, attributes, slots = parts_of_exception(error)
        left: list[str] = []
        if isinstance(error, BaseExceptionGroup):
            args = (error.message,)
        names = [f"args[{place}]" for place in range(len(args))]
        found = _sendable(dict(zip(names, args, strict=True)), packing, left)
        args = tuple(found.get(name, repr(arg)) for name, arg in zip(names, args, strict=True))
        attributes = _sendable(attributes, packing, left)
        slots = _sendable(slots, packing, left)
        if left:
            note = f"Not sent from the node, because it cannot be pickled: {', '.join(left)}."
            attributes["__notes__"] = [*attributes.get("__notes__", ()), note]
        return packing(_Parts(type(error), args, attributes, slots))
    except Exception:  # its type cannot be pickled either
        return None


def _sendable(values: dict[str, Any], packing: PackObject, left: list[str]) -> dict[str, Any]:
    """Return the items of `values` that can be packed; add the names of the others to `left`."""
    found = {}
    for name, value in values.items():
        try:
            packing(value)
        except Exception:
            left.append(name)
        else:
            found[name] = value
    return found


def message_of(error: BaseException) -> str:
    """Return the text of an exception, whatever its class does."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def _origin(error: BaseException) -> tuple[BaseException | None, str]:
    if error.__cause__ is not None:
        return error.__cause__, _CAUSE
    if error.__context__ is not None and not error.__suppress_context__:
        return error.__context__, "During handling of the above exception, another exception occurred:"
    return None, ""


def _frames(error: BaseException) -> tuple[Frame, ...]:
    stack = traceback.extract_tb(error.__traceback__, limit=-_MAX_FRAMES)
    own = [f for f in stack if not _is_internal(f.filename)]
    return tuple(Frame(f.filename, f.lineno or 0, f.name, f.line or "") for f in own)


def _recorded_frames(error: BaseException, recorder: FrameRecorder) -> tuple[Frame, ...]:
    own: list[TracebackType] = []
    current = error.__traceback__
    while current is not None:
        if not _is_internal(current.tb_frame.f_code.co_filename):
            own.append(current)
        current = current.tb_next
    if (left_out := len(own) - _MAX_RECORDED) > 0:
        own[_FIRST : _FIRST + left_out] = []
        BaseException.add_note(error, f"{left_out} frames in the middle of the traceback were omitted.")
    frames = []
    for each, state in zip(own, recorder.record(own), strict=True):
        code, line = each.tb_frame.f_code, each.tb_lineno
        text = linecache.getline(code.co_filename, line).strip()
        frames.append(Frame(code.co_filename, line, code.co_name, text, state))
    return tuple(frames)


def _is_internal(filename: str) -> bool:
    return any(part in filename.replace("\\", "/") for part in _INTERNAL)
