"""Results that stay on the nodes that made them, because other tasks take them and the client has not requested them.

Such a result is fetched on request, and before its node is terminated. When the pool closes, results that are still in
use are fetched, within limits of time and size. If its node is lost, its task runs again once the result is needed. A
result is therefore left only if a second run gives the same: not if the arguments are memory of the caller, who may
have changed it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from skyward.control.act.tasks.future import EncodedResult, TaskFuture, is_only_lent, lend, wait_done
from skyward.control.act.tasks.remote_blobs import RemoteBlob, ResultLostError
from skyward.control.act.tasks.task import Work
from skyward.errors import NodeLostError, PoolClosedError, TaskCancelledError
from skyward.formatting import joined, size_text
from skyward.process import background
from skyward.wire.payloads.payload import blobs_of
from skyward.wire.protocol.messages import Payload

if TYPE_CHECKING:
    from skyward.control.act.nodes.node import Node  # circular: a result stays on its node, and a node sends results on
    from skyward.wire.protocol.messages import Finished

__all__ = ["LEFT_FROM", "NOTICED_WITHIN", "RemoteResult", "RemoteResults"]

LEFT_FROM = 1024 * 1024
"""Minimum size in bytes of a result that is left on its node: a smaller one is fetched faster than requested."""

_RECIPE = 64 * 1024 * 1024
"""Maximum size in bytes of a task's inputs that the client keeps to run the task again."""

NOTICED_WITHIN = 2.0
"""Seconds within which the loss of a dead node is noticed, unless only its connection was lost."""

_AT_THE_END = 2 * 1024**3
_AT_THE_END_WITHIN = 10.0
"""Limits of fetching results when the pool closes: total size in bytes, and time in seconds."""


class RemoteResult:
    """A result that was left on its node. Runs on the library's loop, except for `fetch_result`.

    Attributes:
        payload: the result without its blobs.
        node: the node that has the blobs; None if no node has them.
        home: the result with its blobs, if these were fetched for other nodes.
        recipe: its task, to run again.
        failure: the error if the result cannot be restored.
        restoring: the run that restores the result, if there is one.
        restored: number of times that its task ran again.
    """

    def __init__(self, owner: "RemoteResults", recipe: Work) -> None:
        self.payload = Payload(b"")
        self.node: Node | None = None
        self.home: EncodedResult | None = None
        self.recipe = recipe
        self.failure: BaseException | None = None
        self.restoring: asyncio.Task[None] | None = None
        self.restored = 0
        self._users = 1  # the future of its task
        self._owner = owner

    @property
    def is_available(self) -> bool:
        """True if tasks can take the result now."""
        return self.home is not None or (self.node is not None and self.node.is_up)

    @property
    def kept(self) -> tuple[()]:
        """Empty: a result with handles of kept values is never left on its node."""
        return ()

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Keys of its blobs."""
        return tuple(blob.key for blob in blobs_of([self.payload]))

    @property
    def blobs(self) -> "Mapping[bytes, memoryview | RemoteBlob]":
        """Its blobs by key: their bytes, or references."""
        if self.home is not None:
            return self.home.blobs
        return {blob.key: RemoteBlob(blob, self) for blob in blobs_of([self.payload])}

    def fetch_result(self) -> Future[EncodedResult]:
        """Return a future of the result in the client's memory, as a copy of the caller's own.

        It fails with the exception of the task's second run, or the reason why the result cannot be restored.
        """
        return background.run(self._owner.bring(self))

    async def part(self, key: bytes, asker: "Node") -> memoryview:
        """Return the bytes of a blob, for the node `asker` that cannot get it from a peer."""
        if self.home is None:
            self.home = await self._owner.fetch(self)
            self._owner.note_relay(self, asker)
        return self.home.blobs[key]

    @property
    def is_wanted(self) -> bool:
        """True while its future is referenced, or a task that takes it is unfinished."""
        return self._users > 0

    def use(self) -> None:
        """Add a user: an unfinished task that takes the result."""
        self._users += 1

    def release(self) -> None:
        """Remove a user: such a task has ended, or the future of the result was dropped."""
        self._users -= 1
        if not self._users:
            self._owner.forget(self)


class RemoteResults:
    """Remote results of one pool. Runs on the library's loop.

    Args:
        name: name of the pool.
        retries: maximum number of runs of a task to restore its lost result.
        submit: submits tasks.
        holds: called with the number of results on a node when it changes.
        note: shows a notice to the user.
        nodes: returns the nodes of the pool.
        spawn: runs a coroutine for as long as the pool is open.
    """

    def __init__(
        self,
        name: str,
        retries: int,
        submit: Callable[[Sequence[Work]], None],
        holds: "Callable[[Node, int], None]",
        note: Callable[[str], None],
        nodes: "Callable[[], Iterable[Node]]",
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._name = name
        self._retries = retries
        self._submit = submit
        self._holds = holds
        self._note = note
        self._nodes = nodes
        self._spawn = spawn
        self._stored: WeakSet[RemoteResult] = WeakSet()
        self._leaving: WeakSet[Node] = WeakSet()
        self._is_closed = False
        self._warned = False

    # On nodes.

    def leave(self, node: "Node", event: "Finished", work: Work) -> RemoteResult | None:
        """Leave a task's result on its node; None if the result must be fetched."""
        if event.outcome != "value" or not self._may_stay(work, node, event.payload):
            return None
        result = work.restores
        if result is None:
            result = RemoteResult(self, _recipe(work))
            background.call_when_gone(work.future, result.release)
        result.payload = event.payload
        self._put(result, node)
        return result

    def _put(self, result: RemoteResult, node: "Node") -> None:
        """Record that a result is stored on this node."""
        result.node = node
        node.pin(blobs_of([result.payload]))
        self._stored.add(result)
        self._holds(node, len(self._on(node)))

    def _may_stay(self, work: Work, node: "Node", payload: Payload) -> bool:
        size = sum(blob.size for blob in blobs_of([payload]))
        if size < LEFT_FROM or not self._retries or not is_only_lent(work.future):
            return False
        if node in self._leaving or not node.can_pin(size):
            return False
        if work.is_in_gang or work.stream is not None or work.feeders or work.call.blobs or work.code.outgoing.blobs:
            return False
        if work.kept or payload.kept:  # kept values may have changed by the time the task runs again
            return False
        return work.inputs is None or work.inputs.bytes_here <= _RECIPE

    def _on(self, node: "Node") -> list[RemoteResult]:
        return [result for result in self._stored if result.node is node]

    def forget(self, result: RemoteResult) -> None:
        """Drop a result that has no users any more."""
        result.home = None
        self._remove(result)
        for node in self._nodes():
            node.discard(result.keys)

    def _remove(self, result: RemoteResult) -> None:
        """Record that a result is on no node, and unpin it."""
        node, result.node = result.node, None
        self._stored.discard(result)
        if node is not None and node.is_up:
            node.unpin(result.keys)
            node.discard(result.keys)
            self._holds(node, len(self._on(node)))

    def clear(self, node: "Node") -> None:
        """Fetch all results of a node that is to be terminated."""
        self._leaving.add(node)
        for result in self._on(node):
            self._spawn(self._fetch_and_remove(result))

    async def _fetch_and_remove(self, result: RemoteResult) -> None:
        with contextlib.suppress(Exception):  # the result is lost with its node, and its task can run again
            result.home = result.home or await self.fetch(result)
        self._remove(result)

    async def close(self, *, bring: bool) -> None:
        """Release all nodes; with `bring`, first fetch the results in use, the smallest first, within the limits."""
        self._is_closed = True
        lost: list[RemoteResult] = []
        if bring:
            await self._fetch_wanted(lost)
        for result in tuple(self._stored):
            result.node = None
        self._stored.clear()
        if names := dict.fromkeys(f"{result.recipe.code.name}()" for result in lost):
            self._note(
                f"The results of {joined(names)}, {size_text(sum(map(_size, lost)))} in all, could not be fetched "
                f"before the nodes were terminated (limits: {size_text(_AT_THE_END)} and {_AT_THE_END_WITHIN:g} s) and "
                "are lost. Call .result() before the pool is closed."
            )

    async def _fetch_wanted(self, lost: list[RemoteResult]) -> None:
        wanted = sorted((each for each in self._stored if each.is_wanted and each.home is None), key=_size)
        ends = asyncio.get_running_loop().time() + _AT_THE_END_WITHIN
        room = _AT_THE_END
        for result in wanted:
            room -= _size(result)
            try:
                async with asyncio.timeout_at(ends if room >= 0 else 0.0):
                    result.home = await self.fetch(result)
            except Exception:  # the node is lost, or a limit was reached
                lost.append(result)

    # On the client.

    async def bring(self, result: RemoteResult) -> EncodedResult:
        """Return the result in memory of its own; runs its task again if needed.

        Raises:
            Exception: see `RemoteResult.fetch_result`.
        """
        while True:
            await self.restore(result)
            if result.home is not None:
                copies = {key: memoryview(bytearray(view)) for key, view in result.home.blobs.items()}
                return EncodedResult(result.home.payload, copies)
            with contextlib.suppress(ResultLostError):
                return await self.fetch(result)

    async def fetch(self, result: RemoteResult) -> EncodedResult:
        """Fetch a result from its node.

        Raises:
            ResultLostError: the result is on no node any more.
        """
        node, payload = result.node, result.payload
        try:
            if node is None or not node.is_up:
                raise ConnectionError("it is on no node")
            fetched = [(blob.key, asyncio.wrap_future(node.fetch(blob))) for blob in blobs_of([payload])]
            return EncodedResult(payload, {key: await coming for key, coming in fetched})
        except ConnectionError:
            if node is not None and node.is_up:
                await node.lost_within(NOTICED_WITHIN)
            if result.node is node:
                self._remove(result)
            raise ResultLostError(result) from None

    def note_relay(self, result: RemoteResult, asker: "Node") -> None:
        """Note once that a result was relayed by the client, because the nodes could not transfer it directly."""
        if not self._warned:
            self._warned = True
            is_ours = any(node is asker for node in self._nodes())
            why = "the nodes cannot reach each other" if is_ours else "that node belongs to another pool"
            self._note(
                f"The result of {result.recipe.code.name}() is sent to another node through this machine: {why}."
            )

    # Restoring.

    async def restore(self, result: RemoteResult) -> None:
        """Make a result available to tasks. If it was lost, run its task again.

        Raises:
            Exception: the exception of that run, or the reason why the result cannot be restored.
        """
        if result.failure is None and not result.is_available and not self._find(result):
            if result.restoring is None or result.restoring.done():
                result.restoring = asyncio.get_running_loop().create_task(self._run_again(result))
            await asyncio.shield(result.restoring)
        if result.failure is not None:
            raise result.failure

    def _find(self, result: RemoteResult) -> bool:
        """Return whether another node has a copy, from a task that took the result; use that copy."""
        self._remove(result)
        for node in self._nodes():
            if node.is_up and result.keys and node.has_all(result.keys):
                self._put(result, node)
                return True
        return False

    async def _run_again(self, result: RemoteResult) -> None:
        recipe, name = result.recipe, f"{result.recipe.code.name}()"
        if self._is_closed:
            result.failure = PoolClosedError(
                f"The result of {name} was left on its node for the tasks that take it, and pool {self._name!r} is "
                "closed. Call .result() before the pool is closed."
            )
            return
        result.restored += 1
        if result.restored > self._retries:
            result.failure = NodeLostError(f"The result of {name} was lost with its node, {result.restored} times.")
            return
        self._note(f"The result of {name} was lost with its node; running it again.")
        again = _recipe(recipe)
        again.restores = result
        again.inputs = None if recipe.inputs is None else recipe.inputs.again()
        future = again.future
        lend(future)
        self._submit([again])
        await wait_done(future)
        if future.cancelled():
            result.failure = TaskCancelledError(f"{name} was cancelled as it ran again, since its result was lost.")
        elif (error := Future.exception(future)) is not None:
            result.failure = error
        elif isinstance(arrived := Future.result(future), EncodedResult):
            result.payload, result.home = arrived.payload, arrived
        if not result.is_wanted:
            self.forget(result)


def _size(result: RemoteResult) -> int:
    return sum(blob.size for blob in blobs_of([result.payload]))


def _recipe(work: Work) -> Work:
    """Return a copy of a task, with its own future: the future of `work` must be dropped with its last user."""
    future: TaskFuture[Any] = TaskFuture()
    future.name = work.future.name
    recipe = Work(work.code, work.call, future, work.sink, work.timeout, needs=work.needs, retries=work.retries)
    recipe.origin, recipe.inputs, recipe.grace, recipe.target = work.origin, work.inputs, work.grace, work.target
    return recipe
