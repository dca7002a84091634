"""Execution of the panel's queries, which change nothing: prices, terminals, output, startup logs."""

import asyncio
import shlex
from collections.abc import Mapping
from typing import Any, Final

from skyward.errors import UsageError
from skyward.frontends.configuration import ExecAccess, LocalAccess, SSHAccess
from skyward.frontends.views import KEPT, OutputRow
from skyward_kernel.commands.pool_options import read_pool_options
from skyward_kernel.panel.protocol import (
    AskOutput,
    AskPrice,
    AskShell,
    AskStartLog,
    OfferView,
    Price,
    Printed,
    Query,
    Reply,
    ShellReply,
    StartLog,
)
from skyward_kernel.pools import PoolManager, compute_fields

__all__ = ["QueryHandler"]

PATIENCE: Final = 60.0
"""Timeout for listing the offers of providers, seconds."""


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


def _price(id: str, name: str, asked: Mapping[str, Any]) -> Price:
    from skyward.frontends.calls import background
    from skyward.frontends.configuration import find_offers
    from skyward.frontends.pools import Compute

    pool = Compute(name=name, **compute_fields(asked))  # never opened: it only resolves the options
    offers: list[OfferView] = []
    fewest = most = 0
    least_cost = most_cost = 0.0
    for specs in pool.groups.values():
        asking = background.run(asyncio.wait_for(find_offers(specs, pool.options.selection), PATIENCE))
        try:
            found = asking.result().offered
        except TimeoutError:
            raise UsageError(f"The providers did not list their offers within {PATIENCE:.0f} s; try again.") from None
        offers += [OfferView(str(each.source), each.source.hourly_price) for each in found]
        nodes, each_costs = specs[0].nodes, found[0].source.hourly_price
        fewest, most = fewest + nodes.min, most + nodes.ceiling
        least_cost, most_cost = least_cost + nodes.min * each_costs, most_cost + nodes.ceiling * each_costs
    return Price(id, fewest, most, least_cost, most_cost, tuple(offers))
