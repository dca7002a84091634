"""A task on the client: its code and arguments, and its output sink."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from skyward.control.act.tasks.future import EncodedResult, TaskFuture
from skyward.control.act.tasks.inputs import TaskInputs
from skyward.control.act.tasks.streams import Feeder, StreamBuffer
from skyward.control.observe.costs import FREE, SlotPrice
from skyward.control.observe.origin import CELL_FUNCTIONS, Origin
from skyward.formatting import first_line
from skyward.specs.placement import ALL, Several
from skyward.specs.retries import NO_RETRIES, Retries
from skyward.values.needs import NOTHING, Needs
from skyward.wire.failures.failure import message_of
from skyward.wire.payloads.code import PreparedCode
from skyward.wire.payloads.payload import Outgoing
from skyward.wire.protocol.messages import Payload

if TYPE_CHECKING:
    from skyward.control.act.tasks.remote_blobs import RemoteBlob
    from skyward.control.act.tasks.remote_results import RemoteResult  # circular: a result knows the task that made it
    from skyward.kept.handles import Kept

__all__ = ["BroadcastWork", "Sink", "Work"]


class Sink(Protocol):
    """Receiver of a task's output. Called on the library's loop, in order; must not block."""

    def output(self, node: int, stream: Literal["stdout", "stderr"], text: str) -> None:
        """Handle text that a node wrote to a standard stream."""

    def display(
        self, node: int, data: dict[str, Any], metadata: dict[str, Any], display_id: str | None, update: bool
    ) -> None:
        """Handle rich output of a node."""

    def task_ended(self, node: int) -> None:
        """Handle the end of a task on a node: an unfinished line stays unfinished."""


@dataclass(slots=True, eq=False)
class Work:
    """A task of a pool.

    Attributes:
        code, call: function and arguments, ready to send.
        future: future of its result.
        sink: receiver of its output.
        timeout: maximum run time in seconds; None for no limit.
        stream: for a generator function, the buffer of its elements.
        feeders: its input streams.
        needs: resources and capabilities that it requires of its node.
        retries: policy of retries after an exception.
        retried: number of times it was requeued.
        retried_after: reason of the latest retry.
        task: its number in the pool.
        nodes: ranks of the nodes it was sent to, in order.
        seconds: run time, once it has ended.
        running: True while a node has it.
        origin: the cell that sent it.
        queued_at, sent_at, ended_at: monotonic times of its creation, its latest dispatch, and its end.
        slot_price: hardware and price of the node it was last sent to.
        yielded: number of elements of its stream that have arrived.
        error: type name of the exception that it raised, or that its result carries.
        reason: first line of the text of that exception.
        group_limit: timeout of its group in seconds, if that expired first.
        is_overdue: True if it is stopped because another member of its gang has run past the timeout of both.
        stuck: reason why it can never start, once that is certain.
        grace: seconds to end by itself when it is stopped; see `wire.protocol.messages.Submit`.
        is_leaving: True if it was stopped, and the state it left is being packed or transferred.
        bytes_in_transfer: bytes of its result that are being transferred.
        left: the state it left when it was stopped.
        inputs: futures that it waits for before it can be sent.
        broken: error that it ends with, because an input failed or could not be fetched.
        unwanted: reason of its cancellation, because an input was cancelled.
        restores: the lost result that it computes again.
        is_member: True for a member of a broadcast; members share their inputs.
        target: rank of the node that it is pinned to; None for any.
        as_is: True if its blobs are memory of the caller, not a copy.
        follows_loss: True if it is a member of a collective, and failed because another one was lost or had failed.
        unsaved: the files of volumes that it has written and that could not be uploaded, as a sentence; "" for none.
        is_in_gang: True for a member of a gang. Its result is fetched at once: it cannot be computed again alone.
    """

    code: PreparedCode
    call: Outgoing
    future: TaskFuture[Any]
    sink: Sink
    timeout: float | None = None
    stream: StreamBuffer | None = None
    feeders: tuple[Feeder, ...] = ()
    needs: Needs = NOTHING
    retries: Retries = NO_RETRIES
    retried: int = 0
    retried_after: str = ""
    task: int = 0
    nodes: list[int] = field(default_factory=list)
    seconds: float | None = None
    running: bool = False
    origin: Origin | None = None
    queued_at: float = field(default_factory=time.monotonic)
    sent_at: float | None = None
    ended_at: float | None = None
    slot_price: SlotPrice = FREE
    yielded: int = 0
    error: str = ""
    reason: str = ""
    group_limit: float | None = None
    is_overdue: bool = False
    stuck: str = ""
    grace: float = 0.0
    is_leaving: bool = False
    bytes_in_transfer: int = 0
    left: EncodedResult | None = None
    inputs: TaskInputs | None = None
    broken: BaseException | None = None
    unwanted: str = ""
    restores: "RemoteResult | None" = None
    is_member: bool = False
    target: int | None = None
    as_is: bool = False
    follows_loss: bool = False
    unsaved: str = ""
    is_in_gang: bool = False

    @property
    def blobs(self) -> "Mapping[bytes, memoryview | RemoteBlob]":
        """Blobs that must be on a node before the task can run there."""
        code, call = self.code.outgoing.blobs, self.call.blobs
        if self.inputs is None:
            return {**code, **call} if code and call else code or call
        blobs: dict[bytes, memoryview | RemoteBlob] = {**code, **call}
        for value in self.inputs.arrived:
            blobs |= value.blobs
        return blobs

    @property
    def function(self) -> str:
        """The function by which run times are measured: its name, so that an edited function keeps its own.

        All cells are run by one function: each has a name of its own.
        """
        name, origin = self.code.name, self.origin
        if name in CELL_FUNCTIONS:
            return f"cell {self.task if origin is None else origin.cell or origin.label}"
        return name if name.isidentifier() else f"{name} {self.code.digest.hex()}"

    @property
    def values(self) -> tuple[Payload, ...]:
        """Results of other tasks that it takes."""
        return () if self.inputs is None else tuple(value.payload for value in self.inputs.arrived)

    @property
    def kept(self) -> "tuple[Kept[Any], ...]":
        """Handles of the kept values that it uses; it keeps them alive."""
        return (*self.code.outgoing.kept, *self.call.kept, *_kept_of(self.inputs))

    def break_with(self, error: BaseException) -> None:
        """Set the error that it ends with: it did not run."""
        self.broken, self.error, self.reason = error, type(error).__name__, first_line(message_of(error))


@dataclass(slots=True, eq=False)
class BroadcastWork:
    """A broadcast of the function `name`: creates the task of each member, and collects the results.

    Attributes:
        make: creates the task of a member, whose label in a stream it is given.
        future: its result; it gets an error directly if the broadcast cannot have members.
        collect: completes `future` from the members, once all have ended.
        members: its tasks, by the rank of their node and their place among those on it.
        inputs: futures that it waits for before it starts.
        where: the nodes that it is sent to.
        of_call: handles of the kept values in its call.
        number: its number in the pool.
        is_cancelled: True once its caller has cancelled it.
    """

    make: Callable[[int], Work]
    future: TaskFuture[list[Any]]
    collect: Callable[[dict[tuple[int, int], Work]], None]
    members: dict[tuple[int, int], Work]
    needs: Needs = NOTHING
    name: str = ""
    retries: Retries = NO_RETRIES
    inputs: TaskInputs | None = None
    where: Several = ALL
    of_call: "tuple[Kept[Any], ...]" = ()
    number: int = 0
    is_cancelled: bool = False

    @property
    def kept(self) -> "tuple[Kept[Any], ...]":
        """Handles of the kept values that it uses."""
        return (*self.of_call, *_kept_of(self.inputs))


def _kept_of(inputs: TaskInputs | None) -> "tuple[Kept[Any], ...]":
    return () if inputs is None else tuple(handle for value in inputs.arrived for handle in value.kept)
