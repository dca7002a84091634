"""Report on a replay of a decision log."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skyward.decision_log.lines import plain
from skyward.formatting import count_text, duration_text, joined
from skyward.simulator.replay import Difference, EvaluationOutcome, Replay
from skyward.views.drawing import table

__all__ = ["replay_report"]

SHOWN = 20
"""Maximum number of other decisions that are listed."""

LONGEST = 2000
"""Characters of an input that are shown."""

_INPUTS = "Its inputs are those of the recorded pool, which did not follow its decisions."


def replay_report(result: Replay, path: Path, policy: str | None, *, as_json: bool) -> str:
    """Return the report as text, or as JSON."""
    if as_json:
        return json.dumps(_figures(result, policy), indent=1)
    lines = list(result.notices)
    pools = count_text(result.pools, "pool")
    recorded = joined(map(repr, result.policies))
    if not result.evaluations:
        lines.append(f"Nothing was compared: '{path}' has no evaluation of a policy, only the settings of {pools}.")
    elif policy is not None:
        lines += _other(result, policy, recorded)
    elif result.differences:
        count = len(result.differences)
        lines.append(f"{count:,} of {result.evaluations:,} evaluations of {recorded} differ from the log. The first:")
        lines += _difference(result.differences[0], path)
    else:
        lines.append(
            f"The same decisions: {count_text(result.evaluations, 'evaluation')} of {recorded} in {pools}, of which "
            f"{result.changes:,} changed the number of nodes."
        )
    return "\n".join(lines)


def _other(result: Replay, policy: str, recorded: str) -> list[str]:
    """Return the decisions of a given policy at the inputs of the recorded one."""
    count = len(result.differences)
    differ = f"{count:,} of {result.evaluations:,} evaluations"
    match result.compared:
        case "same":
            head = (
                f"{policy!r} was compared with the log of a policy of the same name and parameters: the numbers of "
                f"nodes differ at {differ}. Without --policy, reasons and limits "
                "are compared too."
            )
        case "parameters":
            head = (
                f"{policy!r} was compared with the log of a policy of the same name, but with other parameters: the "
                f"numbers of nodes differ at {differ}. {_INPUTS}"
            )
        case "other":
            head = f"At {differ}, {policy!r} requests other nodes than {recorded} did. {_INPUTS}"
    if not count:
        return [head]
    columns = ("line", "after", "queued", "nodes", *("recorded", policy), "reason")
    rows = [_line(each) for each in result.differences[:SHOWN]]
    left = count - SHOWN
    return [head, table(columns, rows, right=columns[:4]), *([f"{left:,} more are not shown."] if left > 0 else [])]


def _line(each: Difference) -> tuple[str, ...]:
    snapshot = each.snapshot
    decision = each.now.decision if isinstance(each.now.decision, dict) else {}
    return (
        str(each.line),
        duration_text(each.since),
        str(snapshot.queued + sum(len(gang.needs) for gang in snapshot.gangs)),
        _nodes(snapshot.desired),
        _nodes(each.recorded.nodes(snapshot)),
        _nodes(each.now.nodes(snapshot)),
        str(decision.get("reason", each.now.error)),
    )


def _nodes(desired: dict[str, Any]) -> str:
    if len(desired) == 1:
        return str(next(iter(desired.values())))
    return ", ".join(f"{name} {count}" for name, count in desired.items())


def _difference(each: Difference, path: Path) -> Sequence[str]:
    given = json.dumps(plain(each.snapshot), ensure_ascii=False)
    if len(given) > LONGEST:
        given = f"{given[:LONGEST]}... (all of it is in line {each.line} of '{path}')"
    return [
        f"line {each.line}, {duration_text(each.since)} after the first evaluation of pool {each.pool!r}",
        f"  input:    {given}",
        f"  recorded: {_outcome(each.recorded)}",
        f"  now:      {_outcome(each.now)}",
    ]


def _outcome(outcome: EvaluationOutcome) -> str:
    if outcome.error:
        return f"error {outcome.error}"
    return json.dumps({"decision": outcome.decision, "verdict": outcome.verdict}, ensure_ascii=False)


def _figures(result: Replay, policy: str | None) -> dict[str, Any]:
    differences = [
        {
            "line": each.line,
            "pool": each.pool,
            "since": each.since,
            "input": plain(each.snapshot),
            "recorded": plain(each.recorded),
            "now": plain(each.now),
        }
        for each in result.differences
    ]
    return {
        "recorded_policies": list(result.policies),
        "policy": policy,
        "compared": result.compared,
        "pools": result.pools,
        "evaluations": result.evaluations,
        "changes": result.changes,
        "differences": differences,
        "notices": list(result.notices),
    }
