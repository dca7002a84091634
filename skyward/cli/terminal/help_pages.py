"""Help of the program and of its commands, made from the table of commands. It loads nothing else."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

from skyward.commands.command import POOL_OPTION, Command
from skyward.commands.option import Option

__all__ = ["help_of", "help_of_program", "usage_of"]

_WIDTH = 100
_INDENT = 32


def help_of_program(program: str, commands: Mapping[str, Command]) -> str:
    """Return the help of the program: its commands, one on each line."""
    lines = [
        f"usage: {program} COMMAND [arguments] [options]",
        "",
        "Run Python scripts and commands on ephemeral nodes, and look after their pools.",
        "",
        "commands:",
        *(_entry(name, command.help) for name, command in commands.items()),
        "",
        "options:",
        _entry("-h, --help", "show this help, or that of a command"),
        _entry("--version", "show the distribution, its version and its path"),
        "",
        f"`{program} COMMAND --help` shows the options of a command.",
    ]
    return "\n".join(lines)


def usage_of(program: str, command: Command) -> str:
    """Return the usage of a command on one line."""
    words = [each.usage for each in command.arguments]
    rest = f"[-- {command.rest}]" if command.rest == "ARGS" else f"-- {command.rest}" if command.rest else ""
    options = ["[options]"] if command.options or command.collected else []
    return " ".join(filter(None, [program, command.name, *words, *options, rest]))


def help_of(program: str, command: Command, fill: Callable[[str], str] = str) -> str:
    """Return the help of a command.

    Args:
        fill: fills in what the help of an option leaves open, such as defaults.
    """
    text = command.description or f"{command.help[0].upper()}{command.help[1:]}."
    parts = [f"usage: {usage_of(program, command)}", "\n".join(textwrap.wrap(text, _WIDTH))]
    own = [option for option in command.options if option.target != POOL_OPTION.target or option.help]
    for section, options in _sections(own).items():
        parts.append(_listed(section or "options", options, fill))
    if command.collected:
        parts.append(_listed("the pool", command.collected, fill))
    if command.example:
        parts.append(f"Example: {program} {command.name} {command.example}")
    return "\n\n".join(parts)


def _sections(options: Iterable[Option]) -> dict[str, list[Option]]:
    found: dict[str, list[Option]] = {}
    for option in options:
        found.setdefault(option.section, []).append(option)
    found.setdefault("", []).append(Option(("-h", "--help"), "help", "show this help"))
    return {section: found[section] for section in sorted(found, key=bool)}


def _listed(title: str, options: Sequence[Option], fill: Callable[[str], str]) -> str:
    entries = [_entry(f"{', '.join(each.flags)} {each.metavar}".rstrip(), fill(each.help)) for each in options]
    return "\n".join([f"{title}:", *entries])


def _entry(head: str, text: str) -> str:
    first = f"  {head}".ljust(_INDENT - 2)
    begin = f"{first}  " if len(first) <= _INDENT - 2 else f"{first}\n{' ' * _INDENT}"
    lines = textwrap.wrap(text, _WIDTH - _INDENT)
    return begin + f"\n{' ' * _INDENT}".join(lines)
