"""Arguments and options that several commands have."""

from skyward.commands.command import POOL, Argument
from skyward.commands.option import Option

__all__ = ["ALL", "NAME", "QUIET"]

NAME = Argument("pool", POOL)
ALL = Option(("--all",), "every", "every one")
QUIET = Option(("--quiet",), "quiet", "show no progress")
