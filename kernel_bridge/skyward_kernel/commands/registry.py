"""Registry of the commands, from which `%sky`, the panel, the widget and the command palette are made."""

from collections.abc import Mapping
from typing import Final

from skyward.frontends.commands import Command, Form, Outcome, command
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.kept import drop, kept
from skyward_kernel.commands.nodes import drain, logs
from skyward_kernel.commands.orphans import attach, reap
from skyward_kernel.commands.pools import config, decisions, down, pools, scale, status, up
from skyward_kernel.commands.tasks import cancel, show, tasks

__all__ = ["COMMANDS"]


@command("help", "show this help", forms=(Form((), "insert-help", "Insert %sky help", is_line=True),))
def _help(context: Context) -> Outcome:
    """Show subcommands and options."""
    return Outcome(table=context.in_notebook().help())


COMMANDS: Final[Mapping[str, Command]] = {
    each.name: each
    for each in (
        *(up, down, status, pools, decisions, scale, attach, reap, kept, drop, drain, logs, tasks, cancel, config),
        *(show, _help),
    )
}
"""All commands by name, in the order of the help."""
