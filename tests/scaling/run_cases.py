"""Run scaling cases: `python tests/scaling/run_cases.py FILE...`, files in the schema of `scaling_examples.json`.

Prints every failed case with the expected and the actual answer, and ends with `N passed, M failed`. Each function
under `ANSWERS` passes a case's input to the product, and returns the product's answer in the terms of the schema.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyward.control.decide.machines.instance import (
    INSTANCE,
    InstanceState,
    after_request_timeout,
    can_run,
    launch_now,
    observe,
)
from skyward.control.decide.machines.messages import Desired, Drain, Launch
from skyward.control.decide.machines.reconciler import Reconciler
from skyward.control.decide.machines.sources import MachineSource
from skyward.scaling.capability import CapabilityRule
from skyward.scaling.fixed_elastic import FixedElasticRule
from skyward.scaling.no import NoRule
from skyward.scaling.pressure import desired_nodes
from skyward.scaling.ray.packing import score
from skyward.scaling.ray.planner import Existing, Gang, NodeType, PlanRequest, plan
from skyward.scaling.scaler.commands import ClusterState, Rule, ShutDownGroup, StartGroup, Tasks, WorkerGroup
from skyward.scaling.vanilla import VanillaRule

type Json = Any
type Answer = dict[str, Json]

UNLIMITED = 1_000_000
"""Nodes of a type without a maximum."""

RULES: Mapping[str, Callable[[], Rule]] = {
    "no": NoRule,
    "vanilla": VanillaRule,
    "capability": CapabilityRule,
    "fixed_elastic": FixedElasticRule,
}


def _plan(given: Json) -> Answer:
    types = {
        name: NodeType(
            each.get("resources", {}),
            each.get("min", 0),
            UNLIMITED if each.get("max") is None else each["max"],
            each.get("idle_timeout_s"),
            each.get("launch_hash") or "",
        )
        for name, each in given["node_types"].items()
    }
    made = plan(
        PlanRequest(
            types,
            [
                _existing(node)
                for node in given.get("existing") or ()
                if _state(node) in INSTANCE and can_run(_state(node))
            ],
            _requests(given.get("demands")),
            [
                Gang(
                    tuple(b for b, count in _requests(gang["bundles"]) for _ in range(count)),
                    gang.get("placement", "none"),
                )
                for gang in given.get("gangs") or ()
            ],
            _requests(given.get("constraint")),
            given.get("max_nodes"),
            given.get("idle_timeout_s"),
            given.get("check_launch_hash", True),
        )
    )
    return {
        "launch": dict(made.launch),
        "terminate": [list(each) for each in made.terminate],
        "infeasible_demands": [dict(bundle) for bundle, count in made.infeasible for _ in range(count)],
        "infeasible_gangs": len(made.infeasible_gangs),
        "constraint_infeasible": made.floor_infeasible,
    }


def _state(node: Json) -> Any:
    return node.get("state", "RUNNING").removeprefix("RAY_")


def _may_run(node: Json) -> bool:
    return _state(node) in INSTANCE and can_run(_state(node))


def _gang(gang: Json) -> Gang:
    bundles = tuple(bundle for bundle, count in _requests(gang["bundles"]) for _ in range(count))
    return Gang(bundles, gang.get("placement", "none"))


def _existing(node: Json) -> Existing:
    running = _state(node) == "RUNNING"
    return Existing(
        node["id"],
        node["type"],
        running,
        node.get("kind") == "head",
        node.get("total"),
        node.get("available"),
        (node.get("idle_ms") or 0) / 1000 if running else 0.0,
        node.get("launch_hash") or "",
    )


def _requests(given: Json) -> list[tuple[dict[str, float], int]]:
    """Return bundles with their counts; a bundle may also be given without a count."""
    return [
        (each["bundle"], each.get("count", 1)) if isinstance(each.get("bundle"), dict) else (each, 1)
        for each in given or ()
    ]


def _score(given: Json) -> Answer:
    scored, unplaced = score(given["node"], given["requests"])
    return {"score": list(scored), "unplaced": unplaced}


def _gate(given: Json) -> Answer:
    queued, requested, running = (given.get(field) or {} for field in ("queued", "requested", "running"))
    launched = launch_now(queued, requested, running, given["upscaling_speed"], given["max_concurrent_launches"])
    return {"launch_now": launched}


def _stuck_request(given: Json) -> Answer:
    return {
        "next": after_request_timeout(given["now_s"], given["timeout_s"], given["max_retries"], given["requested_at_s"])
    }


def _observe(given: Json) -> Answer:
    return {"next": observe(_state(given), given["observed"])}


def _transitions(given: Json) -> Answer:
    del given
    return {state: sorted(moves) for state, moves in INSTANCE.items()}


def _scaler_commands(given: Json) -> Answer:
    rule = RULES[given["policy"]]()
    return {"commands_per_step": [[_command(each) for each in rule.commands(_view(step))] for step in given["steps"]]}


def _view(step: Json) -> ClusterState:
    return ClusterState(
        [Tasks(tasks.get("count", 1), tasks.get("capabilities") or {}) for tasks in step.get("tasks") or ()],
        [
            WorkerGroup(group["id"], tuple(group.get("queued_per_worker") or ()), group.get("capabilities") or {})
            for group in step.get("groups") or ()
        ],
        [
            worker.get("capabilities") or {}
            for worker in step.get("static_workers") or ()
            for _ in range(worker.get("count", 1))
        ],
        step.get("max_worker_groups", 0),
    )


def _command(command: StartGroup | ShutDownGroup) -> Json:
    match command:
        case StartGroup(capabilities=capabilities):
            return {"do": "start", "capabilities": dict(capabilities)}
        case ShutDownGroup(group=group):
            return {"do": "shutdown", "group": group}


def _seed_desired(given: Json) -> Answer:
    outcome = desired_nodes(
        queued=given.get("queued", 0),
        inflight=given.get("inflight", 0),
        capacity=given.get("capacity"),
        nodes=given["nodes"],
        desired=given["desired"],
        min=given["min"],
        max=given["max"],
        slots=given.get("slots_per_node", 1),
        idle_for=given.get("idle_for_s", 0),
        idle_timeout=given.get("idle_timeout_s", 60),
    )
    return {"desired": outcome.desired}


def _seed_reconcile(given: Json) -> Answer:
    current, pending, draining = (given.get(field) or () for field in ("current", "pending", "draining"))
    reconciler = Reconciler({"nodes": (MachineSource("cloud"),)})
    for rank in current:
        _add_machine(reconciler, rank, "ALLOCATED", "INSTALLING", "RUNNING")
    for rank in draining:
        if (machine := reconciler.table.machine_of(rank, "RUNNING")) is not None:
            reconciler.table.move(machine, "STOP_REQUESTED", 0.0)
    for rank in pending:
        _add_machine(reconciler, rank)
    effects = reconciler.handle(Desired({"nodes": given["desired"]}), 0.0)
    return {
        "provision": sum(len(effect.machines) for effect in effects if isinstance(effect, Launch)),
        "drain": [effect.rank for effect in effects if isinstance(effect, Drain)],
    }


def _add_machine(reconciler: Reconciler, rank: int, *moves: InstanceState) -> None:
    machine = reconciler.table.add("nodes", rank, 0.0, 0.0)
    for state in ("REQUESTED", *moves):
        reconciler.table.move(machine, state, 0.0)


ANSWERS: Mapping[str, Callable[[Json], Answer]] = {
    "plan": _plan,
    "score": _score,
    "gate": _gate,
    "stuck_request": _stuck_request,
    "observe": _observe,
    "transitions": _transitions,
    "scaler_commands": _scaler_commands,
    "seed_desired": _seed_desired,
    "seed_reconcile": _seed_reconcile,
}


# Comparison.


def _bundle(given: Json) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((name, round(float(amount), 6)) for name, amount in given.items()))


def _tie_group(given: Json) -> tuple[int, float]:
    return len(given), round(sum(given.values()), 6)


def _same_bundles(expected: Json, came: Json) -> bool:
    return Counter(map(_bundle, expected)) == Counter(map(_bundle, came))


def _same_or_tied_bundles(expected: Json, came: Json) -> bool:
    """Return whether the bundles agree; within a tie group any bundle may be left unplaced."""
    return _same_bundles(expected, came) or Counter(map(_tie_group, expected)) == Counter(map(_tie_group, came))


def _same_counts(expected: Json, came: Json) -> bool:
    return bool({name: count for name, count in expected.items() if count} == came)


def _same_multiset(expected: Json, came: Json) -> bool:
    return Counter(json.dumps(each) for each in expected) == Counter(json.dumps(each) for each in came)


def _same_numbers(expected: Json, came: Json) -> bool:
    return len(expected) == len(came) and all(
        abs(a - b) <= 1e-6 * max(1.0, abs(a)) for a, b in zip(expected, came, strict=True)
    )


def _same_steps(expected: Json, came: Json) -> bool:
    return len(expected) == len(came) and all(_same_commands(*step) for step in zip(expected, came, strict=True))


def _same_commands(expected: Json, came: Json) -> bool:
    """Return whether the commands agree as multisets, in the fields that a case states."""
    left = list(came)
    for command in expected:
        found = next((each for each in left if {**each, **command} == each), None)
        if found is None:
            return False
        left.remove(found)
    return not left


COMPARE: Mapping[str, Callable[[Json, Json], bool]] = {
    "launch": _same_counts,
    "launch_now": _same_counts,
    "terminate": _same_multiset,
    "infeasible_demands": _same_or_tied_bundles,
    "unplaced": _same_bundles,
    "score": _same_numbers,
    "commands_per_step": _same_steps,
    "drain": lambda expected, came: sorted(expected) == sorted(came),
}


def _holds(field: str, expected: Json, answer: Answer, kind: str) -> bool:
    if field not in answer:
        return False
    if kind == "transitions":
        return sorted(expected) == sorted(answer[field])
    return COMPARE.get(field, lambda a, b: bool(a == b))(expected, answer[field])


def _wanted(case: Json) -> Iterator[Mapping[str, Sequence[Json]]]:
    """Yield the expected answers: one of them must match, with one of the values of each field."""
    plain: Json = case.get("expect") or {}
    any_of = case.get("expect_any_of") or {}
    others = [case[key] for key in case if key.startswith("expect_") and key != "expect_any_of"]
    for expected in [plain, *({**plain, **other} for other in others)]:
        fields = {field: [value] for field, value in expected.items()}
        if isinstance(any_of, dict):
            yield {**fields, **any_of}
        else:
            for alternative in any_of:
                yield {**fields, **{field: [value] for field, value in alternative.items()}}


def problem(case: Json) -> str | None:
    """Return the difference between expected and actual answer; None if there is none."""
    kind = case.get("kind")
    if kind not in ANSWERS:
        return f"unknown kind {kind!r}"
    try:
        answer = ANSWERS[kind](case["input"])
    except Exception as error:  # one bad case must not hide the others
        return f"it raised {type(error).__name__}: {error}"
    wanted = list(_wanted(case))
    if kind == "transitions" and not any(set(answer) <= set(expected) for expected in wanted):
        return f"expected moves from {sorted(wanted[0])}\n    came     moves from {sorted(answer)}"
    if any(
        expected and all(any(_holds(f, v, answer, kind) for v in values) for f, values in expected.items())
        for expected in wanted
    ):
        return None
    differing = {
        field: values[0] if len(values) == 1 else {"any of": values}
        for field, values in wanted[0].items()
        if not any(_holds(field, value, answer, kind) for value in values)
    }
    came = {field: answer.get(field, "nothing") for field in differing}
    return f"expected {json.dumps(differing)}\n    came     {json.dumps(came)}"


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one case; `problem` is None if it passed."""

    id: str
    kind: str
    title: str
    problem: str | None


def run(path: Path) -> list[Result]:
    """Return the results of every case of a file."""
    loaded = json.loads(path.read_text())
    cases = loaded["cases"] if isinstance(loaded, dict) else loaded
    return [Result(case.get("id", "?"), case.get("kind", "?"), case.get("title", ""), problem(case)) for case in cases]


def main(arguments: Sequence[str]) -> int:
    """Run the cases of the files; return 0 if all passed."""
    if not arguments:
        print("usage: run_cases.py FILE...", file=sys.stderr)
        return 2
    results = [result for name in arguments for result in run(Path(name))]
    failed = [result for result in results if result.problem is not None]
    for result in failed:
        print(f"FAILED {result.id} ({result.kind}): {result.title}\n    {result.problem}")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
