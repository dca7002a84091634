"""`sys.stdout` and `sys.stderr` of a node: what is written goes to the client at once, with the task that wrote it.

Tasks may share the process. What a script does to its streams (replace, reconfigure, detach or close them) therefore
counts for the task that does it, and ends with it. `print` and other C code find the streams in the dictionary of
`sys`, Python code through its attributes, so both lead to the task's own.
"""

import codecs
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Buffer, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from skyward.task.output import muted
from skyward.wire.protocol.messages import Output
from skyward.wire.protocol.text import encodable
from skyward.worker.events.context import current_task_number, running

__all__ = ["NoKeyboard", "TaskStream", "end_task", "replace_streams"]

type Emit = Callable[[Output], None]
type StreamName = Literal["stdout", "stderr"]

_DESCRIPTORS: dict[StreamName, int] = {"stdout": 1, "stderr": 2}
_HOOKS = {"excepthook": sys.excepthook, "unraisablehook": sys.unraisablehook, "displayhook": sys.displayhook}
_NEWLINES = (None, "", "\n", "\r", "\r\n")
_UNCHANGED = "utf-8", "backslashreplace"
_CLOSED = "I/O operation on closed file."
_DETACHED = "underlying buffer has been detached"
_KEEP: Any = object()
"""Marks what is left as it is."""

_write = os.write  # a task may replace it


@dataclass(slots=True)
class _State:
    """One stream of one task, once the task did more to it than write text.

    Attributes:
        replacement: what the task put in the place of the stream; `_KEEP` for nothing.
        refusal: why text cannot be written any more; empty while it can.
        decoder: has the bytes of a character that is not complete yet.
    """

    replacement: Any = _KEEP
    refusal: str = ""
    encoding: str = _UNCHANGED[0]
    errors: str = _UNCHANGED[1]
    newline: str = "\n"
    line_buffering: bool = True
    write_through: bool = True
    decoder: codecs.IncrementalDecoder | None = None

    def decode(self, data: bytes, *, final: bool = False) -> str:
        """Return the text of `data` after what came before, without a last character that is not complete."""
        if self.decoder is None:
            self.decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        return encodable(self.decoder.decode(data, final))

    def rest(self) -> str:
        """Return what stands for an incomplete character that nothing follows."""
        text = "" if self.decoder is None else self.decode(b"", final=True)
        self.decoder = None
        return text


class TaskStream(io.TextIOBase):
    """A text stream whose every write is an event of the task that makes it.

    Args:
        emit: takes each piece of output.
        alone: the one task that runs, or 0; for threads that no task has started.
        catch_up: waits until what was written to the descriptors before has been sent, so that the order stays.
    """

    mode = "w"

    def __init__(self, name: StreamName, emit: Emit, alone: Callable[[], int], catch_up: Callable[[], None]) -> None:
        self._name: StreamName = name
        self._emit = emit
        self._alone = alone
        self._catch_up = catch_up
        self._states: dict[int, _State] = {}
        self._buffer = _TaskBuffer(self)
        self._forked: int | None = None
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        """Write to the descriptor from now on: the parent reads it, and the way to the client is the parent's own."""
        self._forked = current_task_number()

    def _task(self) -> int:
        if running.get() is not None:
            return current_task_number()  # 0 for a thread whose task has ended, whichever task runs now
        return self._alone() if self._forked is None else self._forked

    def _state(self) -> _State:
        """Return the state of the stream for the task that runs, to change it."""
        return self._states.setdefault(self._task(), _State())

    def _seen(self) -> _State:
        """Return the state of the stream for the task that runs, to read it."""
        return self._states.get(self._task()) or _State()

    # What scripts ask.

    @property
    def name(self) -> str:
        return f"<{self._name}>"

    @property
    def buffer(self) -> io.BufferedIOBase:
        return self._buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class has it as an attribute
        return self._seen().encoding

    @property
    def errors(self) -> str:  # type: ignore[override]  # the base class has it as an attribute
        return self._seen().errors

    @property
    def line_buffering(self) -> bool:
        return self._seen().line_buffering

    @property
    def write_through(self) -> bool:
        return self._seen().write_through

    @property
    def closed(self) -> bool:
        return self._seen().refusal == _CLOSED

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return _DESCRIPTORS[self._name]

    # What scripts do.

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        task = self._task()
        state = self._states.get(task)
        if state is None:
            self._send(task, text)
            return len(text)
        if state.refusal:
            raise ValueError(state.refusal)
        self._send(task, state.rest())
        changed = text if state.newline == "\n" else text.replace("\n", state.newline)
        if (state.encoding, state.errors) != _UNCHANGED:
            changed = changed.encode(state.encoding, state.errors).decode(state.encoding, "replace")
        self._send(task, changed)
        return len(text)

    def write_bytes(self, data: bytes) -> None:
        """Write what the buffer below this stream was given."""
        task = self._task()
        state = self._states.get(task)
        if state is None:
            try:
                self._send(task, data.decode())
            except UnicodeDecodeError:
                state = self._states[task] = _State()
        if state is not None:
            self._send(task, state.decode(data))

    def reconfigure(
        self,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: Any = _KEEP,
        line_buffering: bool | None = None,
        write_through: bool | None = None,
    ) -> None:
        """Change what `io.TextIOWrapper.reconfigure` changes. Nothing is buffered, whatever is asked for."""
        if newline is not _KEEP and newline not in _NEWLINES:
            raise ValueError(f"illegal newline value: {newline!r}")
        if encoding is not None:
            codecs.lookup(encoding)
        codecs.lookup_error(errors or "strict")
        state = self._state()
        self._send(self._task(), state.rest())
        if encoding is not None:
            state.encoding, state.errors = encoding, errors or "strict"
        elif errors is not None:
            state.errors = errors
        if newline is not _KEEP:
            state.newline = newline or "\n"
        if line_buffering is not None:
            state.line_buffering = line_buffering
        if write_through is not None:
            state.write_through = write_through

    def detach(self) -> io.BufferedIOBase:  # type: ignore[override]  # typeshed has it wider than it can be
        """Return the buffer; the task can write no more text here."""
        state = self._state()
        if state.refusal:
            raise ValueError(state.refusal)
        state.refusal = _DETACHED
        return self._buffer

    def close(self) -> None:
        """Refuse further text of the task that runs. Other tasks go on writing."""
        state = self._state()
        self._send(self._task(), state.rest())
        state.refusal = state.refusal or _CLOSED

    def __del__(self) -> None:
        """Nothing: closing counts for a task."""

    # What tasks have put in the place of the stream.

    @property
    def current(self) -> Any:
        """What the running task has as this stream: the stream itself, unless the task replaced it."""
        state = self._states.get(self._task())
        return self if state is None or state.replacement is _KEEP else state.replacement

    @current.setter
    def current(self, stream: Any) -> None:
        if stream is not self:
            self._state().replacement = stream
        elif (state := self._states.get(self._task())) is not None:
            state.replacement = _KEEP

    def end_task(self, task: int) -> None:
        """Forget what the task did to the stream, having written what it left unfinished. On a thread of the task."""
        state = self._states.get(task)
        if state is None:
            return
        if type(state.replacement) is io.TextIOWrapper:  # as the end of a script flushes its `sys.stdout`
            with contextlib.suppress(BaseException):  # what is below it may be the task's own
                state.replacement.flush()
        state.replacement = _KEEP
        self._send(task, state.rest())
        self._states.pop(task, None)

    def _send(self, task: int, text: str) -> None:
        if not text or self._name in muted.get():
            return
        text = encodable(text)
        if self._forked is not None:
            data = text.encode()
            while data:
                data = data[_write(_DESCRIPTORS[self._name], data) :]
            return
        self._catch_up()
        self._emit(Output(task, self._name, text))


class _TaskBuffer(io.BufferedIOBase):
    """The bytes below a `TaskStream`. Closing it does nothing: wrappers close it when they are collected."""

    def __init__(self, stream: TaskStream) -> None:
        self._stream = stream

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def mode(self) -> str:
        return "wb"

    @property
    def raw(self) -> io.BufferedIOBase:
        return self

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: Buffer, /) -> int:
        if isinstance(data, str):
            raise TypeError("a bytes-like object is required, not 'str'")
        written = memoryview(data).tobytes()
        self._stream.write_bytes(written)
        return len(written)

    def close(self) -> None:
        """Nothing."""

    def __del__(self) -> None:
        """Nothing."""


class _Current:
    """What C code, such as `print`, finds as a stream: leads to what the running task has there."""

    def __init__(self, stream: TaskStream) -> None:
        self._stream = stream

    def write(self, text: str) -> Any:
        current = self._stream.current
        return None if current is None else current.write(text)

    def flush(self) -> None:
        current = self._stream.current
        if current is not None:
            current.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream.current, name)


class _System(ModuleType):
    """The class of `sys` on a node: its streams are those of the running task."""

    @property
    def stdout(self) -> Any:
        return _streams["stdout"].current

    @stdout.setter
    def stdout(self, stream: Any) -> None:
        _streams["stdout"].current = stream

    @stdout.deleter
    def stdout(self) -> None:
        _streams["stdout"].current = None

    @property
    def stderr(self) -> Any:
        return _streams["stderr"].current

    @stderr.setter
    def stderr(self, stream: Any) -> None:
        _streams["stderr"].current = stream

    @stderr.deleter
    def stderr(self) -> None:
        _streams["stderr"].current = None

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, ("sys",)


_streams: dict[StreamName, TaskStream] = {}
_restores: list[Callable[[], None]] = []


def replace_streams(
    emit: Emit, alone: Callable[[], int], catch_up: Callable[[], None], restore: Callable[[], None]
) -> None:
    """Send `sys.stdout` and `sys.stderr` of this process through `emit`; nothing can be read from `sys.stdin`.

    Args:
        emit: takes each piece of output.
        alone: the one task that runs, or 0; for writes from threads that no task has started.
        catch_up: waits until what was written to the descriptors before has been sent.
        restore: opens the descriptors again that a task has closed.
    """
    _restores[:] = [restore]
    sys.stdin = NoKeyboard()
    for name in _DESCRIPTORS:
        stream = _streams[name] = TaskStream(name, emit, alone, catch_up)
        sys.__dict__[name] = _Current(stream)
    _set_originals()
    sys.__class__ = _System


def _set_originals() -> None:
    for name, stream in _streams.items():
        setattr(sys, f"__{name}__", stream)


def end_task(task: int) -> None:
    """Write what a task left unfinished on its streams, and forget what it did to them. Inside the task."""
    for stream in _streams.values():
        stream.end_task(task)
    for restore in _restores:
        restore()
    for name, hook in _HOOKS.items():
        if getattr(sys, name, None) is None:  # without one, no thread can be started
            setattr(sys, name, hook)
    _set_originals()


class NoKeyboard(io.TextIOBase):
    """Standard input of a node: reading from it fails at once, instead of waiting for what never comes."""

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 0

    def read(self, size: int | None = -1, /) -> str:
        raise EOFError(
            "A node has no keyboard, so nothing can be read from standard input there. "
            "Ask here, and hand the answer over in a variable."
        )

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # the base class has it for bytes too
        return self.read()
