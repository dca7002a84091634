"""Command `sky`."""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from skyward.cli.clouds import add_costs, add_doctor, run_costs, run_doctor
from skyward.cli.images import add_image, run_image
from skyward.cli.offers import add_offers, run_offers
from skyward.cli.simulation import add_simulate, run_simulate
from skyward.errors import SkywardError, SpecError

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """Argument parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` shows every option.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    try:
        status = _COMMANDS[given.command](given)
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        return _leave_output(given.command, error)
    except SkywardError as error:
        sys.stderr.write(f"sky {given.command}: {error}\n")
        return 2 if isinstance(error, SpecError) else 1
    except KeyboardInterrupt:
        sys.stderr.write(f"sky {given.command}: interrupted\n")
        return 130


def _leave_output(command: str, error: OSError) -> int:
    """Drop what cannot be written to standard output, and return the exit status.

    A reader that has closed the pipe, such as `head`, has read enough: the status is that of SIGPIPE in a shell.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes it at its end
    if error.errno == errno.EPIPE:
        return 128 + signal.SIGPIPE
    sys.stderr.write(f"sky {command}: {error.strerror}; free some space, and try again\n")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sky", description="Skyward on the command line.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    reap = commands.add_parser(
        "reap",
        help="terminate the machines of pools whose process is gone",
        description="Terminate the machines of pools whose process was killed, and what carries the tag of this "
        "installation at providers with credentials. sky.attach(NAME) takes a pool over.",
    )
    reap.add_argument("names", metavar="NAME", nargs="*", help="only the pools of these names")
    reap.add_argument("--dry-run", action="store_true", help="only list them")
    reap.add_argument("--warm", action="store_true", help="terminate machines that closed pools keep warm, too")
    reap.add_argument(
        "--forget", action="store_true", help="drop pools that cannot be reaped, and never requested a machine"
    )
    add_offers(commands)
    add_doctor(commands)
    add_costs(commands)
    add_image(commands)
    add_simulate(commands)
    return parser


def _reap(given: argparse.Namespace) -> int:
    from skyward.pool.reaping.orphans import orphans, refused_names
    from skyward.pool.reaping.reap import describe_orphan, forget, reap
    from skyward.pool.reaping.sweep import describe_swept, sweep

    if given.forget and (given.dry_run or not given.names):
        raise SpecError("--forget needs the names of pools, and cannot be combined with --dry-run.")
    if given.dry_run:
        found = [each for each in orphans() if not given.names or {each.name, each.id} & {*given.names}]
        lines = list(map(describe_orphan, found))
        failed = False
    else:
        done = reap(given.names, warm=given.warm)
        found = [each.orphan for each in done]
        left = [each for each in done if each.error and not each.orphan.requested] if given.forget else []
        lines = [describe_orphan(each) for each in done if each not in left]
        lines += forget([each.orphan.id for each in left])
        if not given.names:
            lines += [f"{describe_orphan(each)}; `sky reap --warm` ends that" for each in orphans() if each.warm_until]
        failed = any(each.error for each in done if each not in left)
    refused = refused_names(given.names, found)
    if not given.names:
        swept = sweep(dry_run=given.dry_run)
        lines += describe_swept(swept, dry_run=given.dry_run)
        failed = failed or any(each.error for each in swept)
    if not lines and not refused:
        lines = ["No orphaned machines."]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stderr.write("".join(f"sky reap: {sentence}\n" for sentence in refused))
    return int(failed or bool(refused))


_COMMANDS = {
    "costs": run_costs,
    "doctor": run_doctor,
    "image": run_image,
    "offers": run_offers,
    "reap": _reap,
    "simulate": run_simulate,
}

if __name__ == "__main__":
    sys.exit(main())
