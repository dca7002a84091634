"""Results that stay on the nodes that made them, because other tasks take them and nobody here has asked for them.

Such a result comes home when it is asked for, and before its node is given back. At the end of the pool those that are
still wanted do, as far as there is time and room. Where its node is lost, its task runs
again once the result is wanted. So a result is left only where that gives the same as before: not where the arguments
are memory of the caller, who may have changed it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from skyward.control.act.tasks.remote_blobs import RemoteBlob, ResultLostError
from skyward.control.act.tasks.task import Arrived, TaskFuture, Work
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
"""Bytes from which a result is left on its node: a smaller one is here sooner than it could be asked for."""

_RECIPE = 64 * 1024 * 1024
"""Bytes of what its task takes that are kept here so that it can run again, at most."""

NOTICED_WITHIN = 2.0
"""Seconds within which a node that has died is known to be lost, unless its link is what broke."""

_AT_THE_END = 2 * 1024**3
_AT_THE_END_WITHIN = 10.0
"""Bytes of results that are brought here when the pool is closed, at most, and seconds that this may take."""


class RemoteResult:
    """The result of a task that was left on its node. Lives on the library's loop, but for `bring` and `coming`.

    Attributes:
        payload: the result, but for its large parts.
        node: where these are; None where they are on no node.
        home: the result with its large parts, where these had to be brought here for others.
        recipe: its task, to be run again.
        failure: why it cannot be had any more.
    """

    def __init__(self, owner: "RemoteResults", recipe: Work) -> None:
        self.payload = Payload(b"")
        self.node: Node | None = None
        self.home: Arrived | None = None
        self.recipe = recipe
        self.failure: BaseException | None = None
        self.restoring: asyncio.Task[None] | None = None
        self.restored = 0
        self._users = 1  # the future of its task
        self._owner = owner

    @property
    def is_there(self) -> bool:
        """Whether tasks can take it now."""
        return self.home is not None or (self.node is not None and self.node.is_up)

    @property
    def kept(self) -> tuple[()]:
        """Return nothing: one with handles of kept values is not left."""
        return ()

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys of its large parts."""
        return tuple(blob.key for blob in blobs_of([self.payload]))

    @property
    def blobs(self) -> "Mapping[bytes, memoryview | RemoteBlob]":
        """Its large parts by key: their bytes, or what stands for them."""
        if self.home is not None:
            return self.home.blobs
        return {blob.key: RemoteBlob(blob, self) for blob in blobs_of([self.payload])}

    def coming(self) -> Future[Arrived]:
        """A future of the result, brought here, in memory of the caller's own.

        It fails with what the task raised when it had to run again, or with why the result cannot be had any more.
        """
        return background.run(self._owner.bring(self))

    async def part(self, key: bytes, asker: "Node") -> memoryview:
        """The bytes of a large part, for a node that cannot get it from another."""
        if self.home is None:
            self.home = await self._owner.fetch(self)
            self._owner.went_through_here(self, asker)
        return self.home.blobs[key]

    @property
    def is_wanted(self) -> bool:
        """Whether its future is there, or a task that takes it has not ended."""
        return self._users > 0

    def use(self) -> None:
        """A task takes it, and has not ended."""
        self._users += 1

    def let_go(self) -> None:
        """Such a task has ended, or the future of its own task is gone."""
        self._users -= 1
        if not self._users:
            self._owner.forget(self)


class RemoteResults:
    """Those of one pool. Lives on the library's loop.

    Args:
        name: of the pool.
        retries: how often a task runs again whose result was lost.
        submit: runs tasks.
        holds: is told how many results a node has from now on.
        note: says something to the user.
        nodes: returns the nodes there are.
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
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._name = name
        self._retries = retries
        self._submit = submit
        self._holds = holds
        self._note = note
        self._nodes = nodes
        self._spawn = spawn
        self._there: WeakSet[RemoteResult] = WeakSet()
        self._leaving: WeakSet[Node] = WeakSet()
        self._is_closed = False
        self._said = False

    # On nodes.

    def leave(self, node: "Node", event: "Finished", work: Work) -> RemoteResult | None:
        """Leave what a task returned on its node; None where it is to come here."""
        if event.outcome != "value" or not self._may_stay(work, node, event.payload):
            return None
        result = work.restores
        if result is None:
            result = RemoteResult(self, _recipe(work))
            background.call_when_gone(work.future, result.let_go)
        result.payload = event.payload
        self._put(result, node)
        return result

    def _put(self, result: RemoteResult, node: "Node") -> None:
        """It is on this node from now on."""
        result.node = node
        node.pin(blobs_of([result.payload]))
        self._there.add(result)
        self._holds(node, len(self._on(node)))

    def _may_stay(self, work: Work, node: "Node", payload: Payload) -> bool:
        size = sum(blob.size for blob in blobs_of([payload]))
        if size < LEFT_FROM or not self._retries or not work.future.only_lent:
            return False
        if node in self._leaving or not node.may_pin(size):
            return False
        if work.stream is not None or work.feeders or work.call.blobs or work.code.outgoing.blobs:
            return False
        if work.kept or payload.kept:  # what it uses may have changed by the time it runs again
            return False
        return work.inputs is None or work.inputs.bytes_here <= _RECIPE

    def _on(self, node: "Node") -> list[RemoteResult]:
        return [result for result in self._there if result.node is node]

    def forget(self, result: RemoteResult) -> None:
        """Nobody wants it any more."""
        result.home = None
        self._take_away(result)
        for node in self._nodes():
            node.discard(result.keys)

    def _take_away(self, result: RemoteResult) -> None:
        """It is on no node from now on."""
        node, result.node = result.node, None
        self._there.discard(result)
        if node is not None and node.is_up:
            node.unpin(result.keys)
            node.discard(result.keys)
            self._holds(node, len(self._on(node)))

    def clear(self, node: "Node") -> None:
        """Bring what is on a node here: it is to be given back."""
        self._leaving.add(node)
        for result in self._on(node):
            self._spawn(self._bring_home(result))

    async def _bring_home(self, result: RemoteResult) -> None:
        with contextlib.suppress(Exception):  # then it is lost with its node, and its task can run again
            result.home = result.home or await self.fetch(result)
        self._take_away(result)

    async def close(self, *, bring: bool) -> None:
        """The nodes go: with `bring`, get what is still wanted, the smallest first, as far as time and room go."""
        self._is_closed = True
        lost: list[RemoteResult] = []
        if bring:
            await self._leave_nodes(lost)
        for result in tuple(self._there):
            result.node = None
        self._there.clear()
        if names := dict.fromkeys(f"{result.recipe.code.name}()" for result in lost):
            self._note(
                f"What {joined(names)} returned, {size_text(sum(map(_size, lost)))} in all, could not be brought here "
                f"before the nodes were given back ({size_text(_AT_THE_END)} and {_AT_THE_END_WITHIN:g} s at most): it "
                "is lost. Call .result() before the pool is closed."
            )

    async def _leave_nodes(self, lost: list[RemoteResult]) -> None:
        wanted = sorted((each for each in self._there if each.is_wanted and each.home is None), key=_size)
        ends = asyncio.get_running_loop().time() + _AT_THE_END_WITHIN
        room = _AT_THE_END
        for result in wanted:
            room -= _size(result)
            try:
                async with asyncio.timeout_at(ends if room >= 0 else 0.0):
                    result.home = await self.fetch(result)
            except Exception:  # it was lost with its node, or takes too long
                lost.append(result)

    # Here.

    async def bring(self, result: RemoteResult) -> Arrived:
        """The result, in memory of its own.

        Raises:
            Exception: see `RemoteResult.coming`.
        """
        while True:
            await self.restore(result)
            if result.home is not None:
                copies = {key: memoryview(bytearray(view)) for key, view in result.home.blobs.items()}
                return Arrived(result.home.payload, copies)
            with contextlib.suppress(ResultLostError):
                return await self.fetch(result)

    async def fetch(self, result: RemoteResult) -> Arrived:
        """The result, from its node.

        Raises:
            ResultLostError: it is there no more.
        """
        node, payload = result.node, result.payload
        try:
            if node is None or not node.is_up:
                raise ConnectionError("it is on no node")
            fetched = [(blob.key, asyncio.wrap_future(node.fetch(blob))) for blob in blobs_of([payload])]
            return Arrived(payload, {key: await coming for key, coming in fetched})
        except ConnectionError:
            if node is not None and node.is_up:
                await node.lost_within(NOTICED_WITHIN)
            if result.node is node:
                self._take_away(result)
            raise ResultLostError(result) from None

    def went_through_here(self, result: RemoteResult, asker: "Node") -> None:
        """The nodes could not give it to each other."""
        if not self._said:
            self._said = True
            is_ours = any(node is asker for node in self._nodes())
            why = "since the nodes cannot reach each other" if is_ours else "since that is one of another pool"
            self._note(f"What {result.recipe.code.name}() returned goes to another node through this machine, {why}.")

    # Again.

    async def restore(self, result: RemoteResult) -> None:
        """Have a result where tasks can take it. Where it was lost, its task runs again.

        Raises:
            Exception: what that raised, or why it cannot be had any more.
        """
        if result.failure is None and not result.is_there and not self._find(result):
            if result.restoring is None or result.restoring.done():
                result.restoring = asyncio.get_running_loop().create_task(self._run_again(result))
            await asyncio.shield(result.restoring)
        if result.failure is not None:
            raise result.failure

    def _find(self, result: RemoteResult) -> bool:
        """Whether another node has it that has taken it before."""
        self._take_away(result)
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
        future.lend()
        self._submit([again])
        await future.over()
        if future.cancelled():
            result.failure = TaskCancelledError(f"{name} was cancelled as it ran again, since its result was lost.")
        elif (error := Future.exception(future)) is not None:
            result.failure = error
        elif isinstance(arrived := Future.result(future), Arrived):
            result.payload, result.home = arrived.payload, arrived
        if not result.is_wanted:
            self.forget(result)


def _size(result: RemoteResult) -> int:
    return sum(blob.size for blob in blobs_of([result.payload]))


def _recipe(work: Work) -> Work:
    """A task that does the same, and has a future of its own: that of `work` is to be forgotten with its last user."""
    future: TaskFuture[Any] = TaskFuture()
    future.name = work.future.name
    recipe = Work(work.code, work.call, future, work.sink, work.timeout, needs=work.needs, retries=work.retries)
    recipe.origin, recipe.inputs, recipe.grace, recipe.target = work.origin, work.inputs, work.grace, work.target
    return recipe
