"""Command `sky`."""

import argparse
import errno
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from skyward.cli.clouds import add_costs, add_doctor, run_costs, run_doctor
from skyward.cli.images import add_image, run_image
from skyward.cli.offers import add_offers, run_offers
from skyward.errors import SkywardError, SpecError
from skyward.formatting import duration_text

if TYPE_CHECKING:
    from skyward.simulator import Result, Scenario

__all__ = ["main"]

_EXAMPLE = "sky simulate --workload burst --nodes 0:100 --boot 60±20 --price 3.2 --spot-loss 0.02/h"


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
    simulate = commands.add_parser(
        "simulate",
        help="run scaling policies against a simulated cloud",
        description="Run the control plane of a pool under virtual time, against a simulated cloud, and compare all "
        "policies with the lower bound of the cost.",
        epilog=f"Example: {_EXAMPLE}",
    )
    work = simulate.add_mutually_exclusive_group()
    work.add_argument("--workload", metavar="NAME", help="burst, diurnal, sweep or phases (burst)")
    work.add_argument("--trace", metavar="FILE", type=Path, help="tasks from a CSV or JSON lines file")
    simulate.add_argument("--policy", metavar="NAME", help="the policy to list first (adaptive)")
    simulate.add_argument("--only", action="store_true", help="run just that policy")
    simulate.add_argument("--nodes", metavar="MIN:MAX", help="bounds of the pool (0:100)")
    simulate.add_argument("--slots", metavar="N", help="tasks that a node runs at once (1)")
    simulate.add_argument("--price", metavar="USD", help="price of a node per hour (1)")
    simulate.add_argument(
        "--group",
        action="append",
        metavar="NAME=MIN:MAX,...",
        help="a group of nodes instead of the three above, as in gpu=0:8,slots=2,price=12,GPU=4,can=fast; repeatable",
    )
    simulate.add_argument(
        "--boot",
        metavar="SECONDS",
        default="60±20",
        help="boot time of a node, such as 60 or 60±20, also 60+-20 (60±20)",
    )
    simulate.add_argument("--spot-loss", metavar="RATE", help="rate of spot interruptions, as in 0.02/h (0)")
    simulate.add_argument("--faults", metavar="NAME", default="calm", help="calm, rough or hostile (calm)")
    simulate.add_argument("--quota", metavar="N", help="maximum number of machines in the cloud")
    simulate.add_argument("--budget", metavar="USD", help="maximum total cost")
    simulate.add_argument("--hours", metavar="N", default="24", help="hours during which tasks arrive (24)")
    simulate.add_argument("--task-seconds", metavar="N", default="300", help="mean duration of a task (300)")
    simulate.add_argument("--peak", metavar="TASKS", help="maximum number of concurrent tasks (all slots)")
    simulate.add_argument("--cooldown", metavar="SECONDS", default="30", help="cooldown of the autoscaler (30)")
    simulate.add_argument("--idle-timeout", metavar="SECONDS", help="idle timeout of a node (the policy's own)")
    simulate.add_argument(
        "--target",
        metavar="TARGET",
        default="balanced",
        help="how long tasks may wait beyond a boot: cheap, balanced, fast or seconds (balanced)",
    )
    simulate.add_argument("--waiting-cost", metavar="USD", help="cost of an hour for which a task waits")
    simulate.add_argument("--seed", type=int, default=0, help="the same seed gives the same run (0)")
    simulate.add_argument("--check", action="store_true", help="check every invariant after every step; slow")
    simulate.add_argument("--plot", metavar="FILE", type=Path, help="write a PNG of demand, desired and current")
    simulate.add_argument("--json", action="store_true", help="print the figures as JSON instead of a table")
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


def _simulate(given: argparse.Namespace) -> int:
    from skyward.cli.simulation_report import report
    from skyward.scaling.registry import POLICIES
    from skyward.simulator.bound import lower_bound
    from skyward.simulator.compare import compare

    scenario = _scenario(given)
    names = [scenario.policy]
    if not given.only:
        names += [name for name in POLICIES if name != scenario.policy]
    progress = _Progress() if sys.stderr.isatty() else None
    results = compare([scenario.under(name) for name in names], progress)
    if progress is not None:
        progress.clear()
    bound = lower_bound(scenario)
    if given.plot is not None:
        from skyward.simulator.plot import plot

        plot(results, given.plot)
    if given.json:
        rows = [result.row() for result in results]
        bounds = {"no_wait": bound.no_wait, "any_wait": bound.any_wait, "wait_p99": bound.wait_p99}
        sys.stdout.write(json.dumps({"policies": rows, "lower_bound": bounds}, indent=1) + "\n")
    else:
        sys.stdout.write(report(results, bound) + "\n")
    return 0


def _scenario(given: argparse.Namespace) -> "Scenario":
    from skyward.cli.simulate import boot_time, group_of, node_bounds, positive, rate, slot_count, target_wait
    from skyward.scaling.registry import POLICIES, find_policy
    from skyward.simulator import Scenario, Workload, find_faults, one_group, read_trace

    policy = given.policy or POLICIES[0]
    find_policy(policy)
    if given.group:
        if single := [o for o in ("nodes", "slots", "price") if getattr(given, o) is not None]:
            raise SpecError(
                f"--{single[0]} cannot be combined with --group; give it inside the group, as {_EXAMPLES[single[0]]}."
            )
        groups = tuple(map(group_of, given.group))
        if len({group.name for group in groups}) < len(groups):
            raise SpecError("Two groups have the same name; give each --group another.")
    else:
        least, most = node_bounds(given.nodes or "0:100")
        price = positive(given.price or "1", "--price", zero=True)
        groups = one_group(least, most, slot_count(given.slots or "1"), price)
    faults = find_faults(given.faults)
    if given.spot_loss is not None:
        faults = replace(faults, spot_loss=rate(given.spot_loss))
    if given.quota is not None:
        faults = replace(faults, quota=slot_count(given.quota, "--quota"))
    slots = sum(group.max * group.slots for group in groups)
    peak = slots if given.peak is None else slot_count(given.peak, "--peak")
    hours = positive(given.hours, "--hours")
    seconds = positive(given.task_seconds, "--task-seconds")
    if given.trace is not None:
        work: Workload | tuple[object, ...] = tuple(read_trace(given.trace))
    else:
        work = Workload(given.workload or "burst", peak, hours, seconds)
    return Scenario(
        work=work,  # type: ignore[arg-type]  # the tuple is of tasks
        groups=groups,
        policy=policy,
        boot=boot_time(given.boot),
        seed=given.seed,
        budget=None if given.budget is None else positive(given.budget, "--budget"),
        faults=faults,
        cooldown=positive(given.cooldown, "--cooldown", zero=True),
        idle_timeout=None if given.idle_timeout is None else positive(given.idle_timeout, "--idle-timeout"),
        target_wait=target_wait(given.target),
        waiting_cost=None if given.waiting_cost is None else positive(given.waiting_cost, "--waiting-cost"),
        checked=given.check,
    )


_COMMANDS = {
    "costs": run_costs,
    "doctor": run_doctor,
    "image": run_image,
    "offers": run_offers,
    "reap": _reap,
    "simulate": _simulate,
}

_EXAMPLES = {
    "nodes": "`--group cpu=0:100`",
    "slots": "`--group cpu=0:100,slots=4`",
    "price": "`--group cpu=0:100,price=3.2`",
}


class _Progress:
    """Progress line on the terminal."""

    def __call__(self, result: "Result", left: int) -> None:
        done = f"{result.policy} took {duration_text(result.wall_seconds)}"
        sys.stderr.write(f"\r\x1b[K{done}; {left} to go" if left else f"\r\x1b[K{done}")
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
