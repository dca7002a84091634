"""Arguments, options and the form of answers that several commands have."""

from collections.abc import Mapping

from skyward.frontends.commands import POOL, Argument, Option

__all__ = ["ALL", "NAME", "QUIET", "titled"]

NAME = Argument("pool", POOL)
ALL = Option(("--all",), "every", "every one")
QUIET = Option(("--quiet",), "quiet", "show no progress")


def titled(what: str, tables: Mapping[str, str], *, are_several: bool) -> str:
    """Return the tables of pools, by their names, with a title for each if there are several pools."""
    return "\n\n".join(f"{what} of {name}:\n{text}" if are_several else text for name, text in tables.items())
