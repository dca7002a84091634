"""Answers of commands on standard output, and everything else on standard error.

Tables are drawn for a terminal only, without colours if NO_COLOR is set; a file or a pipe gets plain lines.
"""

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from skyward.errors import SpecError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "ask",
    "is_on_terminal",
    "say",
    "speak_as",
    "speaker",
    "write_json",
    "write_json_line",
    "write_lines",
    "write_table",
]

_speaker = "skyward"


def speak_as(speaker: str) -> None:
    """Begin lines on standard error with the name of the program and the command from now on: `skyward run`."""
    global _speaker
    _speaker = speaker


def speaker() -> str:
    """Return the beginning of lines on standard error."""
    return _speaker


def say(sentence: str) -> None:
    """Write a line to standard error, after the name of the command."""
    sys.stderr.write(f"{_speaker}: {sentence}\n")
    sys.stderr.flush()


def is_on_terminal() -> bool:
    """Return whether answers are shown on a terminal."""
    from skyward.reporting.screen import is_terminal

    return is_terminal(sys.stdout)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of an answer."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def write_table(drawn: "Table") -> None:
    """Write a table: drawn on a terminal, within its width; as plain lines elsewhere."""
    from skyward.views.drawing import plain

    if not is_on_terminal():
        write_lines([plain(drawn)])
        return
    from rich.console import Console

    drawn.header_style = "bold"
    Console(file=sys.stdout, highlight=False).print(drawn)


def write_json(value: Any) -> None:
    """Write an answer as JSON."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")
    sys.stdout.flush()


def write_json_line(value: Any) -> None:
    """Write one object of a stream as JSON, on one line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def ask(question: str, *, yes: bool) -> bool:
    """Return the answer to a question that is asked on a terminal; `yes` answers it.

    Raises:
        SpecError: there is no terminal to ask on.
    """
    if yes:
        return True
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise SpecError(f"{question} There is no terminal to ask on: give -y to answer with yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
