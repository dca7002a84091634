"""Execution of the commands that front ends send, each answered with a sentence for the user."""

import logging
from collections.abc import Callable

from skyward.errors import SkywardError
from skyward.frontends.commands import read_arguments
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.panel.protocol import CommandReply, Reply, Request, RunCommand

__all__ = ["answer", "run_command"]

_logger = logging.getLogger(__name__)


def run_command(context: Context, request: RunCommand) -> CommandReply:
    """Run a command and return its answer.

    Raises:
        SkywardError: the command failed.
    """
    command = COMMANDS[request.command]
    outcome = command.run(context, read_arguments(command, request.arguments))
    return CommandReply(request.id, "refused" if outcome.failed else "done", outcome.text)


def answer(request: Request, reply: Callable[[], Reply]) -> Reply:
    """Return the reply to a request, or an answer with the reason why it failed."""
    try:
        return reply()
    except SkywardError as error:
        return CommandReply(request.id, "refused", str(error))
    except Exception as error:  # a bug: the user sees the message, the log has the traceback
        _logger.exception("the request %s failed", request.kind)
        return CommandReply(request.id, "refused", f"{type(error).__name__}: {error}")
