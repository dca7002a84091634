"""Serialized frames of a traceback, for a debugger and IPython: code, source and variables.

A frame itself cannot be pickled. Its code object is sent without its constants, which are needed only to run it. Small
values of plain types are sent as they are. Every other variable is sent as a `NodeValue`: its type, its `repr`, cut
short, and its attributes.
"""

import ctypes
import datetime
import decimal
import fractions
import importlib.util
import inspect
import linecache
import marshal
import pickle
import reprlib
import uuid
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread  # tasks may replace the attributes of the module
from tokenize import TokenError
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

from skyward.process.clock import clock
from skyward.wire.protocol.text import encodable

__all__ = ["MAGIC", "FrameCode", "FrameRecorder", "FrameState", "NodeValue"]

MAGIC = importlib.util.MAGIC_NUMBER
"""Identifies the format of code objects, which is specific to a version of Python."""

_LARGEST_CODE = 64 * 1024
"""Maximum size of a code object that is sent, in bytes."""

_LONGEST_BLOCK = 300
"""Maximum length of a function whose source is sent whole, in lines."""

_AROUND = 10
"""Lines before and after the current one that are sent of anything longer."""

_MAX_NAMES = 100
"""Maximum number of variables read from one frame."""

_MAX_ITEMS = 50
"""Items of a container, or attributes of an object, that are sent."""

_MAX_DEPTH = 3
"""Levels of containers and attributes that are sent."""

_MAX_TEXT = 1000
"""Characters of a string that are sent."""

_UNITS = 128 * 1024
"""Approximate maximum size of all variables of one exception, in bytes."""

_SECONDS = 1.0
"""Seconds after which no further variables are read."""

_ATOMS = frozenset(
    {
        *(type(None), bool, int, float, complex, type(...), type(NotImplemented), range),
        *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, decimal.Decimal, fractions.Fraction),
        uuid.UUID,
    }
)
"""Types whose values are sent as they are."""

_TEXTS = frozenset({str, bytes})

_CONTAINERS = frozenset({dict, list, tuple, set, frozenset})

_HIDES = frozenset({"__tracebackhide__", "__debuggerskip__"})
"""Variables that hide a frame from tracebacks or debuggers."""

_FUNCTIONS = (type, FunctionType, BuiltinFunctionType, MethodType, ModuleType)

_LONG_INT = 1 << 2000

_ARRAY_KINDS = "biufcmMSU"
"""Kinds of NumPy types whose values hold no objects."""

_ARRAY_BYTES = 2048
"""Maximum size of an array that is sent, in bytes."""


class NodeValue:
    """Stand-in for a value that stayed on its node. It has the attributes that were sent.

    Args:
        kind: name of the type of the value.
        text: its `repr`, or the beginning and the end of it.
        node: rank of the node.
        attributes: attributes of the value, by name.
        pickled: the value itself, where the client may unpickle it.
    """

    __slots__ = ("__dict__", "__kind", "__node", "__pickled", "__text")

    def __init__(
        self, kind: str, text: str, node: int, attributes: Mapping[str, Any] | None = None, pickled: bytes = b""
    ) -> None:
        self.__pickled = pickled
        self.__kind = kind
        self.__text = text
        self.__node = node
        self.__dict__.update(attributes or {})

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"This {self.__kind} stayed on node {self.__node}: its attribute {name!r} was not sent.")

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self.__kind, self.__text, self.__node, self.__dict__, self.__pickled)

    def __repr__(self) -> str:
        suffix = f": {self.__text}" if self.__text else ""
        return f"<{self.__kind} on node {self.__node}{suffix}>"


def _arrive(kind: str, text: str, node: int, attributes: Mapping[str, Any], pickled: bytes) -> Any:
    """Return the value if it was sent and can be unpickled here, else its stand-in."""
    if pickled:
        try:
            return pickle.loads(pickled)
        except Exception:  # its package is not installed here, or in another version
            pass
    return NodeValue(kind, text, node, attributes)


@dataclass(frozen=True, slots=True)
class FrameCode:
    """The code that a frame runs.

    Attributes:
        magic: identifies the version of Python that wrote `marshalled`.
        marshalled: the code object without its constants, compressed; empty if it is too large.
        first_line: line number at which `source` starts.
        source: its source, compressed, if the node has it and the client does not; otherwise empty.
    """

    magic: bytes
    marshalled: bytes
    first_line: int
    source: bytes

    def load(self) -> CodeType | None:
        """Return the code object, which must not be run; None if it cannot be loaded here."""
        if self.magic != MAGIC or not self.marshalled:
            return None
        code: CodeType = marshal.loads(zlib.decompress(self.marshalled))
        return code

    @property
    def lines(self) -> list[str]:
        """The lines of its source."""
        return zlib.decompress(self.source).decode("utf-8", "surrogatepass").splitlines(True) if self.source else []


@dataclass(frozen=True, slots=True)
class FrameState:
    """The state of a frame.

    Attributes:
        code: the code that it ran.
        lasti: offset of the instruction that raised.
        module: name of its module.
        is_users: True if its globals are the variables of the cell.
        variables: its local variables; for the cell's own code, the variables of the cell.
        globals: the global variables that a function names; for a library, without functions, classes and modules.
    """

    code: FrameCode
    lasti: int
    module: str
    is_users: bool
    variables: Mapping[str, Any]
    globals: Mapping[str, Any]


class FrameRecorder:
    """Records the frames of one exception and of those that led to it, within limits of size and time.

    Args:
        namespace: the variables of the cell.
        node: rank of this node.
        known: name of the file whose source the client has.
    """

    def __init__(self, namespace: Mapping[str, Any], node: int, known: str) -> None:
        self._namespace = namespace
        self._node = node
        self._known = known
        self._codes: dict[tuple[int, int], FrameCode] = {}
        self._functions: dict[int, list[str]] = {}
        self._left = _UNITS
        self._until = clock.monotonic() + _SECONDS
        self._texts = _Texts(self._until)

    def record(self, tracebacks: list[TracebackType]) -> list[FrameState | None]:
        """Return the states of the frames of a traceback; None for a frame that cannot be read.

        The user's own frames are read first, then those of libraries, each from the innermost outwards.
        """
        order = sorted(range(len(tracebacks)), key=lambda place: (not self._is_users(tracebacks[place]), -place))
        try:
            states = {place: self._state_or_nothing(tracebacks[place]) for place in order}
        finally:
            self._texts.close()
        return [states[place] for place in range(len(tracebacks))]

    def _is_users(self, traceback: TracebackType) -> bool:
        return traceback.tb_frame.f_globals is self._namespace

    def _state_or_nothing(self, traceback: TracebackType) -> FrameState | None:
        try:
            return self._state(traceback)
        except Exception:  # an unusual mapping of variables, or source: the failure must not be lost with it
            return None

    def _state(self, traceback: TracebackType) -> FrameState:
        frame, is_users = traceback.tb_frame, self._is_users(traceback)
        code = frame.f_code
        variables: dict[str, Any] = {}
        used: dict[str, Any] = {}
        if code.co_name == "<module>":
            variables = dict(self._namespace) if is_users else {}
        else:
            variables = dict(frame.f_locals)
            named = {name: frame.f_globals[name] for name in code.co_names if name in frame.f_globals}
            used = {name: value for name, value in named.items() if is_users or not _is_by_name(value)}
        return FrameState(
            self._code(frame, traceback.tb_lineno),
            traceback.tb_lasti,
            str(frame.f_globals.get("__name__", "")),
            is_users,
            self._sendable(variables),
            self._sendable(used),
        )

    def _code(self, frame: FrameType, line: int) -> FrameCode:
        code = frame.f_code
        start, block = self._block(frame, line)
        key = id(code), start  # the code lives as long as the exception
        found = self._codes.get(key)
        if found is None:
            data = marshal.dumps(code.replace(co_consts=(None,) * len(code.co_consts)))
            source = "".join(block)
            found = self._codes[key] = FrameCode(
                MAGIC,
                zlib.compress(data) if len(data) <= _LARGEST_CODE else b"",
                start,
                zlib.compress(source.encode("utf-8", "surrogatepass")) if source else b"",
            )
        return found

    def _block(self, frame: FrameType, line: int) -> tuple[int, list[str]]:
        """Return the source of `frame`'s code and its first line number; for long code, the lines around `line`."""
        code = frame.f_code
        if code.co_filename == self._known:
            return code.co_firstlineno, []
        linecache.lazycache(code.co_filename, frame.f_globals)
        lines = linecache.getlines(code.co_filename)
        if code.co_name != "<module>":
            block = self._functions.get(id(code))
            if block is None:
                block = self._functions[id(code)] = _function_at(lines, code.co_firstlineno)
            if len(block) <= _LONGEST_BLOCK:
                return code.co_firstlineno, block
        first = max(1, line - _AROUND)
        return first, lines[first - 1 : line + _AROUND]

    def _sendable(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name in list(variables)[:_MAX_NAMES]:
            if not name.startswith("__") or name in _HIDES:
                found[name] = self._value(variables[name], 0)
        return found

    def _value(self, value: Any, depth: int) -> Any:
        """Return the form in which a value is sent."""
        try:
            return self._looked_at(value, depth)
        except Exception:  # reading an object may run any code
            return NodeValue("object", "", self._node)

    def _looked_at(self, value: Any, depth: int) -> Any:
        kind, is_plain = type(value), _is_plain(value)
        if is_plain and kind not in _TEXTS:
            return value
        self._left -= 16
        if self._left <= 0 or clock.monotonic() > self._until:
            return NodeValue(_name(kind), "", self._node)
        if is_plain:
            self._left -= len(value)
            return value
        if kind in _CONTAINERS and depth < _MAX_DEPTH:
            found = self._container(value, depth)
            if found is not None:
                return found
        return self._described(value, depth)

    def _container(self, value: Any, depth: int) -> Any:
        """Return a container with the sent forms of its items; None if it is too long, or its keys cannot be sent."""
        if len(value) > _MAX_ITEMS:
            return None
        kind = type(value)
        items = value.copy() if kind in (dict, list, set) else value  # another thread may change it
        if kind is list or kind is tuple:
            return kind(self._value(item, depth + 1) for item in items)
        if not all(map(_is_plain, items)):
            return None
        if kind is dict:
            return {key: self._value(item, depth + 1) for key, item in items.items()}
        return items

    def _described(self, value: object, depth: int) -> NodeValue:
        text = encodable(self._texts.of(value))
        self._left -= len(text)
        attributes = {}
        if depth < _MAX_DEPTH:
            own = _attributes(value)
            attributes = {name: self._value(own[name], depth + 1) for name in list(own)[:_MAX_ITEMS]}
        return NodeValue(_name(type(value)), text, self._node, attributes, _pickled_array(value))


def _function_at(lines: list[str], first: int) -> list[str]:
    """Return the lines of the function that begins at number `first` of `lines`; empty if there is none."""
    try:
        return inspect.getblock(lines[first - 1 :])
    except (SyntaxError, TokenError):  # the file has changed since it was imported
        return []


def _is_plain(value: Any) -> bool:
    """Return whether a value is sent as it is."""
    kind = type(value)
    if kind in _TEXTS:
        return len(value) <= _MAX_TEXT
    if kind is int:
        return bool(abs(value) < _LONG_INT)
    return kind in _ATOMS and getattr(value, "tzinfo", None) is None


def _is_by_name(value: object) -> bool:
    """Return whether a value is a function, class or module. Its `__class__` is not used: reading it may raise."""
    return issubclass(type(value), _FUNCTIONS)


def _attributes(value: object) -> dict[str, Any]:
    """Return the attributes stored in an object."""
    if _is_by_name(value):
        return {}
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return {name: each for name, each in own.copy().items() if isinstance(name, str)} if type(own) is dict else {}


def _pickled_array(value: Any) -> bytes:
    """Return a small NumPy array or number, pickled; empty for anything else."""
    kind = type(value)
    if kind.__module__ != "numpy" or not all(hasattr(value, name) for name in ("dtype", "nbytes")):
        return b""
    if value.dtype.kind not in _ARRAY_KINDS or value.nbytes > _ARRAY_BYTES:
        return b""
    return pickle.dumps(value, 5)


def _name(kind: type) -> str:
    name = f"{type.__getattribute__(kind, '__qualname__')}"
    module = kind.__module__
    return name if module in ("builtins", "__main__") else f"{module}.{name}"


class _Texts:
    """Computes the `repr` of values, within a time limit: that of an object may take long, or never end.

    Args:
        until: end of the time limit.
    """

    def __init__(self, until: float) -> None:
        self._until = until
        self._repr = _ShortRepr()
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._answers: SimpleQueue[str | BaseException] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_late = False

    def of(self, value: object) -> str:
        """Return the `repr` of a value, cut short; empty if it was not ready in time."""
        if type(value) in _QUICK:
            return self._repr.repr(value)
        if self._is_late:
            return ""
        if self._thread is None:
            self._thread = Thread(target=self._answer, name="skyward-repr", daemon=True)
            self._thread.start()
        self._asked.put(value)
        try:
            found = self._answers.get(timeout=max(0.0, self._until - clock.monotonic()))
        except Empty:
            self._is_late = True
            return ""
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End the thread. If an object's `repr` does not end, interrupt it; if that fails too, abandon the thread."""
        if self._thread is None:
            return
        self._asked.put(_END)
        if self._is_late:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
            )
        else:
            self._thread.join()
        self._thread = None

    def _answer(self) -> None:
        with suppress(SystemExit):
            while (value := self._asked.get()) is not _END:
                try:
                    self._answers.put(self._repr.repr(value))
                except SystemExit:
                    raise
                except BaseException as error:
                    self._answers.put(error)


_END = object()

_QUICK = _ATOMS | _TEXTS | {FunctionType, BuiltinFunctionType}
"""Types of which the `repr` of an object calls no user code."""


class _ShortRepr(reprlib.Repr):
    """A `repr` that is cut short, without reading all items of a container."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother, self.maxlong = 4, 300, 600, 100
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = 20
        self.maxarray = 20
