"""Options of a pool that have no effect together with its other ones."""

from collections.abc import Iterable

from skyward.formatting import joined
from skyward.specs.nodes import Nodes
from skyward.specs.options import Options

__all__ = ["unused_options"]

_DEFAULTS = Options()

_OF_ADAPTIVE = "target_wait", "waiting_cost", "consolidate_within"


def unused_options(options: Options, nodes: Iterable[Nodes]) -> str:
    """Return a sentence on the options that only `adaptive` reads, if the pool does not scale or has another policy.

    They are allowed, since a fixed pool may be resized to one that scales. It is empty if there are none, and if the
    policy is the user's own, which may read them.

    Args:
        nodes: the numbers of nodes of the groups.
    """
    given = [name for name in _OF_ADAPTIVE if getattr(options, name) != getattr(_DEFAULTS, name)]
    if not given:
        return ""
    have = f"{joined(given)} {'has' if len(given) == 1 else 'have'} no effect"
    if not any(each.elastic for each in nodes):
        return (
            f"{have} while the number of nodes is fixed: give a minimum and a maximum, as in `nodes=(1, 4)` or "
            "`--nodes 1:4`, for a pool that scales."
        )
    from skyward.scaling.registry import POLICIES, find_policy

    policy = find_policy(options.policy).name
    if policy == _DEFAULTS.policy or policy not in POLICIES:
        return ""
    it = "it" if len(given) == 1 else "them"
    return f"{have} under policy {policy!r}: only {_DEFAULTS.policy!r} takes {it} into account."
