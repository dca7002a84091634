"""Warnings about libraries that a node has in another version than this process, when a payload first uses one."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from skyward.bootstrap import Mismatches, words_in
from skyward.control.act.nodes.node import Node
from skyward.control.act.tasks.task import Work
from skyward.process.background_tasks import BackgroundTasks
from skyward.providers.protocol import SSHAccess

__all__ = ["VersionDifferences"]

_LONGEST = 1024 * 1024
"""Maximum size in bytes of a pickle that is searched: a larger one would block the interpreter for up to a second."""

_logger = logging.getLogger(__name__)


class VersionDifferences:
    """Version differences of the nodes of one pool; warns once per library. Runs on the library's loop."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._of: dict[Node, asyncio.Task[tuple[Mismatches, Mapping[str, frozenset[str]]] | None]] = {}
        self._checks = BackgroundTasks()

    def look(self, node: Node, work: Work) -> None:
        """Check the function and arguments of a task whose function is new to the node."""
        known = self._of.get(node)
        if known is not None and known.done() and not known.cancelled() and known.result() is None:
            return  # no differences, the usual case
        parts = (work.code.outgoing.payload.data, work.call.payload.data)
        pickles = [part for part in parts if isinstance(part, bytes | bytearray) and len(part) <= _LONGEST]
        self._checks.spawn(self._look(node, pickles))

    async def _look(self, node: Node, pickles: Sequence[bytes | bytearray]) -> None:
        if node not in self._of:
            self._of[node] = asyncio.get_running_loop().create_task(_found(node))
        found = await asyncio.shield(self._of[node])
        if found is None:
            return
        mismatches, differing = found
        left = {name: tops for name, tops in differing.items() if name not in self._warned}
        for name in await asyncio.to_thread(_used, left, pickles) - self._warned:
            self._warned.add(name)
            for sentence in mismatches.of(left[name]):
                _logger.warning(sentence)

    def forget(self, node: Node) -> None:
        """Remove a node that is gone."""
        if (task := self._of.pop(node, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all checks."""
        for task in self._of.values():
            task.cancel()
        await self._checks.cancel()
        await asyncio.gather(*self._of.values(), return_exceptions=True)


async def _found(node: Node) -> tuple[Mismatches, Mapping[str, frozenset[str]]] | None:
    """Return the version differences of a node; None if there are none, or they are unknown."""
    facts, access = await node.facts(), node.instance.access
    if facts is None:
        return None
    where = access.target if isinstance(access, SSHAccess) else f"node {node.rank}"
    mismatches = Mismatches(facts, where)
    differing = await asyncio.to_thread(mismatches.differing)
    return (mismatches, differing) if differing else None


def _used(differing: Mapping[str, frozenset[str]], pickles: Sequence[bytes | bytearray]) -> set[str]:
    """Return the distributions whose modules the pickles name."""
    used: set[str] = set()
    for pickle in pickles:
        likely = {name: tops for name, tops in differing.items() if any(top.encode() in pickle for top in tops)}
        if likely:  # parsing takes a thousand times as long as the search
            words = words_in(pickle)
            used.update(name for name, tops in likely.items() if not tops.isdisjoint(words))
    return used
