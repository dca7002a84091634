"""Random scenarios for the seed sweep: small pools, short times, and all faults."""

from dataclasses import replace
from random import Random

from skyward.control.decide.machines.requests import Limits
from skyward.scaling.registry import POLICIES
from skyward.scaling.snapshot import Group
from skyward.simulator.faults import Faults
from skyward.simulator.scenario import Action, Scenario
from skyward.simulator.workload import Distribution, Task
from skyward.values.gangs import GANG_PLACEMENTS
from skyward.values.needs import NOTHING, Needs

__all__ = ["MINUTE", "scenario_of", "stream_of"]

MINUTE = 60.0
GPU = Needs({"GPU": 1})
FAST = Needs({}, {"fast"})


def scenario_of(seed: int, minutes: float, *, most_groups: int = 3) -> Scenario:
    """Return the scenario of a seed; tasks arrive and faults happen for `minutes`.

    Args:
        seed: its seed.
        minutes: minutes of faults.
        most_groups: 2 for seeds that were found before scenarios had up to three groups.
    """
    random, clouds = Random(f"scenario {seed}"), Random(f"clouds {seed}")
    until = minutes * MINUTE
    groups = _groups(random)
    budget = None
    if random.random() < 0.2:
        budget = random.uniform(0.1, 3.0)
    policy = random.choice(POLICIES)
    scenario = Scenario(
        work=_tasks(random, groups, until),
        groups=groups,
        policy=policy,
        boot=Distribution(40, random.choice([0, 20, 40])),
        seed=seed,
        budget=budget,
        sources=clouds.choice([1, 1, 2, 3]),
        faults=_with_refusals(clouds, _faults(random, until)),
        cooldown=random.choice([0.0, 5.0, 30.0]),
        idle_timeout=random.choice([5.0, 30.0, 60.0]),
        retries=random.choice([0, 3, 1000]),
        grace=_grace(policy, groups),
        checked=True,
        limits=Limits(
            request=60,
            boot=180,
            drain=random.choice([60, 300]),
            terminate=60,
            upscaling_speed=random.choice([None, None, 1.0, 0.5]),
            concurrent_launches=random.choice([1, 10, 100]),
            rounds=clouds.choice([1, 3]),
        ),
        actions=_acts(random, Random(f"gangs {seed}"), groups, until),
    )
    if most_groups > 2:
        scenario = _with_third_group(Random(f"third group {seed}"), scenario)
    return _with_meetings_of_features(Random(f"meetings {seed}"), scenario, until)


def _with_third_group(random: Random, scenario: Scenario) -> Scenario:
    """Return the scenario, for one in two seeds of several groups with a third group, whose nodes all tasks may fit."""
    if len(scenario.groups) == 1 or random.random() < 0.5:
        return scenario
    third = Group(
        "large",
        random.choice([0, 0, 1]),
        random.choice([1, 2, 5]),
        random.choice([1, 4]),
        {"CPU": 16.0, "GPU": random.choice([0.0, 1.0, 4.0])},
        random.choice([frozenset(), frozenset({"fast"})]),
        random.choice([1.0, 5.0, 20.0]),
    )
    return replace(scenario, groups=(*scenario.groups, third))


def _with_meetings_of_features(random: Random, scenario: Scenario, until: float) -> Scenario:
    """Return the scenario, for one in two seeds with what few pools have: each meets every other feature now and then.

    These are a limit of all nodes, sources at other prices, groups that are sold out, machines of a former process, and
    budgets that change at any moment.
    """
    if random.random() < 0.5:
        return scenario
    least = sum(group.min for group in scenario.groups)
    funds = [
        Action(random.uniform(0, until), "budget", 0, random.choice([0, 1, 5, 20, 100, 300]))
        for _ in range(random.choice([0, 0, 1, 3]))
    ]
    return replace(
        scenario,
        max_nodes=random.choice([None, None, max(1, least), least + 1, least + 2]),
        markup=random.choice([1.0, 1.0, 1.5, 10.0]),
        existing=random.choice([0, 0, 0, 1, 3]),
        faults=replace(scenario.faults, sold_out=random.choice([0.0, 5.0, 20.0])),
        actions=(*scenario.actions, *funds),
        consolidate_within=random.choice([600.0, 60.0, 60.0, 0.0]),
    )


def _grace(policy: str, groups: tuple[Group, ...]) -> float:
    """Return enough time for every task to end; little under policies that may starve one."""
    blind = policy == "no" or (policy in ("vanilla", "fixed_elastic") and len(groups) > 1)
    return (10 if blind else 180) * MINUTE


def _groups(random: Random) -> tuple[Group, ...]:
    least = random.choice([0, 0, 1, 2, 3])
    most = least + random.choice([0, 1, 2, 5, 9])
    plain = Group("nodes", least, max(1, most), random.choice([1, 1, 2, 4]), {"CPU": 4.0}, hourly_price=3.2)
    if random.random() < 0.6:
        return (plain,)
    gpus = random.choice([1.0, 2.0])
    special = Group(
        "gpu", random.choice([0, 1]), random.choice([1, 3]), 2, {"CPU": 8.0, "GPU": gpus}, frozenset({"fast"})
    )
    special = replace(special, hourly_price=8.0, idle_timeout=random.choice([None, 20.0]))
    return plain, special


def _tasks(random: Random, groups: tuple[Group, ...], until: float) -> tuple[Task, ...]:
    mean = random.choice([2.0, 20.0, 90.0])
    tasks: list[Task] = []
    for _ in range(random.choice([1, 2, 4])):
        at = random.uniform(0, until)
        needs = random.choice([NOTHING, NOTHING, GPU, FAST, Needs({"CPU": 2})]) if len(groups) > 1 else NOTHING
        tasks += [Task(at, random.expovariate(1 / mean), needs) for _ in range(random.choice([1, 5, 20]))]
    for _ in range(random.choice([0, 5, 20])):
        tasks.append(Task(random.uniform(0, until), random.expovariate(1 / mean)))
    return tuple(sorted(tasks, key=lambda task: task.at))


def _faults(random: Random, until: float) -> Faults:
    def now_and_then(*values: float) -> float:
        return random.choice([0.0, 0.0, *values])

    return Faults(
        spot_loss=now_and_then(2.0, 20.0),
        storms=now_and_then(5.0, 20.0),
        silent=now_and_then(0.5, 1.0),
        detection=random.choice([5.0, 30.0]),
        partial=now_and_then(0.3, 0.8),
        shortages=now_and_then(10.0),
        shortage_seconds=random.choice([30.0, 200.0]),
        quota=random.choice([None, None, 2, 4]),
        api_errors=now_and_then(0.2, 0.6),
        phantoms=now_and_then(0.5),
        lost_replies=now_and_then(0.1, 0.3),
        duplicates=now_and_then(0.3),
        reordered=now_and_then(0.3),
        lost_terminates=now_and_then(0.2),
        slow_terminate=random.choice([2.0, 2.0, 30.0, 100.0]),
        boot_failures=now_and_then(0.1, 0.5),
        false_alarms=now_and_then(2.0, 10.0),
        until=until,
    )


def _with_refusals(random: Random, faults: Faults) -> Faults:
    """Return the faults with notices, and, for one in two seeds, with refusals for known reasons."""
    faults = replace(faults, noticed=random.choice([0.0, 0.5, 1.0]), notice=random.choice([5.0, 30.0, 120.0]))
    if random.random() < 0.5:
        return faults
    return replace(
        faults,
        explained=random.choice([0.0, 0.5, 1.0]),
        denials=random.choice([0.0, 0.0, 0.0, 3.0, 10.0]),
        impossible=random.choice([0.0, 0.0, 0.0, 0.3]),
        throttled=random.choice([0.0, 0.1, 0.4]),
    )


def _acts(random: Random, gangs: Random, groups: tuple[Group, ...], until: float) -> tuple[Action, ...]:
    actions: list[Action] = []
    for _ in range(random.choice([0, 0, 1, 3])):
        kind = random.choice(["resize", "resize", "cancel", "floor", "fund", "broadcast", "pin"])
        least = random.choice([0, 1, 3])
        most = {"resize": least + random.choice([1, 4]), "fund": random.choice([1, 5])}.get(kind, random.choice([1, 4]))
        actions.append(Action(random.uniform(0, until), kind, least, most))
    return (*actions, *_kept_values(random, until), *_collectives(random, until), *_gangs(gangs, groups, until))


def _gangs(random: Random, groups: tuple[Group, ...], until: float) -> tuple[Action, ...]:
    """Return gangs of all placements for one in two seeds, some of them close to one another, and of mixed shapes."""
    start = random.uniform(0, until)
    starts = [start + random.uniform(0, 60) for _ in range(random.choice([0, 0, 1, 4]))]
    mixed = len(groups) > 1
    return tuple(
        Action(
            at, "gang", random.choice([0, 1]) * mixed, random.choice([1, 2, 3, 4, 6, 9]), random.choice(GANG_PLACEMENTS)
        )
        for at in starts
    )


def _collectives(random: Random, until: float) -> tuple[Action, ...]:
    """Return collectives, some of them close to one another."""
    start = random.uniform(0, until)
    starts = [start + random.uniform(0, 60) for _ in range(random.choice([0, 0, 1, 3]))]
    return tuple(Action(at, "collective", random.choice([0, 1, 3])) for at in starts)


def _kept_values(random: Random, until: float) -> tuple[Action, ...]:
    """Return actions with kept values and drains, close to one another, on few nodes."""
    actions: list[Action] = []
    for _ in range(random.choice([0, 1, 3, 6])):
        start = random.uniform(0, until)
        for _ in range(random.choice([2, 4, 8])):
            kind = random.choice(["keep", "keep", "drain", "drain", "use", "drop", "pin", "resize"])
            least = random.choice([1, 1, 1, 2, 2, 3])
            most = {"resize": least + random.choice([0, 1, 3]), "pin": 1}.get(kind, random.choice([1, 3, 10]))
            actions.append(Action(start + random.uniform(0, 90), kind, least, most))
    return tuple(actions)


def stream_of(seed: int) -> Scenario:
    """Return a scenario for consolidation: an hour of tasks over groups of several prices, with the faults of a seed.

    The groups of `scenario_of` have too few tasks for it.
    """
    random = Random(f"stream {seed}")
    usual = scenario_of(seed, 60.0)
    names = ("a", "b", "c")[: random.choice([1, 2, 2, 3])]
    special = random.choice([NOTHING, NOTHING, GPU])
    prices = random.sample([0.3, 0.5, 1.1, 4.0, 6.0], 3)
    groups = tuple(
        Group(
            name,
            random.choice([0, 0, 0, 1]),
            random.choice([8, 30]),
            random.choice([1, 1, 4]),
            {"CPU": 4.0, "GPU": random.choice([1.0, 1.0, 0.0]) if special else 1.0},
            hourly_price=random.choice([price, price, price, 0.0]),
        )
        for name, price in zip(names, prices, strict=False)
    )
    seconds, at_once = random.choice([5.0, 30.0, 60.0]), random.choice([1.0, 4.0, 8.0])
    gap = max(2.0, seconds / at_once)
    work = [
        Task(10.0 + gap * place, random.uniform(0.5, 1.5) * seconds, random.choice([NOTHING] * 5 + [special]))
        for place in range(int(60 * MINUTE / gap))
    ]
    work += [Task(random.uniform(0, 60 * MINUTE), seconds)] * random.choice([0, 20, 60])
    of_cloud = [
        Action(0.0, "sold out", prices.index(min(prices[: len(groups)])), random.choice([300, 900])),
        Action(random.choice([20.0, 900.0]), "sold out at the first source", random.randrange(len(groups)), 600),
    ]
    of_user = [act for act in usual.actions if act.kind != "resize"]
    least = sum(group.min for group in groups)
    return replace(
        usual,
        work=tuple(sorted(work, key=lambda task: task.at)),
        groups=groups,
        policy="adaptive",
        faults=random.choice([Faults(explained=1.0), replace(usual.faults, denials=0.0, explained=1.0)]),
        sources=random.choice([1, 2]),
        markup=3.0,
        existing=0,
        idle_timeout=random.choice([None, None, None, 30.0]),
        grace=600 * MINUTE,
        max_nodes=random.choice([None, None, least + 8]),
        budget=random.choice([None, None, None, 2.0]),
        consolidate_within=random.choice([60.0, 300.0, 600.0]),
        actions=(*random.choice([[], of_user]), *of_cloud),
    )
