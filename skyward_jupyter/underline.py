"""The line of a magic with what is wrong in it underlined."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from skyward.errors import UsageError

__all__ = ["OptionError", "picture", "underlined"]

_SECRET = "--env"


class OptionError(UsageError):
    """Something is wrong with options of a magic.

    Attributes:
        flags: all the ways in which those options may be written.
        values: the values that are wrong; none where it is the option itself.
    """

    def __init__(self, text: str, flags: Sequence[str] = (), values: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.flags = tuple(flags)
        self.values = tuple(values)


@contextmanager
def underlined(command: str, line: str) -> Iterator[None]:
    """Inside, an `OptionError` becomes a `UsageError` that shows where in the line of `command` it is."""
    try:
        yield
    except OptionError as error:
        plain = UsageError(str(error))
        try:
            words = shlex.split(line)
        except ValueError:
            words = []
        if shown := picture([command, *words], error.flags, error.values):
            plain.add_note(shown)
        raise plain from None


def picture(words: Sequence[str], flags: Sequence[str], values: Sequence[str]) -> str:
    """The words as a line, with another below it that underlines what is meant; empty where nothing is.

    Values of environment variables are left out: they may be secrets.
    """
    above = below = ""
    after_flag = secret = False
    for word in words:
        flag, equals, _ = word.partition("=")
        is_value = after_flag and word in values
        after_flag = flag in flags
        text = _written(word, secret=secret)
        gap = ("^" if is_value else " ") if above else ""  # a flag and its value are underlined as one
        above += f"{' ' if above else ''}{text}"
        below += gap + ("^" if after_flag or is_value else " ") * len(text)
        after_flag, secret = after_flag and not equals, word == _SECRET
    return f"    {above}\n    {below.rstrip()}" if "^" in below else ""


def _written(word: str, *, secret: bool) -> str:
    """A word as it would be typed; `secret`: it is a variable and its value."""
    flag, equals, value = word.partition("=")
    if flag == _SECRET and equals:
        return shlex.quote(f"{flag}={_hidden(value)}")
    return word if word.startswith("%") else shlex.quote(_hidden(word) if secret else word)


def _hidden(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}{equals}..." if equals else name
