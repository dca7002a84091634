"""Arguments and options that several commands have."""

from skyward.frontends.commands import POOL, Argument, Option

__all__ = ["ALL", "NAME", "QUIET"]

NAME = Argument("pool", POOL)
ALL = Option(("--all",), "every", "every one")
QUIET = Option(("--quiet",), "quiet", "show no progress")
