"""`sky.request_resources`: capacity that a pool keeps before any task needs it."""

import os
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from skyward.errors import NO_POOL, NoPoolError, OnNodeError, OperatorError, SpecError
from skyward.functions.target import current_pool, described, sky
from skyward.values.needs import Needs, Resources, resource_map
from skyward.values.validation import shown, whole

if TYPE_CHECKING:
    from skyward.functions.target import Destination
    from skyward.scaling.snapshot import Demand

__all__ = ["Bundle", "demands_of", "request_resources"]

type Bundle = Resources | tuple[Resources, int]
"""Amounts that one node must have, or such amounts with a count."""

_EXAMPLE = "`sky.request_resources({'GPU': 1}, ({'CPU': 4}, 10))`"


def request_resources(
    *wanted: Bundle, bundles: Iterable[Bundle] | None = None, pool: "Destination | None" = None
) -> None:
    """Request capacity for these bundles, used or not, until the next call. A call without bundles releases it.

    The pool scales up until its nodes, busy or not, have all of them, and does not scale down below; each bundle fits
    on one node. Returns at once.

    Args:
        wanted: bundles: the amounts of each, such as `{"GPU": 1}`; or `({"GPU": 1}, 4)` for four of them.
        bundles: the same as a list.
        pool: the pool; None for the one in scope.

    Raises:
        SpecError: a bundle is not valid.
        NoGroupFitsError: no node of the pool can have a bundle.
        NoPoolError: no pool is in scope.
        OnNodeError: called on a node.

    Example:
        >>> sky.request_resources(({"CPU": 1}, 2), pool=pool)  # two bundles of one CPU each
    """
    if (node := os.environ.get("SKYWARD_NODE")) is not None:
        raise OnNodeError(
            f"`sky.request_resources` was used inside node {node}: a node has no pool; call it on the client."
        )
    in_scope = pool is None or pool is sky or (isinstance(pool, ModuleType) and pool.__name__ == "skyward")
    target: Any = current_pool.get() if in_scope else pool
    if target is None:
        raise NoPoolError(f"{NO_POOL}, or name it: `sky.request_resources(..., pool=pool)`.")
    if isinstance(target, type) or not hasattr(target, "request_resources"):
        raise OperatorError(f"pool must be a pool, but got {described(target)}: write `pool=pool`.")
    target.request_resources(*wanted, bundles=bundles)


def demands_of(wanted: Iterable[Bundle], bundles: Iterable[Bundle] | None) -> "list[Demand]":
    """Return one demand for each shape, in order of first occurrence. Bundles are given in one of the two ways.

    Raises:
        SpecError: a bundle is not valid, or bundles are given in both ways.
    """
    from skyward.scaling.snapshot import Demand

    if bundles is not None:
        if wanted:
            raise SpecError("Bundles are given in two ways: put all of them in `bundles=[...]`.")
        if isinstance(bundles, (str, Mapping)) or not isinstance(bundles, Iterable):
            raise SpecError(f"bundles must be a list, as in `bundles=[{{'GPU': 1}}]`, but got {shown(bundles)}.")
        wanted = tuple(bundles)

    counts: dict[Needs, int] = {}
    for each in wanted:
        amounts, count = each if isinstance(each, tuple) and len(each) == 2 else (each, 1)
        if not isinstance(amounts, Mapping):
            raise SpecError(
                f"A bundle must be amounts by name, or (amounts, count), as in {_EXAMPLE}, but got {shown(each)}."
            )
        whole(count, f"the count of bundle {shown(dict(amounts))}", least=1)
        needs = Needs(resource_map(amounts, "bundle"))
        if not needs:
            raise SpecError(f"A bundle must have an amount above 0, as in {_EXAMPLE}, but got {shown(each)}.")
        counts[needs] = counts.get(needs, 0) + count
    return [Demand(count, needs) for needs, count in counts.items()]
