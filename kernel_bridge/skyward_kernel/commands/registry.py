"""Registry of the commands, from which `%sky`, the panel, the widget and the command palette are made."""

from collections.abc import Mapping
from typing import Final

from skyward.errors import UsageError
from skyward.frontends.commands import DECLARED, Command, Outcome, handler_of, help_of_command
from skyward.frontends.configuration import closest
from skyward_kernel.commands.clouds import costs, doctor
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.kept import drop, kept
from skyward_kernel.commands.nodes import drain, logs
from skyward_kernel.commands.offers import offers
from skyward_kernel.commands.orphans import attach, reap
from skyward_kernel.commands.pools import config, decisions, down, pools, scale, status, up, update
from skyward_kernel.commands.tasks import cancel, show, tasks

__all__ = ["COMMANDS"]


@handler_of(DECLARED["help"])
def _help(context: Context, *, about: str | None = None) -> Outcome:
    """Show subcommands and options, or those of one command."""
    if about is None:
        return Outcome(table=context.in_notebook().help())
    if about not in COMMANDS:
        raise UsageError(f"%sky has no subcommand {about!r}; {closest(about, COMMANDS)}")
    return Outcome(table=help_of_command(COMMANDS[about]))


COMMANDS: Final[Mapping[str, Command]] = {
    each.name: each
    for each in (
        *(up, down, status, pools, offers, decisions, scale, update, attach, reap),
        *(kept, drop, drain, logs, tasks, cancel, costs, doctor, config, show, _help),
    )
}
"""All commands by name, in the order of the help."""
