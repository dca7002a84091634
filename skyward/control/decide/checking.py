"""Checks of what a policy returns: a policy may be the user's own, so any object may come.

A decision that is not exactly one is refused as a whole: a part of it may be as wrong as the part that shows it.
"""

import operator
from collections.abc import Collection, Mapping
from math import inf
from numbers import Real

from skyward.formatting import first_line, joined, raised_text
from skyward.scaling.snapshot import Decision, Snapshot
from skyward.values.needs import Needs
from skyward.values.validation import shown

__all__ = ["UnusableDecisionError", "checked", "failure_text"]

_LONGEST_REASON = 2000


class UnusableDecisionError(Exception):
    """A policy returned something that is not a decision about this pool; the text is one sentence for users."""


def checked(given: object, snapshot: Snapshot) -> Decision:
    """Return what a policy returned for `snapshot` as a decision of plain integers and text.

    Numbers are integers of any kind, such as those of numpy; `2.0` and `True` are not.

    Raises:
        UnusableDecisionError: it is not a decision about this pool.
    """
    if not isinstance(given, Decision):
        raise UnusableDecisionError(
            f"the policy returned {shown(given)}, but it must return a `sky.scaling.Decision`, as in "
            "`sky.scaling.Decision({'default': 2}, 'two are enough')`"
        )
    return Decision(
        _nodes(given.desired, "desired", snapshot),
        _reason(given.reason),
        _victims(given.victims, snapshot),
        _settled(given.settled),
        _infeasible(given.infeasible),
        look_in=_look_in(given.look_in),
        at_once=_nodes(given.at_once, "at_once", snapshot),
    )


def failure_text(error: BaseException) -> str:
    """Return why a policy gave no decision, for the decision log."""
    if isinstance(error, UnusableDecisionError):
        return _one_line(str(error))
    try:
        text = str(error)
    except Exception:  # of an exception class of the user
        text = ""
    return f"the policy raised {raised_text(type(error).__name__, first_line(text))}"


def _one_line(text: str) -> str:
    """Return text of a policy on one line, without controls."""
    line = " ".join(str.split(text))[:_LONGEST_REASON]
    return "".join(each if each.isprintable() else "?" for each in line)


def _nodes(given: object, field: str, snapshot: Snapshot) -> dict[str, int]:
    """Return numbers of nodes by group."""
    names = [group.name for group in snapshot.groups]
    if not isinstance(given, Mapping):
        raise UnusableDecisionError(
            f"the policy's `{field}` must be a number of nodes by group, as in `{{{names[0]!r}: 2}}`, but it is "
            f"{shown(given)}"
        )
    desired: dict[str, int] = {}
    for name, count in given.items():
        if not isinstance(name, str) or name not in names:
            known = f"group is {names[0]!r}" if len(names) == 1 else f"groups are {joined(map(repr, names))}"
            raise UnusableDecisionError(f"the policy wants nodes of {shown(name)}, but the pool's {known}")
        whole = _whole(count)
        if whole is None or whole < 0:
            raise UnusableDecisionError(
                f"the policy wants {shown(count)} nodes of {name!r}, but the number must be an integer of at least 0"
            )
        desired[name] = whole
    return desired


def _look_in(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, Real) and not isinstance(given, bool) and 0 <= float(given) < inf:
        return float(given)
    raise UnusableDecisionError(
        f"the policy's `look_in` must be a number of seconds, or None, but it is {shown(given)}"
    )


def _whole(given: object) -> int | None:
    """Return an integer of any kind as an `int`; None for anything else."""
    if isinstance(given, bool):
        return None
    try:
        return operator.index(given)  # type: ignore[arg-type]  # any object may come
    except TypeError:
        return None


def _reason(given: object) -> str:
    if not isinstance(given, str):
        raise UnusableDecisionError(f"the policy's `reason` must be text, but it is {shown(given)}")
    return _one_line(given)


def _victims(given: object, snapshot: Snapshot) -> tuple[int, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        raise UnusableDecisionError(
            f"the policy's `victims` must be ranks of nodes, as in `(3, 2)`, but they are {shown(given)}"
        )
    victims: list[int] = []
    ranks: set[int] | None = None
    for each in given:
        if ranks is None:
            ranks = {node.rank for node in snapshot.nodes}
        rank = _whole(each)
        if rank is None or rank not in ranks:
            there = joined(map(str, sorted(ranks)), most=10) or "none"
            raise UnusableDecisionError(
                f"the policy names {shown(each)} as a node to remove first, but the ranks of the nodes are {there}"
            )
        victims.append(rank)
    return tuple(dict.fromkeys(victims))


def _settled(given: object) -> bool:
    if given is True or given is False:
        return given
    if type(given).__name__ in ("bool", "bool_") and given in (True, False):  # of numpy
        return bool(given)
    raise UnusableDecisionError(f"the policy's `settled` must be True or False, but it is {shown(given)}")


def _infeasible(given: object) -> tuple[Needs, ...]:
    shapes = tuple(given) if isinstance(given, Collection) else None
    if shapes is None or not all(isinstance(each, Needs) for each in shapes):
        raise UnusableDecisionError(f"the policy's `infeasible` must be shapes of tasks, but it is {shown(given)}")
    return shapes
