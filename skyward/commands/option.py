"""Options of commands and of cells."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Option", "explain"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        flags: its spellings, the usual one first.
        target: name of the value that it sets.
        help: its description in the list of options.
        metavar: placeholder of its value; empty if it takes none.
        read: parses the value; raises `ValueError` if the text is invalid.
        takes: the values that it accepts, with an example, for error messages.
        choices: its values, if they can be listed.
        merge: combines several values, if the option may be repeated.
        constant: the value that it sets, if it takes none.
        is_number: True if its value is an integer, which a message of a front end has as such.
        is_secret: True if its value may be a secret, which errors do not show.
        section: heading above it in the help of the command line; empty for none of its own.
    """

    flags: tuple[str, ...]
    target: str
    help: str
    metavar: str = ""
    read: Callable[[str], Any] = str
    takes: str = ""
    choices: tuple[str, ...] = ()
    merge: Callable[[Sequence[Any]], Any] | None = None
    constant: object = True
    is_number: bool = False
    is_secret: bool = False
    section: str = ""

    @property
    def name(self) -> str:
        """The long flag, or the only one."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])


def explain(options: Iterable[Option]) -> str:
    """Return the options as a help text."""
    heads = {option: f"{', '.join(option.flags)} {option.metavar}".rstrip() for option in options}
    width = min(30, max(map(len, heads.values())))
    lines = []
    for option, head in heads.items():
        gap = "\n  " + " " * width if len(head) > width else " " * (width - len(head))
        lines.append(f"  {head}{gap}  {option.help}")
    return "\n".join(lines)
