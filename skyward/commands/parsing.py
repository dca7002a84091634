"""Parsing of words into the values of options, with one-sentence errors that name the wrong word."""

import argparse
from collections.abc import Mapping, Sequence, Sized
from difflib import get_close_matches
from functools import cache
from threading import Lock
from typing import Any, NoReturn

from skyward.commands.option import Option
from skyward.commands.underline import OptionError
from skyward.errors import ProviderMissingError, SpecError, UsageError

__all__ = ["parse_options", "unknown_option"]


class _Parser(argparse.ArgumentParser):
    """Parser of words into lists of texts, which the options interpret."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


_parsing = Lock()


@cache
def _parser(options: tuple[tuple[str, bool, *tuple[str, ...]], ...]) -> _Parser:
    """Make a parser of options, each given by its target, whether it takes a value, and its flags. Takes 1 ms."""
    parser = _Parser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for target, takes_value, *flags in options:
        action: dict[str, Any] = {"action": "append"} if takes_value else {"action": "append_const", "const": ""}
        parser.add_argument(*flags, dest=target, **action)
    parser.add_argument("words", nargs="*")
    return parser


def parse_options(
    words: Sequence[str], options: Sequence[Option], command: str, elsewhere: Sequence[Option] = ()
) -> tuple[list[str], Mapping[str, Any]]:
    """Split words into the positional ones and the values of options by target.

    Args:
        words: the words after the command.
        options: the options of the command.
        command: the command, for error messages: `%sky up`.
        elsewhere: the options of `%%sky`, which the error about an unknown option recognizes.

    Raises:
        UsageError: an option is unknown, lacks a value, has a wrong one, or is repeated.
    """
    try:
        with _parsing:  # a parser is not thread-safe
            parser = _parser(tuple((option.target, bool(option.metavar), *option.flags) for option in options))
            found, left = parser.parse_known_intermixed_args(list(words))
    except argparse.ArgumentError as error:
        raise _no_value(error.argument_name or "", options) from None
    for word in left:
        if word.startswith("-"):
            raise unknown_option(word, options, command, elsewhere)
    values = {
        option.target: _value(option, texts)
        for option in options
        if (texts := getattr(found, option.target)) is not None
    }
    return [*found.words, *left], values


def _value(option: Option, texts: Sequence[str]) -> Any:
    if option.merge is not None:
        return option.merge([_read(option, text) for text in texts])
    if option.metavar and len(texts) > 1:
        raise OptionError(f"{option.name} is given {len(texts)} times: keep one of them.", option.flags, texts)
    return _read(option, texts[0]) if option.metavar else option.constant


def _read(option: Option, text: str) -> Any:
    try:
        value = option.read(text)
    except (ProviderMissingError, SpecError) as error:
        raise OptionError(f"{option.name} {text}: {error}", option.flags, [text]) from None
    except ValueError:
        value = None
    if value is None or (isinstance(value, Sized) and not value):
        shown = repr(text.partition("=")[0] if option.is_secret else text)
        raise OptionError(f"{option.name} takes {option.takes}, but got {shown}.", option.flags, [text])
    return value


def _no_value(flag: str, options: Sequence[Option]) -> UsageError:
    option = next(option for option in options if flag.split("/")[0] in option.flags)
    if not option.metavar:
        return OptionError(f"{option.name} takes no value.", option.flags)
    return OptionError(f"{option.name} needs a value: {option.takes}.", option.flags)


def unknown_option(word: str, options: Sequence[Option], command: str, elsewhere: Sequence[Option] = ()) -> UsageError:
    """Return the error about an option that a command does not have; the arguments are those of `parse_options`."""
    flag = word.partition("=")[0]
    if any(flag in option.flags for option in elsewhere):
        return OptionError(f"{flag} is an option of %%sky, and {command} does not take it: leave it out.", [flag])
    known = {name.lstrip("-"): name for option in options for name in option.flags}
    if flag.endswith("?") and flag.strip("-?") in known:
        magic = command.partition(" ")[0]
        return OptionError(f"`{magic}?` explains {flag.rstrip('?')}; write it without the question mark here.", [flag])
    close = get_close_matches(flag.lstrip("-"), known, n=1, cutoff=0.7)
    close = close or [name for name in known if len(flag) > 3 and name.startswith(flag.lstrip("-"))]
    if close:
        return OptionError(f"{command} has no option {flag}; did you mean {known[close[0]]}?", [flag])
    listing = "%sky help" if command.startswith("%") else f"{command} --help"
    return OptionError(f"{command} has no option {flag}; `{listing}` lists them.", [flag])
