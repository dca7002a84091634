"""Execution of the panel's queries, which change nothing: prices, terminals, output, startup logs."""

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from skyward.errors import SkywardError, UsageError
from skyward.frontends.commands import read_pool_options
from skyward.frontends.configuration import ExecAccess, LocalAccess, SSHAccess
from skyward.frontends.views import KEPT, OutputRow
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.pools import check_new_name
from skyward_kernel.panel.protocol import (
    AskCheck,
    AskOutput,
    AskPrice,
    AskShell,
    AskStartLog,
    Checked,
    OfferView,
    Price,
    Printed,
    Query,
    Reply,
    ShellReply,
    StartLog,
)
from skyward_kernel.pools import PoolManager

if TYPE_CHECKING:
    from skyward.frontends.pools import Compute

__all__ = ["QueryHandler"]


class QueryHandler:
    """Handler of queries. Thread-safe.

    Args:
        pools: the pools of the kernel.
    """

    def __init__(self, pools: PoolManager) -> None:
        self._pools = pools

    def __call__(self, question: Query) -> Reply:
        """Answer a query.

        Raises:
            SkywardError: the query failed.
        """
        match question:
            case AskCheck(id, name, options):
                return Checked(id, self._wrong(name, options))
            case AskPrice(id, name, options):
                return _price(id, name, self._pools.plan(name, read_pool_options(options)))
            case AskShell(id, pool, node):
                return self._shell(id, pool, node)
            case AskOutput(id, pool, node, task):
                return self._printed(id, pool, node, task)
            case AskStartLog(id, pool, node):
                compute = self._pools.get(pool)
                waits = any(each.rank == node and each.state == "waiting" for each in compute.snapshot().nodes)
                return StartLog(id, compute.start_log(node), not waits)

    def _wrong(self, name: str, options: Mapping[str, str]) -> Mapping[str, str]:
        """Return what is wrong with a new pool: sentences by flag, `name`, or empty for options that conflict."""
        reasons = {"name": _refusal(lambda: check_new_name(Context(self._pools), name))}
        for flag, text in options.items():
            reasons[flag] = _refusal(partial(read_pool_options, {flag: text}))
        if not any(reasons.values()):
            reasons[""] = _refusal(lambda: _resolved(name, self._pools.plan(name, read_pool_options(options))))
        return {field: reason for field, reason in reasons.items() if reason}

    def _shell(self, id: str, pool: str, node: int) -> ShellReply:
        from skyward.frontends.pools import login

        nodes = self._pools.get(pool).snapshot().nodes
        match next((each.access for each in nodes if each.rank == node and each.state != "stopping"), None):
            case LocalAccess(directory=folder):
                return ShellReply(id, folder, "")
            case SSHAccess() as access:
                return ShellReply(id, "", shlex.join(login(access)))
            case ExecAccess(terminal=words) if words:
                return ShellReply(id, "", shlex.join(words))
            case _:
                raise UsageError(f"Node {node} of pool {pool!r} has no terminal access.")

    def _printed(self, id: str, pool: str, node: int | None, task: int | None) -> Printed:
        entries = self._pools.get(pool).logs(task, node, tail=KEPT["output"])
        rows = (
            OutputRow(pool, number, entry.node, entry.task, entry.stream, entry.text)
            for number, entry in enumerate(entries)
        )
        return Printed(id, tuple(rows))


def _refusal(check: Callable[[], object]) -> str:
    """Return the error of a check, or an empty text."""
    try:
        check()
    except SkywardError as error:
        return str(error)
    return ""


def _resolved(name: str, asked: Mapping[str, Any]) -> "Compute":
    """Return a pool that is never opened: it only resolves the options."""
    from skyward.frontends.pools import Compute, pool_fields

    return Compute(name=name, **pool_fields(asked))


def _price(id: str, name: str, asked: Mapping[str, Any]) -> Price:
    from skyward.frontends.pools import price_notes, quote

    pool = _resolved(name, asked)
    groups = quote(pool)
    offers = [
        OfferView(each.place, each.per_hour or 0.0, each.hardware, each.start)
        for group in groups
        for each in group.offers
    ]
    fewest, most = sum(group.nodes.min for group in groups), sum(group.nodes.ceiling for group in groups)
    least_cost = sum(group.nodes.min * (group.offers[0].per_hour or 0.0) for group in groups)
    most_cost = sum(group.nodes.ceiling * (group.offers[0].per_hour or 0.0) for group in groups)
    notes = [note for group in groups for note in group.notes]
    unknown = [each.place for group in groups for each in group.offers if each.per_hour is None]
    if unknown:
        notes.append(f"The price of {', '.join(unknown)} is not known, and is left out.")
    notes = [*dict.fromkeys((*notes, *price_notes(pool, groups)))]
    return Price(id, fewest, most, least_cost, most_cost, tuple(offers), tuple(notes))
