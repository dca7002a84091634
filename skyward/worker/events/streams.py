"""`sys.stdout` and `sys.stderr` of a node: each write goes to the client at once, with the task that made it.

Tasks may share the process. So whatever a script does to its streams (replace, reconfigure, detach or close them)
applies to its own task, and ends with it. `print` and other C code find the streams in the dictionary of `sys`, Python
code through its attributes: both lead to the task's own stream.
"""

import codecs
import importlib
import io
import os
import sys
import traceback
from collections.abc import Buffer, Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from skyward.events.output import StreamName
from skyward.task.output import muted
from skyward.wire.protocol.messages import Output
from skyward.wire.protocol.text import encodable
from skyward.worker.events.context import current_task_number, running

__all__ = ["Emit", "NoKeyboard", "TaskStream", "end_task", "replace_streams"]

type Emit = Callable[[Output], None]

_DESCRIPTORS: dict[StreamName, int] = {"stdout": 1, "stderr": 2}
_HOOKS = {"excepthook": sys.excepthook, "unraisablehook": sys.unraisablehook, "displayhook": sys.displayhook}
_NEWLINES = (None, "", "\n", "\r", "\r\n")
_UNCHANGED = "utf-8", "backslashreplace"
_CLOSED = "I/O operation on closed file."
_DETACHED = "underlying buffer has been detached"
_KEEP: Any = object()
"""Marker for an argument or stream that is not changed."""

_write = os.write  # a task may replace it


@dataclass(slots=True)
class _State:
    """State of one stream of one task, once the task did more to it than write text.

    Attributes:
        replacement: the task's replacement of the stream; `_KEEP` for none.
        refusal: reason why text cannot be written any more; empty while it can.
        decoder: holds the bytes of an incomplete character.
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
        """Return the text of `data` after the bytes before it, without an incomplete last character."""
        if self.decoder is None:
            self.decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        return encodable(self.decoder.decode(data, final))

    def rest(self) -> str:
        """Return the replacement of an incomplete character that nothing follows."""
        text = "" if self.decoder is None else self.decode(b"", final=True)
        self.decoder = None
        return text


class TaskStream(io.TextIOBase):
    """A text stream that makes each write an event of the task that runs.

    Args:
        name: name of the stream.
        emit: takes each piece of output.
        alone: returns the only running task, or 0; for threads that no task has started.
        catch_up: waits until output that was written to the descriptors before has been sent, to keep the order.
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
        """Write to the descriptor from now on: the parent reads it, and the connection to the client is its own."""
        self._forked = current_task_number()

    def _task(self) -> int:
        if running.get() is not None:
            return current_task_number()  # 0 for a thread whose task has ended, even while another task runs
        return self._alone() if self._forked is None else self._forked

    def _state(self) -> _State:
        """Return the state of the stream for the running task, to change it."""
        return self._states.setdefault(self._task(), _State())

    def _current_state(self) -> _State:
        """Return the state of the stream for the running task, to read it."""
        return self._states.get(self._task()) or _State()

    # Attributes that scripts read.

    @property
    def name(self) -> str:
        return f"<{self._name}>"

    @property
    def buffer(self) -> io.BufferedIOBase:
        return self._buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class has it as an attribute
        return self._current_state().encoding

    @property
    def errors(self) -> str:  # type: ignore[override]  # the base class has it as an attribute
        return self._current_state().errors

    @property
    def line_buffering(self) -> bool:
        return self._current_state().line_buffering

    @property
    def write_through(self) -> bool:
        return self._current_state().write_through

    @property
    def closed(self) -> bool:
        return self._current_state().refusal == _CLOSED

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return _DESCRIPTORS[self._name]

    # Operations of scripts.

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
        """Write bytes that the buffer below this stream was given."""
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
        """Change the settings that `io.TextIOWrapper.reconfigure` changes. Nothing is buffered, whatever they say."""
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
        """Refuse further text of the running task. Other tasks can still write."""
        state = self._state()
        self._send(self._task(), state.rest())
        state.refusal = state.refusal or _CLOSED

    def __del__(self) -> None:
        """Do nothing: closing applies to one task."""

    # Replacements of the stream by tasks.

    @property
    def current(self) -> Any:
        """The running task's stream: this one, unless the task replaced it."""
        state = self._states.get(self._task())
        return self if state is None or state.replacement is _KEEP else state.replacement

    @current.setter
    def current(self, stream: Any) -> None:
        if stream is not self:
            self._state().replacement = stream
        elif (state := self._states.get(self._task())) is not None:
            state.replacement = _KEEP

    def end_task(self, task: int) -> None:
        """Write an incomplete character of the task, and forget its changes to the stream. On a thread of the task."""
        state = self._states.get(task)
        if state is None:
            return
        if type(state.replacement) is io.TextIOWrapper:  # flushed, as at the end of a script
            try:
                if not state.replacement.closed:
                    state.replacement.flush()
            except BaseException as error:  # the stream below it may be the task's own
                reason = "".join(traceback.format_exception_only(error))
                self._send(task, f"Exception ignored on flushing sys.{self._name}:\n{reason}")
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
    """The bytes below a `TaskStream`. Closing it does nothing: wrappers close it when they are garbage-collected."""

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
        """Do nothing."""

    def __del__(self) -> None:
        """Do nothing."""


class _Current:
    """Stream for C code, such as `print`: leads to the running task's own stream."""

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
    """Class of `sys` on a node: its streams are those of the running task."""

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
        alone: returns the only running task, or 0; for writes from threads that no task has started.
        catch_up: waits until output that was written to the descriptors before has been sent.
        restore: reopens descriptors that a task has closed.
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
    """Write incomplete characters of a task, and forget its changes to the streams. Inside the task."""
    for stream in _streams.values():
        stream.end_task(task)
    for restore in _restores:
        restore()
    for name, hook in _HOOKS.items():
        if getattr(sys, name, None) is None:  # no thread can be started without it
            setattr(sys, name, hook)
    _set_originals()


class NoKeyboard(io.TextIOBase):
    """Standard input of a node: reading from it fails at once, instead of blocking forever."""

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 0

    def read(self, size: int | None = -1, /) -> str:
        raise EOFError(
            "A node has no keyboard, so nothing can be read from standard input there. "
            "Call input() in the notebook, and pass the answer in a variable."
        )

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # the base class has it for bytes too
        return self.read()
