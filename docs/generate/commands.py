"""The commands of `%sky` and of the terminal, from the tables and the parser that run them."""

import argparse
import contextlib
import os
from collections.abc import Iterator
from typing import Any

from docs.generate.markdown import entry, prose
from docs.generate.options import option_entries
from skyward.cli import main as cli
from skyward_kernel.commands.registry import COMMANDS

__all__ = ["magic_commands", "subparsers", "terminal_commands"]


def magic_commands() -> str:
    """Return an entry for each command of `%sky`, with its options."""
    parts = []
    for name, command in COMMANDS.items():
        parts.append(f"## `%sky {name}`\n")
        text = prose(command.help)
        if command.example:
            text += f" Example: `%sky {name} {command.example}`."
        parts.append(entry("magic", f"%sky {name}", command.usage, text))
        parts.append(option_entries(f"%sky {name}", command.flags))
    return "\n".join(parts)


def subparsers(parser: argparse.ArgumentParser | None = None) -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command of the terminal, also those of its subcommands."""
    for action in (parser or cli._parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                yield each
                yield from subparsers(each)


def terminal_commands() -> str:
    """Return an entry for each command of the terminal, with its `--help` and its options."""
    with _wide():
        return "\n".join(_command(parser) for parser in subparsers())


def _command(parser: argparse.ArgumentParser) -> str:
    prog = parser.prog
    help_text = parser.format_help().rstrip()
    parts = [
        f"## `{prog}`\n",
        entry("command", prog, "", prose(parser.description or ""), "", "```text", help_text, "```"),
    ]
    for action in parser._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("--")]
        if flags and flags[0] != "--help":
            parts.append(
                entry("option", f"{prog} {flags[0]}", _metavar(action), prose((action.help or "").replace("%%", "%")))
            )
    return "\n".join(parts)


def _metavar(action: Any) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return " ".join(action.metavar) if isinstance(action.metavar, tuple) else str(action.metavar or action.dest.upper())


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    """Give argparse a terminal of fixed width, so that a page does not depend on the one of its author."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "88"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
