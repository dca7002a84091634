"""All commands, by name: those of notebooks, and those of the command line."""

from collections.abc import Mapping
from typing import Final

from skyward.commands.command import Command
from skyward.commands.table.account_commands import ACCOUNT_COMMANDS
from skyward.commands.table.pool_commands import POOL_COMMANDS
from skyward.commands.table.simulate_command import SIMULATE
from skyward.commands.table.volume_commands import VOLUME_COMMANDS

__all__ = ["DECLARED", "OF_COMMAND_LINE"]

_EVERY: Final = (*POOL_COMMANDS, *VOLUME_COMMANDS, *ACCOUNT_COMMANDS, SIMULATE)

DECLARED: Final[Mapping[str, Command]] = {each.name: each for each in _EVERY}
"""All commands as they are declared."""

OF_COMMAND_LINE: Final[Mapping[str, Command]] = {
    name: each.on_command_line()
    for name, each in DECLARED.items()
    if each.terminal is not None or not each.in_notebooks
}
"""The commands of the command line, in the order of its help."""
