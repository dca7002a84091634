"""Commands `skyward` and `sky`, which are the same program."""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from skyward.cli.terminal.answers import say, speak_as, speaker
from skyward.cli.terminal.help_pages import help_of, help_of_program
from skyward.commands.command import Command
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward.errors import SkywardError, SpecError, TaskTimeoutError, UsageError

__all__ = ["HANDLERS", "help_of_command", "main"]

HANDLERS: Final[Mapping[str, str]] = {
    "run": "skyward.cli.scripts.run:run",
    "exec": "skyward.cli.scripts.execute:execute",
    "up": "skyward.cli.pools.up:up",
    "down": "skyward.cli.pools.down:down",
    "status": "skyward.cli.pools.status:status",
    "logs": "skyward.cli.pools.logs:logs",
    "ssh": "skyward.cli.pools.ssh:ssh",
    "reap": "skyward.cli.pools.reap:reap_pools",
    "config": "skyward.cli.pools.config:config",
    "offers": "skyward.cli.offers:print_offers",
    "providers": "skyward.cli.installed:providers",
    "plugins": "skyward.cli.installed:plugins",
    "costs": "skyward.cli.clouds:print_costs",
    "doctor": "skyward.cli.clouds:print_findings",
    "image build": "skyward.cli.images:build",
    "image list": "skyward.cli.images:list_images",
    "image delete": "skyward.cli.images:delete",
    "volume ls": "skyward.cli.volumes:list_objects",
    "volume put": "skyward.cli.volumes:put",
    "volume get": "skyward.cli.volumes:get",
    "volume rm": "skyward.cli.volumes:remove",
    "completion": "skyward.cli.terminal.completing:completion",
    "simulate": "skyward.cli.simulation:simulate",
}
"""Module and name of the function that runs each command, which is loaded when it runs."""

_NAMES = frozenset({"sky", "skyward"})
_USAGE, _TIMED_OUT, _INTERRUPTED = 2, 124, 130

COMPLETE = "__complete"
"""Command that the completion of a shell runs."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    called = Path(sys.argv[0]).name
    program = called if called in _NAMES else "skyward"
    speak_as(program)
    _open_missing_streams()
    try:
        if words[:1] == [COMPLETE]:
            completed: int = _handler("skyward.cli.terminal.completing:complete")(words[1:])
            return completed
        status = _run(program, words)
        sys.stdout.flush()
        return status
    except SkywardError as error:  # some are an OSError, too
        say(str(error))
        return _TIMED_OUT if isinstance(error, TaskTimeoutError) else _USAGE if isinstance(error, SpecError) else 1
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        return _leave_output(error)
    except KeyboardInterrupt:
        say("interrupted")
        return _INTERRUPTED


def _run(program: str, words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        about = words[1:] if words[:1] == ["help"] else []
        name, _ = _named(program, about) if about else ("", [])
        _write(help_of_program(program, OF_COMMAND_LINE) if not name else help_of_command(program, name))
        return 0
    from skyward.pool.health.names import conflict, pilot_note, version

    if words[0] in ("-V", "--version"):
        _write(version())
        return 0
    try:
        name, rest = _named(program, words)
        command = OF_COMMAND_LINE[name]
        speak_as(f"{program} {name.partition(' ')[0]}")
        given, passed_on = _split(rest, command)
        if not {"-h", "--help"}.isdisjoint(given):
            _write(help_of_command(program, name))
            return 0
        if warning := conflict() or (pilot_note() if program == "sky" else ""):
            say(warning)
        from skyward.commands.words import parse

        values = dict(parse(command, given, program))
        if command.rest:
            values["rest"] = passed_on
    except UsageError as error:
        say(str(error).removeprefix(f"{speaker()} "))
        return _USAGE
    status: int = _handler(HANDLERS[name])(**values)
    return status


def _named(program: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of the command that words begin with, which may be two words, and the words after it.

    Raises:
        SpecError: there is no such command.
    """
    for count in (2, 1):
        if (name := " ".join(words[:count])) in OF_COMMAND_LINE:
            return name, list(words[count:])
    first = words[0]
    actions = [name for name in OF_COMMAND_LINE if name.startswith(f"{first} ")]
    if actions and {"-h", "--help"}.isdisjoint(words):
        wanted = " or ".join(f"`{program} {name}`" for name in actions)
        raise SpecError(f"{first} takes an action: {wanted}.")
    if actions:
        return actions[0], list(words[1:])
    if first.startswith("-"):
        raise SpecError(f"{first} comes after a command; `{program} --help` lists the commands.")
    from difflib import get_close_matches

    close = get_close_matches(first, OF_COMMAND_LINE, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"`{program} --help` lists the commands."
    raise SpecError(f"there is no command {first!r}; {hint}")


def _split(words: list[str], command: Command) -> tuple[list[str], list[str]]:
    """Return the words of the command itself, and those after `--`, which it passes on."""
    if not command.rest or "--" not in words:
        return words, []
    place = words.index("--")
    return words[:place], words[place + 1 :]


def _handler(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    handler: Callable[..., Any] = getattr(import_module(module), name)
    return handler


def help_of_command(program: str, name: str) -> str:
    """Return the text of `--help` of a command."""
    if name != "simulate":
        return help_of(program, OF_COMMAND_LINE[name])
    fill = _handler("skyward.cli.simulation:with_defaults")
    return help_of(program, OF_COMMAND_LINE[name], fill)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _open_missing_streams() -> None:
    """Open the null device in place of a standard stream that was closed, as by `>&-`."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def _leave_output(error: OSError) -> int:
    """Drop what cannot be written, to standard output unless the error names another file; return the exit status.

    A reader that has closed the pipe, such as `head`, has read enough: the status is that of SIGPIPE in a shell.
    """
    import signal

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at its end
    if error.errno == errno.EPIPE:
        return 128 + signal.SIGPIPE
    say(f"{error.filename or 'standard output'} cannot be written: {error.strerror}; free some space, and try again.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
