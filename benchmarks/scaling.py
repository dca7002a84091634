"""`python -m benchmarks.scaling`: cost of each scaling policy, and waits of tasks, in simulated pools.

Each case is a kind of pool, a length of tasks, a boot time and a workload. A policy is compared with two others: one
that knows every task beforehand and lets no task wait longer than the policy's own p99 wait (`skyward.simulator.bound`
says what it assumes), and the cheapest policy that is as fast, with a p99 wait of at most 1.02 times its own plus one
second. The time is virtual; the figures do not depend on the machine.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from statistics import fmean

from skyward.cli.simulation_report import duration
from skyward.errors import SpecError
from skyward.scaling.registry import POLICIES, find_policy
from skyward.scaling.snapshot import Group
from skyward.simulator import WORKLOADS, Distribution, Faults, Result, Scenario, Workload
from skyward.simulator.bound import LowerBounds
from skyward.simulator.compare import RunProgress, compare

__all__ = ["CASES", "Case", "Line", "lines", "markdown"]

PRICE = 3.2
"""USD per hour of a node with one slot. A node of eight or sixteen slots costs as much per slot."""

SPOT_LOSS = 0.02
"""Interruptions of each node per hour."""

AIMS = {1: 1.10, 8: 1.15}
"""Highest ratio of the default's cost to the bound, by the slots of a node."""

WASTED_AIM = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """A case: everything but the policy and the seed.

    Attributes:
        pool: "1", "8" or "16" slots per node, or "groups": two places of one slot, the cheaper one for a quarter of the
            work, and nodes of eight slots at a higher price per slot.
        workload: name of the workload.
        task, boot: seconds of a mean task, and of each boot.
    """

    pool: str
    workload: str
    task: float
    boot: float

    @property
    def name(self) -> str:
        """Name for `--only`, such as "burst/8/300s/60s"."""
        return f"{self.workload}/{self.pool}/{self.task:g}s/{self.boot:g}s"

    def scenario(self, nodes: int, hours: float, policy: str, seed: int) -> Scenario:
        """Return a run of the case in a pool that holds `nodes` nodes of one slot.

        Tasks are so many that they would run on a tenth to all of the slots, but at most 200,000, as a day of tasks of
        10 ms is more than memory holds: then they arrive in a shorter time.
        """
        groups = _groups(self.pool, nodes)
        hours = min(hours, 200_000 * self.task / (0.5 * nodes * 3600))
        work = Workload(self.workload, nodes, hours, self.task)
        boot, faults = Distribution(self.boot), Faults(spot_loss=SPOT_LOSS)
        return Scenario(work, groups, policy, boot, seed, faults=faults)


def _groups(pool: str, nodes: int) -> tuple[Group, ...]:
    """Return the groups of a kind of pool."""
    if pool != "groups":
        slots = int(pool)
        return (Group("nodes", 0, ceil(nodes / slots), slots, hourly_price=PRICE * slots),)
    return (
        Group("cheap", 0, ceil(nodes / 4), 1, hourly_price=PRICE),
        Group("plain", 0, nodes, 1, hourly_price=1.1 * PRICE),
        Group("large", 0, ceil(nodes / 8), 8, hourly_price=1.2 * 8 * PRICE),
    )


def _cases() -> Iterator[Case]:
    """Yield the cases: all pools at the usual times, then other lengths of tasks, then other boots."""
    for workload in WORKLOADS:
        for pool in ("1", "8", "16", "groups"):
            yield Case(pool, workload, 300, 60)
        for task in (0.01, 1, 30, 3600):
            yield Case("1", workload, task, 60)
        for boot in (10, 400):
            yield Case("1", workload, 300, boot)


CASES = tuple(_cases())

QUICK = tuple(case for case in CASES if case.task == 300 and case.boot == 60)


@dataclass(frozen=True, slots=True)
class Line:
    """One policy in one case, on average over the seeds.

    Attributes:
        to_bound: its cost to that of a clairvoyant policy with the same p99 wait; None if it did not do all the work.
        wasted: share of its launches that it ended within two boots of their start; see `Result.short_lived`.
        thrash: launches within five minutes of a removal; see `Result.thrash`.
        undone: number of tasks without a result, over all seeds.
        ratio: its cost to that of the cheapest policy with an equal or better p99 wait.
        beside: the policy that `ratio` compares with.
    """

    case: Case
    policy: str
    cost: float
    to_bound: float | None
    wait_p50: float
    wait_p99: float
    idle: float
    launches: float
    wasted: float
    thrash: float
    undone: int
    ratio: float = 1.0
    beside: str = ""


@dataclass
class _Progress:
    """Line on a terminal: how many runs are left."""

    left: int
    shares: dict[int, float] = field(default_factory=dict)

    def __call__(self, progress: RunProgress) -> None:
        self.shares[progress.place] = progress.ended / max(1, progress.tasks)
        self.left -= progress.result is not None
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{self.left} runs to go" if self.left else "\r\x1b[K")
            sys.stderr.flush()


def lines(cases: Sequence[Case], policies: Sequence[str], nodes: int, hours: float, seeds: int) -> list[Line]:
    """Simulate every policy in every case."""
    runs = [(case, policy, seed) for case in cases for policy in policies for seed in range(seeds)]
    scenarios = [case.scenario(nodes, hours, policy, seed) for case, policy, seed in runs]
    results = compare(scenarios, _Progress(len(runs)))
    found: Mapping[Case, dict[str, list[Result]]] = {case: {policy: [] for policy in policies} for case in cases}
    for (case, policy, _), result in zip(runs, results, strict=True):
        found[case][policy].append(result)
    made: list[Line] = []
    for case, by_policy in found.items():
        bounds = [LowerBounds(case.scenario(nodes, hours, policies[0], seed)) for seed in range(seeds)]
        averages = [_average(case, policy, measured, bounds) for policy, measured in by_policy.items()]
        made += map(partial(_beside, others=averages), averages)
    return made


def _average(case: Case, policy: str, results: Sequence[Result], bounds: Sequence[LowerBounds]) -> Line:
    cost, undone = fmean(each.cost for each in results), sum(each.unfinished + each.failed for each in results)
    launches = sum(each.launches for each in results)
    return Line(
        case,
        policy,
        cost,
        None if undone else cost / fmean(b.at(r.wait_p99) for b, r in zip(bounds, results, strict=True)),
        fmean(each.wait_p50 for each in results),
        fmean(each.wait_p99 for each in results),
        fmean(each.over_provision for each in results),
        launches / len(results),
        sum(each.short_lived for each in results) / launches if launches else 0.0,
        fmean(each.thrash for each in results),
        undone,
    )


def _beside(line: Line, others: Sequence[Line]) -> Line:
    as_fast = [o for o in others if o.wait_p99 <= 1.02 * line.wait_p99 + 1 and o.undone <= line.undone]
    cheapest = min(as_fast, key=lambda other: other.cost)
    if cheapest.cost >= line.cost:
        cheapest = line
    return replace(line, ratio=line.cost / cheapest.cost, beside=cheapest.policy)


_HEAD = (
    "| workload | slots | task | boot | policy | cost | to the bound | to the cheapest as fast | wait p50 | wait p99 "
    "| idle | launches | wasted | thrash |"
)


def markdown(made: Sequence[Line]) -> str:
    """Return the lines as a table."""
    rows = [_HEAD, "|---|---|--:|--:|---|--:|--:|---|--:|--:|--:|--:|--:|--:|"]
    for line in made:
        case = line.case
        undone = f", {line.undone:,} tasks not done" if line.undone else ""
        cells = (
            case.workload,
            case.pool,
            f"{case.task:g} s",
            f"{case.boot:g} s",
            f"{line.policy}{undone}",
            f"${line.cost:,.2f}",
            "-" if line.to_bound is None else f"{line.to_bound:.2f}x",
            f"{line.ratio:.2f}x ({line.beside})" if line.beside != line.policy else "1.00x",
            duration(line.wait_p50),
            duration(line.wait_p99),
            f"{line.idle:.0%}",
            f"{line.launches:,.0f}",
            f"{line.wasted:.1%}",
            f"{line.thrash:,.0f}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def verdicts(made: Sequence[Line], default: str) -> Iterator[str]:
    """Yield a sentence for each aim that the cases of the default concern."""
    ours = [line for line in made if line.policy == default and line.case.task == 300 and line.case.boot == 60]
    for slots, aim in AIMS.items():
        ratios = [(line.to_bound, line) for line in ours if line.case.pool == str(slots) and line.to_bound is not None]
        if ratios:
            worst, line = max(ratios, key=lambda each: each[0])
            verdict = "met" if worst <= aim else "missed"
            count = "1 slot" if slots == 1 else f"{slots} slots"
            yield (
                f"{default} with {count}: at most {worst:.2f}x the bound at the same p99 wait ({line.case.workload}); "
                f"the aim of {aim:.2f}x is {verdict}."
            )
    if ours:
        line = max(ours, key=lambda each: each.wasted)
        verdict = "met" if line.wasted <= WASTED_AIM else "missed"
        yield (
            f"{default} ends at most {line.wasted:.1%} of its launches within two boots of their start "
            f"({line.case.name}); the aim of {WASTED_AIM:.0%} is {verdict}."
        )


def main(args: Sequence[str] | None = None) -> None:
    """Print the table, and whether the default policy meets its aims."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    only = "cases whose name, such as burst/8/300s/60s, contains this text; can be repeated"
    parser.add_argument("--only", action="append", metavar="TEXT", help=only)
    parser.add_argument("--policies", metavar="NAME,...", help="these policies (all)")
    parser.add_argument("--nodes", type=int, default=100, help="slots of the largest pool (100)")
    parser.add_argument("--hours", type=float, default=24.0, help="duration of the workload (24)")
    parser.add_argument("--seeds", type=int, default=2, help="runs per policy and case (2)")
    quick = "tasks of 300 s and boots of 60 s only; 20 nodes, 3 hours, one seed"
    parser.add_argument("--quick", action="store_true", help=quick)
    given = parser.parse_args(args)
    nodes, hours, seeds = (20, 3.0, 1) if given.quick else (given.nodes, given.hours, given.seeds)
    if nodes < 1 or seeds < 1 or not hours > 0:
        parser.error("--nodes, --hours and --seeds must be above 0")
    policies = given.policies.split(",") if given.policies else list(POLICIES)
    try:
        for policy in policies:
            find_policy(policy)
    except SpecError as error:
        parser.error(f"--policies: {error}")
    cases = [case for case in (QUICK if given.quick else CASES) if _is_chosen(case, given.only)]
    if not cases:
        parser.error(f"no case matches --only {' --only '.join(given.only)}; one is {CASES[0].name}")
    made = lines(cases, policies, nodes, hours, seeds)
    print(
        f"0 to {nodes} slots for ${PRICE}/h each, {SPOT_LOSS:g} losses of a node an hour, {hours:g} hours, "
        f"mean of {seeds} {'seed' if seeds == 1 else 'seeds'}.\n\n{markdown(made)}\n"
    )
    for sentence in verdicts(made, POLICIES[0]):
        print(sentence)


def _is_chosen(case: Case, only: Sequence[str] | None) -> bool:
    return not only or any(text in case.name for text in only)


if __name__ == "__main__":
    main()
