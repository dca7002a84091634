"""Splitting the line of a magic into words, and underlining the wrong ones in error messages."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from skyward.errors import UsageError

__all__ = ["OptionError", "picture", "split_line", "underlined"]

_SECRET = "--env"


class OptionError(UsageError):
    """Invalid options of a magic.

    Attributes:
        flags: all spellings of those options.
        values: the wrong values; empty if the option itself is wrong.
        words: the words of a line that cannot be split by `split_line`.
    """

    def __init__(
        self, text: str, flags: Sequence[str] = (), values: Sequence[str] = (), words: Sequence[str] = ()
    ) -> None:
        super().__init__(text)
        self.flags = tuple(flags)
        self.values = tuple(values)
        self.words = tuple(words)


class _AsTyped(str):
    """A word that is shown as it was typed."""

    __slots__ = ()


_COMMENT = re.compile(r"(?:^|(?<=\s))#")


def split_line(line: str) -> list[str]:
    """Split a line into words by the rules of a POSIX shell; a comment begins with ` #`.

    Raises:
        OptionError: a quote is not closed, or the line ends with a backslash.
    """
    for end in (*(found.start() for found in _COMMENT.finditer(line)), len(line)):
        try:
            return shlex.split(line[:end])
        except ValueError:
            continue
    start = _unfinished(line)
    mark = line[start]
    begin = max(line.rfind(space, 0, start) for space in " \t") + 1
    if mark == "\\":
        text = "The line ends with a backslash, but options must be on one line: remove it."
    else:
        text = f"Unclosed quote: add {mark} at its end, or remove the one that opens it."
    word, *more = line[begin:].split(maxsplit=1)
    rest = _AsTyped(f"{word} ..." if more else word)  # the rest may hold a secret
    raise OptionError(text, [rest], words=[*shlex.split(line[:begin]), rest])


def _unfinished(line: str) -> int:
    """Return the position of the unclosed quote, or of the final backslash, of an unfinished line."""
    place = start = 0
    quote = ""
    while place < len(line):
        mark = line[place]
        if mark == "\\" and quote != "'":
            start = start if quote else place
            place += 1
        elif mark == quote:
            quote = ""
        elif mark in "'\"" and not quote:
            quote, start = mark, place
        place += 1
    return start


@contextmanager
def underlined(command: str, line: str) -> Iterator[None]:
    """Turn an `OptionError` raised within the context into a `UsageError` with the line of `command` underlined."""
    try:
        yield
    except OptionError as error:
        plain = UsageError(str(error))
        words = error.words or split_line(line)
        if shown := picture([command, *words], error.flags, error.values):
            plain.add_note(shown)
        raise plain from None


def picture(words: Sequence[str], flags: Sequence[str], values: Sequence[str]) -> str:
    """Return the words as a line, with the flags and values underlined on the next; empty if none is in the line.

    Values of environment variables are left out: they may be secrets.
    """
    above = below = ""
    after_flag = secret = False
    for word in words:
        flag, equals, _ = word.partition("=")
        is_value = after_flag and word in values
        after_flag = flag in flags or word in flags
        text = _written(word, secret=secret)
        gap = ("^" if is_value else " ") if above else ""  # a flag and its value are underlined as one
        above += f"{' ' if above else ''}{text}"
        below += gap + ("^" if after_flag or is_value else " ") * len(text)
        after_flag, secret = after_flag and not equals, word == _SECRET
    return f"    {above}\n    {below.rstrip()}" if "^" in below else ""


def _written(word: str, *, secret: bool) -> str:
    """Return a word as it would be typed; `secret` marks it as `NAME=VALUE` of an environment variable."""
    flag, equals, value = word.partition("=")
    shown = f"{flag}={_hidden(value)}" if flag == _SECRET and equals else _hidden(word) if secret else word
    return shown if word.startswith("%") or isinstance(word, _AsTyped) else shlex.quote(shown)


def _hidden(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    return f"{name}{equals}..." if equals else name
