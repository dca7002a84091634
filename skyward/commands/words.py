"""Arguments of commands as words of a line, and the help and completion of such lines."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from shlex import join
from typing import Any

from skyward.commands.command import POOL_OPTION, Argument, Arguments, Command
from skyward.commands.option import Option, explain
from skyward.commands.parsing import parse_options
from skyward.errors import SpecError, UsageError

__all__ = ["Values", "complete_command", "complete_options", "described_flags", "help_of_command", "help_text", "parse"]

type Values = Mapping[str, Callable[[str], Iterable[str]]]
"""Functions that list the values of an argument, by its kind, or of an option, by its target.

Each is called with the text of the line after the command.
"""

_LAST_OPTION = re.compile(r"(?:^|\s)(-[-\w]+)[=\s]\s*['\"]?[^\s'\"]*$")


def parse(command: Command, words: Sequence[str], prefix: str = "%sky", elsewhere: Sequence[Option] = ()) -> Arguments:
    """Parse the words after a command into its arguments.

    Args:
        command: the command.
        words: the words after its name.
        prefix: the word before its name, for error messages.
        elsewhere: the options of `%%sky`, which the error about an unknown option recognizes.

    Raises:
        UsageError: an option is unknown, or words are missing, wrong, or too many.
    """
    line = f"{prefix} {command.name}"
    left, given = parse_options(words, command.flags, line, elsewhere)
    collected = {option.target for option in command.collected}
    values = {target: value for target, value in given.items() if target not in collected}
    if command.collected:
        values["options"] = {target: value for target, value in given.items() if target in collected}
    arguments = command.arguments
    shown = left
    if command.takes_pool and "pool" in values:
        pool, name = arguments[0], values.pop("pool")
        shown = [name, *left]
        if pool.several:
            left = shown
        else:
            values[pool.name], arguments = name, arguments[1:]
    found = _bind(arguments, left)
    if found is None:
        raise _refused(command, line, shown)
    try:
        return {**values, **{each.name: _read(each, texts) for each, texts in found}}
    except SpecError:
        raise
    except ValueError:
        raise _refused(command, line, shown) from None


def _bind(arguments: Sequence[Argument], words: Sequence[str]) -> list[tuple[Argument, Sequence[str]]] | None:
    """Return the words of each argument, without those that are left out; None if they do not fit."""
    if len(arguments) == 1 and arguments[0].several:
        (argument,) = arguments
        return [(argument, words)] if words or not argument.required else None
    left_out = len(arguments) - len(words)
    taken = []
    for argument in arguments:
        if left_out > 0 and not argument.required:
            left_out -= 1
        else:
            taken.append(argument)
    return [(each, [word]) for each, word in zip(taken, words, strict=True)] if len(taken) == len(words) else None


def _read(argument: Argument, words: Sequence[str]) -> Any:
    values = tuple(map(argument.kind.read, words))
    return values if argument.several else values[0]


def _refused(command: Command, line: str, words: Sequence[str]) -> UsageError:
    if command.rest and len(words) > (count := len(command.arguments)):
        return UsageError(f"{line} takes {command.rest} after `--`: end the line with `-- {join(words[count:])}`.")
    if any(each.required for each in command.arguments):
        phrases = " and ".join(each.phrase for each in command.arguments)
        return UsageError(f"{line} takes {phrases}: `{line} {command.example}`.")
    return UsageError(f"{line} takes {command.usage or 'no arguments'}, but got {' '.join(words)!r}.")


def help_text(commands: Iterable[Command], prefix: str = "%sky") -> str:
    """Return the commands as a help text, one on each line."""
    heads = {each: f"{prefix} {each.name} {each.usage}".rstrip() for each in commands}
    width = min(48, max(map(len, heads.values())))
    lines = []
    for each, head in heads.items():
        gap = "\n  " + " " * width if len(head) > width else " " * (width - len(head))
        lines.append(f"  {head}{gap}  {each.help}")
    return "\n".join(lines)


def help_of_command(command: Command, prefix: str = "%sky") -> str:
    """Return the help of one command: its usage, description, example and options."""
    parts = [f"{prefix} {command.name} {command.usage}".rstrip(), f"  {command.help}"]
    if command.example:
        parts.append(f"  example: {prefix} {command.name} {command.example}")
    if flags := described_flags(command):
        parts.append(f"\nOptions:\n{explain(flags)}")
    return "\n".join(parts)


def described_flags(command: Command) -> list[Option]:
    """Return the options of a command as its help describes them: a pool is opened on first use only by cells."""
    return [replace(each, help=_POOL_HELP) if each is POOL_OPTION else each for each in command.flags]


_POOL_HELP = "the name of the pool"


def complete_command(command: Command, rest: str, values: Values) -> list[str]:
    """Return the words that may follow `rest`, the words after a command up to the cursor."""
    words = rest.split()
    finished = words if rest.endswith(" ") else words[:-1]
    positional = [word for word in finished if not word.startswith("-")]
    arguments = command.arguments
    if arguments and (arguments[-1].several or len(positional) < len(arguments)):
        place = arguments[min(len(positional), len(arguments) - 1) :]
        # An optional argument may be left out, so the next one may stand in its place.
        wanted = [place[0], *([] if place[0].required else place[1:2])]
    else:
        wanted = []
    if command.takes_pool and arguments[0].kind.name in values:
        values = {**values, POOL_OPTION.target: values[arguments[0].kind.name]}
    found = complete_options(command.flags, rest, values)
    if _asked_for(command.flags, rest) is not None:
        return found
    names = [word for each in wanted if each.kind.name in values for word in values[each.kind.name](rest)]
    return [*names, *found]


def complete_options(options: Sequence[Option], rest: str, values: Values) -> list[str]:
    """Return the flags, or the values of the option before the cursor, that may follow `rest`."""
    option = _asked_for(options, rest)
    if option is not None:
        return list(values[option.target](rest) if option.target in values else option.choices)
    words = rest.split()
    given = set(words if rest.endswith(" ") else words[:-1])
    unused = [each for each in options if each.merge is not None or not given.intersection(each.flags)]
    return [flag for each in unused for flag in each.flags if flag.startswith("--")]


def _asked_for(options: Sequence[Option], rest: str) -> Option | None:
    """Return the option whose value is being typed."""
    found = _LAST_OPTION.search(rest)
    if found is None:
        return None
    return next((each for each in options if found[1] in each.flags and each.metavar), None)
