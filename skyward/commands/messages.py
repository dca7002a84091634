"""Arguments of commands in the messages of front ends, as JSON values by name."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from skyward.commands.command import Argument, Arguments, Command, Form
from skyward.commands.option import Option
from skyward.commands.parsing import parse_options
from skyward.errors import SpecError, UsageError

__all__ = ["Json", "json_type", "read_arguments", "read_option_texts", "sent_forms"]

OPTIONS: Final = "options"
"""Argument with the collected options: texts of their values, by flag."""

type Json = Literal["text", "number", "true", "texts", "options"]
"""Type of an argument in a message."""


def sent_forms(command: Command, *, widget: bool = False) -> list[Form]:
    """Return the forms of a command that front ends send to the kernel; `widget` selects those of the live view."""
    return [form for form in command.forms if not form.is_line and (form.in_widget or not widget)]


def json_type(command: Command, name: str) -> Json:
    """Return the type of an argument of a command."""
    if name == OPTIONS and command.collected:
        return "options"
    match _named(command, name):
        case Argument(several=True):
            return "texts"
        case Argument(kind=kind):
            return "number" if kind.is_number else "text"
        case Option(metavar=""):
            return "true"
        case option:
            return "number" if option.is_number else "text"


def _named(command: Command, name: str) -> Argument | Option:
    for argument in command.arguments:
        if argument.name == name:
            return argument
    return next(option for option in command.flags if option.target == name)


def read_arguments(command: Command, given: Mapping[str, Any]) -> Arguments:
    """Parse the valid arguments of a message into those of the command.

    Raises:
        UsageError: a text is invalid.
    """
    return {name: _read(command, name, value) for name, value in given.items()}


def _read(command: Command, name: str, value: Any) -> Any:
    kind = json_type(command, name)
    if kind == "true":
        return True
    if kind == "options":
        return read_option_texts(value, command.collected, f"%sky {command.name}")
    if kind == "texts":
        return tuple(value)
    wanted = _named(command, name)
    try:
        return (wanted.kind if isinstance(wanted, Argument) else wanted).read(str(value))
    except SpecError:
        raise
    except ValueError:
        takes = wanted.phrase if isinstance(wanted, Argument) else wanted.takes
        raise UsageError(f"%sky {command.name} takes {takes}, but got {value!r}.") from None


def read_option_texts(texts: Mapping[str, str], options: Sequence[Option], command: str) -> Mapping[str, Any]:
    """Parse the texts of options by flag, as a form has them, into values by target; empty texts are left out.

    Raises:
        UsageError: an option is unknown or has a wrong value.
    """
    words = [word for flag, text in texts.items() if text.strip() for word in (flag, text.strip())]
    return parse_options(words, options, command)[1]
