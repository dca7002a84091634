"""Frames of a node, recreated in the notebook, for IPython to display and its debugger to inspect.

A frame object cannot be created directly: its code has to be called. So the code object from the node is called here
with a trace function that raises as soon as the frame exists, before its first instruction. The result is a frame with
the code, the variables and the line of the original.

If Python does not call trace functions, no frame is created, because the code would run here. This is so for code
called by a trace function, such as input at the prompt of a debugger.
"""

import inspect
import linecache
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, lru_cache
from opcode import opmap
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

from skyward.frontends.cells import Frame, FrameState, NodeValue

__all__ = ["TracebackMaker", "is_of_node"]

_MARK = "__skyward_node__"
"""Global variable that marks a frame of a node. Its value is the rank of the node."""

_BY_NAME = (FunctionType, BuiltinFunctionType, type, ModuleType)
"""Types of values that the notebook can supply by name, because its own are equivalent to the node's."""


def is_of_node(frame: FrameType) -> bool:
    """Return whether a frame was recreated from a frame of a node."""
    return _MARK in frame.f_globals


class TracebackMaker:
    """Factory of tracebacks from the frames that a cell had on a node.

    Args:
        node: rank of the node.
        names: the variables of the notebook.
        returned: names whose values were returned by this cell.
    """

    def __init__(self, node: int, names: Mapping[str, Any], returned: Collection[str]) -> None:
        self._node = node
        self._names = names
        self._returned = returned

    @cached_property
    def _by_name(self) -> dict[str, Any]:
        """Functions, classes and modules of the notebook."""
        return {name: value for name, value in self._names.items() if isinstance(value, _BY_NAME)}

    def __call__(self, frames: tuple[Frame, ...]) -> TracebackType | None:
        """Return a traceback with these frames, outermost first; None if there are none, or none can be created."""
        made: TracebackType | None = None
        for frame in reversed(frames):
            made = self._entry(frame, made)
        return made

    def _entry(self, frame: Frame, following: TracebackType | None) -> TracebackType | None:
        if frame.state is not None:
            try:
                return self._whole(frame, frame.state, following)
            except Exception:  # unusual code must not hide its exception
                pass
        filename = self._file(frame.filename, frame.line, [f"{frame.text}\n"] if frame.text else [])
        made = _frame(_empty_code(filename, frame.function, frame.line), {_MARK: self._node}, {}, self._node)
        if made is None:
            return following
        return TracebackType(following, made, made.f_lasti, frame.line)

    def _whole(self, frame: Frame, state: FrameState, following: TracebackType | None) -> TracebackType | None:
        """Return a traceback entry with the code and the variables of its frame."""
        filename = self._file(frame.filename, state.code.first_line, state.code.lines)
        code = state.code.load()
        lasti = None if code is None else state.lasti
        if code is None:
            code = _empty_code(filename, frame.function, frame.line)
        code = code.replace(co_filename=filename, co_linetable=_located(code, frame.line))
        own: dict[str, Any] = {**state.globals, "__name__": state.module, _MARK: self._node}
        variables: dict[str, Any] = dict(state.variables)
        if state.is_users:
            own = {**self._by_name, **own, **self._resolved(state.globals)}
            variables = _CellVariables(self._names, self._resolved(variables))
        made = _frame(code, own, variables, self._node)
        if made is None:
            return following
        return TracebackType(following, made, made.f_lasti if lasti is None else lasti, frame.line)

    def _resolved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of names: the notebook's own if they were returned, or are equivalent by name."""
        found = {}
        for name, value in values.items():
            is_here = isinstance(value, NodeValue) and (name in self._returned or name in self._by_name)
            found[name] = self._names[name] if is_here and name in self._names else value
        return found

    def _file(self, filename: str, first_line: int, lines: list[str]) -> str:
        """Return the file name for the source of a frame: a new one if the file on this machine differs."""
        place = slice(first_line - 1, first_line - 1 + len(lines))
        if not lines or _is_interactive(filename):
            return filename
        linecache.checkcache(filename)
        if [*map(str.strip, linecache.getlines(filename)[place])] == [*map(str.strip, lines)]:
            return filename
        there = f"node-{self._node}:{filename}"
        known = linecache.getlines(there)
        known += ["\n"] * (place.stop - len(known))
        known[place] = lines
        linecache.cache[there] = (sum(map(len, known)), None, known, there)
        return there


class _CellVariables(dict[str, Any]):
    """The variables of a cell: recorded ones as they were on the node, all others as they are in the notebook."""

    def __init__(self, names: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        super().__init__(own)
        self._names = names

    def __missing__(self, name: str) -> Any:
        return self._names[name]


class _MadeError(Exception):
    """Raised by the trace function once the frame exists."""


def _is_traced() -> bool:
    """Return whether Python calls trace functions at the moment, so that one can stop a call."""
    seen: list[CodeType] = []

    def probe() -> None:
        pass

    def note(frame: FrameType, event: str, argument: object) -> None:
        seen.append(frame.f_code)

    tracing = sys.gettrace()
    try:
        sys.settrace(note)
        probe()
    finally:
        sys.settrace(tracing)
    return probe.__code__ in seen


def _frame(code: CodeType, own: dict[str, Any], variables: dict[str, Any], node: int) -> FrameType | None:
    """Create a frame that runs `code` with these globals and local variables, stopped before its first instruction.

    Returns:
        The frame; None if Python does not call trace functions, so that the code could not be stopped.
    """
    if not _is_traced():
        return None
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    positional = code.co_argcount
    given = code.co_varnames[: positional + code.co_kwonlyargcount]
    if is_function:
        for name in given:
            variables.setdefault(name, NodeValue("value", "not sent", node))

    def stop(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is code:
            if is_function:
                frame.f_locals.update(variables)
            raise _MadeError

    closure = tuple(CellType() for _ in code.co_freevars)
    tracing = sys.gettrace()
    try:
        if is_function:
            function = FunctionType(code, own, closure=closure)
            sys.settrace(stop)
            started: Any = function(*given[:positional], **dict.fromkeys(given[positional:]))
        elif closure:
            sys.settrace(stop)
            started = None
            exec(code, own, variables, closure=closure)
        else:
            sys.settrace(stop)
            started = eval(code, own, variables)
        (started.asend(None) if code.co_flags & inspect.CO_ASYNC_GENERATOR else started).send(None)
    except _MadeError as made:
        entry = made.__traceback__
    finally:
        sys.settrace(tracing)
    while entry is not None and entry.tb_frame.f_code is not code:
        entry = entry.tb_next
    assert entry is not None  # the trace function has raised
    return entry.tb_frame


@lru_cache(maxsize=1024)
def _empty_code(filename: str, function: str, line: int) -> CodeType:
    """Return a placeholder for code that was not sent."""
    code = compile("", filename, "exec").replace(co_name=function, co_qualname=function)
    if function != "<module>":
        code = code.replace(co_firstlineno=line)  # the first line of the function is unknown
    return code.replace(co_linetable=_located(code, line))


def _is_interactive(filename: str) -> bool:
    """Return whether a file is a cell of the notebook."""
    entry = linecache.cache.get(filename)
    return entry is not None and len(entry) == 4 and entry[1] is None


def _located(code: CodeType, line: int) -> bytes:
    """Return the table of positions of `code`, with the first instruction of a frame located on `line`.

    `Objects/locations.md` of CPython describes the format; all entries have the long form here.
    """
    table = bytearray()
    start = code.co_code[::2].index(opmap["RESUME"])
    before = code.co_firstlineno
    for unit, (first, last, column, end) in enumerate(code.co_positions()):
        if unit == start:
            first, last, column, end = line, line, None, None
        if first is None or last is None:
            table.append(_NO_PLACE)
            continue
        if column is None or end is None:
            table.append(_NO_COLUMNS)
            table += _signed(first - before)
        else:
            table.append(_LONG)
            table += b"".join((_signed(first - before), *map(_unsigned, (last - first, column + 1, end + 1))))
        before = first
    return bytes(table)


_LONG, _NO_COLUMNS, _NO_PLACE = (0x80 | kind << 3 for kind in (14, 13, 15))
"""First bytes of entries that cover one code unit."""


def _unsigned(number: int) -> bytes:
    return bytes(_groups(number))


def _signed(number: int) -> bytes:
    return bytes(_groups(-number << 1 | 1 if number < 0 else number << 1))


def _groups(number: int) -> Iterator[int]:
    """Yield a number in groups of six bits, the lowest first; all but the last have a continuation bit."""
    while number >= 64:
        yield 64 | number & 63
        number >>= 6
    yield number
