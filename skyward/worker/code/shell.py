"""The object returned by `get_ipython()` on a node: `!command`, a few magics, and a clear error for the rest."""

import ast
import codecs
import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from threading import Thread  # tasks may replace the attributes of the module
from types import FrameType
from typing import Any

from skyward.errors import UsageError
from skyward.worker.code import magics

__all__ = ["Lines", "NodeShell", "expand_command", "names_in_command"]

_PLACE = re.compile(r"\$\$|\$(?P<name>[A-Za-z_]\w*)|\{\{|\}\}|\{(?P<expression>[^{}]+)\}")
"""Placeholders in a command: `$name` or `{expression}`; `$$`, `{{` and `}}` are escapes."""

_LONG = 1e9
"""Seconds to wait for a command after it has closed its output. A wait without a timeout cannot be interrupted."""


class Lines(list[str]):
    """The output lines of a command, as returned by `x = !command`."""

    @property
    def n(self) -> str:
        """The lines, joined by newlines."""
        return "\n".join(self)

    @property
    def s(self) -> str:
        """The lines, joined by spaces."""
        return " ".join(self)


class NodeShell:
    """The part of IPython's shell that works on a node."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.user_ns = namespace

    def system(self, command: str) -> None:
        """Run `command` in a shell, streaming its output, and set `_exit_code`."""
        with _running(expand_command(command, self.user_ns), subprocess.STDOUT) as process:
            _print_output(process)
        self.user_ns["_exit_code"] = process.returncode

    system_raw = system_piped = system

    def getoutput(self, command: str, split: bool = True, depth: int = 0) -> Lines | str:
        """Run `command`, and return its standard output as lines, or with `split=False` as one string."""
        with _running(expand_command(command, self.user_ns), None) as process:
            text = "".join(text for _, text in _read(process))
        self.user_ns["_exit_code"] = process.returncode
        return Lines(text.splitlines()) if split else text

    def run_line_magic(self, name: str, line: str = "", *_: object, **__: object) -> Any:
        """Run a line magic, and return the value of the code after `%time`, or the result of `%pwd` and `%env`.

        Raises:
            UsageError: the magic is not supported on nodes.
        """
        if name in magics.IGNORED:
            return None
        text = line if name in ("time", "timeit") else expand_command(line, self.user_ns)
        match name:
            case "time":
                return self._time(line, sys._getframe(1), 0)
            case "timeit":
                magics.repeated(line, None).measure(self.user_ns, _print)
            case "cd":
                _print(f"{magics.change_folder(text)}\n")
            case "pwd":
                return os.getcwd()
            case "env" | "set_env":
                return magics.environment(text, _print)
            case _:
                raise _no_magic(f"%{name}")
        return None

    def run_cell_magic(self, name: str, line: str = "", cell: str = "", *_: object, **__: object) -> Any:
        """Run a cell magic on the code, script or text below it, and return the value of the code below `%%time`.

        Raises:
            UsageError: the magic is not supported on nodes.
            CalledProcessError: the script failed.
        """
        match name:
            case "time":
                return self._time(cell, sys._getframe(1), 1)
            case "timeit":
                magics.repeated(line, cell).measure(self.user_ns, _print)
            case "bash" | "sh":
                self._script(name, magics.script_arguments(name, expand_command(line, self.user_ns)), cell)
            case "writefile" | "file":
                _print(magics.write_file(expand_command(line, self.user_ns), cell))
            case _:
                raise _no_magic(f"%%{name}")
        return None

    def _time(self, code: str, caller: FrameType, below: int) -> Any:
        """Run code after, or `below`, the magic, print its duration, and return its value."""
        filename, line = caller.f_code.co_filename, caller.f_lineno + below
        return magics.timed(code, self.user_ns, filename, line, _print)

    def _script(self, program: str, arguments: list[str], script: str) -> None:
        with TemporaryDirectory() as folder:
            path = os.path.join(folder, "script")
            with open(path, "w", encoding="utf-8") as file:
                file.write(script)
            with _running(shlex.join([program, path, *arguments]), subprocess.PIPE) as process:
                _print_output(process)
        self.user_ns["_exit_code"] = process.returncode
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, script.encode("utf-8", "replace"))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"get_ipython().{name} is not available on a node; only !commands and a few magics are. "
            "Use it in a cell without %%sky."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("the IPython shell of a node cannot be pickled")


def expand_command(command: str, namespace: Mapping[str, Any]) -> str:
    """Replace `$name` and `{expression}` in `command`. Placeholders without a value stay as they are."""

    def value(match: re.Match[str]) -> str:
        text = match.group()
        if text in ("$$", "{{", "}}"):
            return text[0]
        name, expression = match.group("name", "expression")
        if name is not None:
            return str(namespace[name]) if name in namespace else text
        try:
            return str(eval(expression, dict(namespace)))  # the user's own expression, as in IPython
        except Exception:
            return text

    return _PLACE.sub(value, command)


def names_in_command(command: str) -> Iterator[str]:
    """Yield the names whose values `expand_command` looks up."""
    for match in _PLACE.finditer(command):
        name, expression = match.group("name", "expression")
        if name is not None:
            yield name
        elif expression is not None:
            try:
                tree = ast.parse(expression.strip(), mode="eval")
            except SyntaxError:
                continue
            yield from (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _start(command: str, errors: int | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
    )


@contextmanager
def _running(command: str, errors: int | None) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` until the end of the block. An interrupt, or any other error, kills all its processes.

    Another thread starts the process: an interrupt is raised in this one, where it could hit the middle of the start
    and leave an unknown process behind.
    """
    started: Future[subprocess.Popen[bytes]] = Future()

    def start() -> None:
        try:
            started.set_result(_start(command, errors))
        except Exception as error:
            started.set_exception(error)

    try:
        Thread(target=start, name="skyward-command", daemon=True).start()
        process = started.result()
        yield process
        process.wait(_LONG)
    except BaseException:
        started.add_done_callback(_end)
        raise
    _close(process)


def _end(started: "Future[subprocess.Popen[bytes]]") -> None:
    """Kill the process group of the command."""
    if started.exception() is not None:
        return
    process = started.result()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _print_output(process: subprocess.Popen[bytes]) -> None:
    """Print the output of `process` as it is written."""
    for name, text in _read(process):
        _print(text, name)


def _print(text: str, stream: str = "stdout") -> None:
    sink = getattr(sys, stream)
    sink.write(text)
    sink.flush()


def _no_magic(text: str) -> UsageError:
    return UsageError(f"{text} is not available on nodes; run it in a cell without %%sky.")


def _read(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the output of `process` as it is written, with the name of the stream, in whole characters.

    Never blocks for long in one call, because only a thread that runs Python can be interrupted.
    """
    decode = codecs.getincrementaldecoder("utf-8")
    pipes = {
        pipe.fileno(): (name, decode("replace"))
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
        if pipe is not None
    }
    while pipes:
        for source in select.select(list(pipes), [], [], 0.05)[0]:
            name, decoder = pipes[source]
            data = os.read(source, 65536)
            yield name, decoder.decode(data, final=not data)
            if not data:
                del pipes[source]
