"""Machines that cannot be reached, or whose worker has ended: their provider is asked whether they still exist.

A machine that its provider ended, such as a spot machine without notice, would otherwise count as unreachable until its
grace is over; and only the provider knows why it ended.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from skyward.control.act.nodes.node import Node
from skyward.providers import Instance

__all__ = ["reason_of_loss", "watch_outages"]

_EVERY = 2.0
"""Seconds between checks, so that a connection has this long to come back before its provider is asked."""

_MISSING = 2
"""Answers without a machine that prove it gone: a single one may be a mistake of a cloud's listing."""

_EXPLAINED_WITHIN = 4.0
_ASK_AGAIN = 1.1
"""Seconds that a provider has to tell why a machine was lost; seconds until it is asked again about one that it still
takes for running, although it cannot be reached. Listings may be a second old."""

_ENDED = "its provider ended the machine"

_logger = logging.getLogger(__name__)


async def watch_outages(nodes: Callable[[], Iterable[Node]], ask: Callable[[Node], Awaitable[Instance | None]]) -> None:
    """Ask for unreachable machines until cancelled; tell the nodes of those that ended."""
    missing: dict[Node, int] = {}
    before: set[Node] = set()
    while True:
        await asyncio.sleep(_EVERY)
        unreachable = {node for node in nodes() if node.phase == "ready" and node.unreachable}
        for node in unreachable & before:
            try:
                found = await ask(node)
            except Exception as error:  # a provider that does not answer says nothing about the machine
                _logger.info("%s: its state is unknown: %s", node.instance.id, error)
                continue
            if not node.unreachable:
                continue
            missing[node] = missing.get(node, 0) + 1 if found is None else 0
            if found is not None and found.status == "exited":
                node.ended(found.detail or _ENDED)
            elif missing[node] >= _MISSING:
                node.ended(_ENDED)
        missing = {node: count for node, count in missing.items() if node in unreachable}
        before = unreachable


async def reason_of_loss(node: Node, reason: str, ask: Callable[[Node], Awaitable[Instance | None]]) -> str:
    """Return why a node was lost: what its provider says if that ended the machine, else `reason`."""
    with contextlib.suppress(Exception):  # a provider that does not answer says nothing about the machine
        async with asyncio.timeout(_EXPLAINED_WITHIN):
            found = await ask(node)
            if (found is None or found.status != "exited") and node.unreachable:
                await asyncio.sleep(_ASK_AGAIN)
                again = await ask(node)
                if found is None and again is None:
                    return _ENDED
                found = again
            if found is not None and found.status == "exited" and found.detail:
                _logger.info("%s: %s; lost with: %s", node.instance.id, found.detail, reason)
                return found.detail
    return reason
