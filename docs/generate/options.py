"""The options of `%%sky`, from the table that its parser is made of."""

from collections.abc import Iterable

from docs.generate.markdown import entry, prose
from skyward.commands.option import Option
from skyward_jupyter.options.option_table import CELL_OPTIONS, OPTIONS

__all__ = ["cell_options", "option_entries"]


def cell_options() -> str:
    """Return an entry for each option of a cell, those of its pool last."""
    of_pool = [option for option in OPTIONS if option not in CELL_OPTIONS]
    parts = ["## How a cell runs", option_entries("%%sky", CELL_OPTIONS), "## The pool of a cell"]
    return "\n\n".join([*parts, option_entries("%%sky", of_pool)])


def option_entries(command: str, options: Iterable[Option]) -> str:
    """Return an entry for each option of a command."""
    return "\n".join(_entry(command, option) for option in options)


def _entry(command: str, option: Option) -> str:
    others = [flag for flag in option.flags if flag != option.name]
    text = [prose(option.help)]
    if others:
        text.append(f"Short form: {', '.join(f'`{flag}`' for flag in others)}.")
    if option.takes:
        text.append(f"Takes {option.takes}.")
    if option.choices:
        text.append(f"Values: {', '.join(f'`{choice}`' for choice in option.choices)}.")
    if option.merge is not None:
        text.append("Can be repeated.")
    return entry("option", f"{command} {option.name}", option.metavar, " ".join(text))
