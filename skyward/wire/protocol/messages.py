"""Messages between a client and the worker of a node, typed once and used by both ends.

The client sends numbered `Commands` and keeps them until the worker acknowledges them. The worker keeps its numbered
events until the client acknowledges them: every `Exchange` acknowledges the events before it and polls for the next. So
a broken connection loses and duplicates nothing: each end resends what the other has not acknowledged, and drops what
it has seen.

Bulk data is not sent here: a buffer over `INLINE_LIMIT` is a `Blob`, sent on its own connection
(`wire.transport.bulk`).
"""

import pickle
from dataclasses import dataclass, field
from typing import Literal

from casty import Askable

from skyward.events.metrics import NodeMetrics
from skyward.kept.keep import KeptInfo
from skyward.wire.collections.lost import Loss
from skyward.wire.protocol.volumes import (
    AttachVolumes,
    RefreshVolumes,
    VolumesAttached,
    VolumesFlushed,
    VolumeStates,
    VolumesWritten,
)

__all__ = [
    "BATCH_BYTES",
    "CODES",
    "INLINE_LIMIT",
    "NO_PARTIAL_RESULT",
    "PACKING_TIMEOUT",
    "UNKNOWN_OFFSET",
    "AtMeeting",
    "Batch",
    "Blob",
    "Cancel",
    "Clustered",
    "Code",
    "CollectionsFilled",
    "CollectionsWritten",
    "Collective",
    "Commands",
    "CopiesReport",
    "Credit",
    "Display",
    "Drop",
    "Exchange",
    "Farewell",
    "Feed",
    "Fetch",
    "Fetched",
    "Finished",
    "ForgetValues",
    "GangMember",
    "Join",
    "KeptRef",
    "KnownTask",
    "LeaseSet",
    "Leave",
    "LossReported",
    "Losses",
    "Meet",
    "Metrics",
    "Need",
    "NodeCommand",
    "NodeReport",
    "Output",
    "PartialResultPending",
    "Paused",
    "Payload",
    "Peered",
    "Peering",
    "PluginPart",
    "Prepare",
    "Prepared",
    "ReclaimNotice",
    "SetLease",
    "Shutdown",
    "Started",
    "Submit",
    "Topology",
    "ValueKept",
    "WorkerClosing",
    "WorkerEvent",
    "Yielded",
]

INLINE_LIMIT = 64 * 1024
"""Bytes up to which a buffer is sent inside a message. A larger one is a blob."""

BATCH_BYTES = 1024 * 1024
"""Bytes after which a batch of commands or events is closed, so that later ones do not wait for more."""

CODES = 512
"""Functions that each end assumes the other, or a process of a slot, to have cached. Evicted ones are sent again."""

PACKING_TIMEOUT = 120.0
"""Seconds allowed for packing the state that a stopped task leaves."""

UNKNOWN_OFFSET = -1
"""The offset of output whose position in its stream is unknown."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A buffer kept outside the message. `key` is its content address, or a fresh random one for a result."""

    key: bytes
    size: int


@dataclass(frozen=True, slots=True)
class KeptRef:
    """A handle of kept values: their keys and their name."""

    keys: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Payload:
    """A pickled value: its pickle and its out-of-band buffers (pickle protocol 5), in order.

    `kept`: for a result, the handles of kept values that are part of it.
    """

    data: bytes | Blob
    buffers: tuple[bytes | Blob, ...] = ()
    kept: tuple[KeptRef, ...] = ()


NO_PARTIAL_RESULT = Payload(pickle.dumps(None, 5))
"""The state of a task that was stopped before it had any."""


@dataclass(frozen=True, slots=True)
class Code:
    """A function. Sent to a node once, before the first task that uses it."""

    digest: bytes
    payload: Payload
    name: str = ""


@dataclass(frozen=True, slots=True)
class Collective:
    """The place of a task in a broadcast whose members work together. Its position among all is its `Submit.share`.

    Attributes:
        local: its position among the members on its node, and their number.
        generation: name of the broadcast and its attempt, unique among pools.
        within: seconds that the members have to find each other.
    """

    local: tuple[int, int]
    generation: str
    within: float


@dataclass(frozen=True, slots=True)
class GangMember:
    """The place of a task in a gang. Its rank there, and the size of the gang, are its `Submit.share`.

    Attributes:
        nodes: the node of each member, by its rank in the gang.
        start: number of times that the gang has started, with this one.
    """

    nodes: tuple[int, ...]
    start: int = 1


@dataclass(frozen=True, slots=True)
class Submit:
    """Run a function once.

    Attributes:
        task: number of the task, unique in its pool.
        attempt: number of earlier attempts.
        code: digest of a `Code` sent earlier.
        call: pickled `(args, kwargs)`.
        stream: whether the function is a generator whose elements are sent back one by one.
        credit: elements of the stream that the worker may send before it gets more credit.
        inputs: number of arguments that are streams fed by the client.
        timeout: seconds of running after which the task is stopped.
        share: position and size that `sky.shard` uses in a broadcast or gang.
        label: the client's name for the task; kept for other clients that attach to the pool.
        values: results of other tasks that are part of its arguments, as those tasks returned them.
        grace: seconds to end by itself after a stop; 0 for a task that leaves no state then.
        collective: for a member of a broadcast that works together, its place there.
        gang: for a member of a gang, its place there.
    """

    task: int
    attempt: int
    code: bytes
    call: Payload
    stream: bool = False
    credit: int = 0
    inputs: int = 0
    timeout: float | None = None
    share: tuple[int, int] | None = None
    label: str = ""
    values: tuple[Payload, ...] = ()
    grace: float = 0.0
    collective: Collective | None = None
    gang: GangMember | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a task. With `recall`, only if it has not started; its outcome is then "returned"."""

    task: int
    recall: bool = False


@dataclass(frozen=True, slots=True)
class Credit:
    """Allow `count` more elements of the stream that `task` sends."""

    task: int
    count: int


@dataclass(frozen=True, slots=True)
class Feed:
    """Elements of input stream `index` of `task`. The last one marks the end, and may include the stream's error."""

    task: int
    index: int
    items: tuple[Payload, ...]
    last: bool = False
    failure: Payload | None = None


@dataclass(frozen=True, slots=True)
class Meet:
    """Begin the work of a member of a collective: all have arrived, and meet at `address`, `host:port`."""

    task: int
    address: str


@dataclass(frozen=True, slots=True)
class PluginPart:
    """The part of a plugin that runs on nodes.

    Attributes:
        name: of the plugin.
        path: of its class there, `"package.module:Class"`.
        settings: the arguments of the class, as JSON.
    """

    name: str
    path: str
    settings: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Prepare:
    """Start the slots, with these plugins around their tasks. Answered with `Prepared`; no task is sent before.

    Attributes:
        parts: the plugins, the outermost first.
        info: the result of `sky.instance_info()`, as JSON.
        fixed: names of variables that the user has set, which plugins leave alone.
    """

    parts: tuple[PluginPart, ...]
    info: str
    fixed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Drop these blobs, and the code of these digests. Tasks that use them keep them until they end."""

    keys: tuple[bytes, ...]
    codes: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgetValues:
    """Drop the kept values of these keys. Tasks that use them keep them until they end."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Set the result of `sky.instance_info()`, as JSON."""

    info: str


@dataclass(frozen=True, slots=True)
class Join:
    """Join the cluster of the pool.

    Attributes:
        name: of the cluster.
        host: address at which the other nodes reach this one.
        seeds: `host:port` of current members; empty for the first node.
        cert, key, ca: credentials of the node, as PEM.
        lost: collections that lost their content before, with no caller informed yet.
    """

    name: str
    host: str
    seeds: tuple[str, ...]
    cert: bytes
    key: bytes = field(repr=False)
    ca: bytes
    lost: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class Losses:
    """The collections that lost their content, with no caller informed yet; replaces the previous list."""

    lost: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class CollectionsWritten:
    """The client has written to these strong collections, identified by kind and name."""

    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the cluster, once the others have copies of what this node stores for it.

    Attributes:
        hand_over: False to leave at once; what only this node stores is lost.
    """

    hand_over: bool = True


@dataclass(frozen=True, slots=True)
class Peering:
    """Open a port at `host` for transfers of blobs to other nodes of the pool; the rest are credentials, as PEM."""

    host: str
    cert: bytes
    key: bytes = field(repr=False)
    ca: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch a blob from another node, instead of its previous source.

    Attributes:
        source: `host:port` of the other node's transfer port.
        attempt: number of the attempt; repeated in the answer.
        near: whether the other node is on the same machine, so that its memory can be shared.
    """

    blob: Blob
    source: str
    attempt: int
    near: bool = False


@dataclass(frozen=True, slots=True)
class SetLease:
    """Change the lease of the worker. Answered with `LeaseSet`, after all earlier events.

    Attributes:
        seconds: duration of the lease.
        finish_within: seconds that running tasks have to finish after the lease has expired.
    """

    seconds: float
    finish_within: float


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the worker process, after a `Farewell`. Running tasks are interrupted."""


type NodeCommand = (
    Code
    | Submit
    | Cancel
    | Credit
    | Feed
    | Drop
    | ForgetValues
    | Meet
    | Prepare
    | Topology
    | Join
    | Losses
    | CollectionsWritten
    | Leave
    | Peering
    | Fetch
    | AttachVolumes
    | RefreshVolumes
    | SetLease
    | Shutdown
)


@dataclass(frozen=True, slots=True)
class Started:
    """The task left the queue of the node and runs."""

    task: int


@dataclass(frozen=True, slots=True)
class Output:
    """Text written to a standard stream. Task 0: by the node itself, or by an unknown task.

    Attributes:
        offset: characters of this stream of the task that this worker sent before; `UNKNOWN_OFFSET` if unknown.
    """

    task: int
    stream: Literal["stdout", "stderr"]
    text: str
    offset: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class Display:
    """A rich display: pickled `(data, metadata, display_id, update)`."""

    task: int
    payload: Payload


@dataclass(frozen=True, slots=True)
class Yielded:
    """Elements of the stream that a task sends, in order."""

    task: int
    items: tuple[Payload, ...]


@dataclass(frozen=True, slots=True)
class Paused:
    """The stream that a task sends is paused: its next element waits for more credit.

    Attributes:
        credited: all the credit that the task got so far, including that of its `Submit`.
    """

    task: int
    credited: int


@dataclass(frozen=True, slots=True)
class Need:
    """The task accepts `count` more elements of its input stream `index`. Zero or less: it needs no more."""

    task: int
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class PartialResultPending:
    """The task was stopped, and its state is being packed, which may take a while."""

    task: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a task. `seconds` is how long it ran.

    Outcome "error" has a pickled `wire.failures.failure.Failure`, in `error` the name of the exception's type, and in
    `reason` the first line of its text; "timeout" and "cancelled" have the state that the task left, or nothing if that
    is lost; "returned" means that it had not started; "lost", that its process died. A "value" with an `error` is a
    result that includes the exception, such as a cell's: its caller gets the result, and the task counts as failed.
    `follows_loss`: it is a member of a collective, and raised because another member was lost or had failed.
    `unsaved`: names the files of volumes that it has written and that could not be uploaded, with the reason.
    """

    task: int
    outcome: Literal["value", "error", "timeout", "cancelled", "returned", "lost"]
    payload: Payload
    seconds: float
    error: str = ""
    reason: str = ""
    follows_loss: bool = False
    unsaved: str = ""


@dataclass(frozen=True, slots=True)
class AtMeeting:
    """The member of a collective is ready to meet the others. `address`: of the meeting, from its first member."""

    task: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The slots are ready for tasks; or `why` they are not, and whether that `is_final`, such as without a package."""

    why: str = ""
    is_final: bool = False
    task: int = 0


@dataclass(frozen=True, slots=True)
class LeaseSet:
    """The worker has changed its lease as it was told."""

    task: int = 0


@dataclass(frozen=True, slots=True)
class Clustered:
    """The node is in the cluster of the pool, at `address`; if that is "", it is not, and `why` is the reason."""

    address: str
    why: str = ""
    task: int = 0


@dataclass(frozen=True, slots=True)
class CollectionsFilled:
    """These strong collections have content, identified by kind and name."""

    names: tuple[tuple[str, str], ...]
    task: int = 0


@dataclass(frozen=True, slots=True)
class LossReported:
    """A task was informed that this collection lost its content."""

    kind: str
    name: str
    task: int = 0


@dataclass(frozen=True, slots=True)
class CopiesReport:
    """The members of the cluster as the node sees them.

    Attributes:
        node: identity of the node in the cluster; a new one each time it joins.
        members: identities of all that share the content, lost ones included until they are removed.
        complete: whether the node has copied all that it stores with these members.
    """

    node: str
    members: tuple[str, ...]
    complete: bool
    task: int = 0


@dataclass(frozen=True, slots=True)
class Peered:
    """The node serves blobs to others at `address`; if that is "", it cannot, and `why` is the reason."""

    address: str
    why: str = ""
    task: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """A `Fetch` has ended: the node has the blob, or `why` it has not. `reached`: whether its source answered."""

    key: bytes
    attempt: int
    why: str = ""
    reached: bool = True
    task: int = 0


@dataclass(frozen=True, slots=True)
class ValueKept:
    """The node has started to keep a value for later tasks. `task`: the task that it comes from."""

    value: KeptInfo
    task: int = 0


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task that a node has, or whose end it has not been able to report.

    Attributes:
        name: of its function.
        stream: whether its elements are sent one by one.
        fed: the inputs that the client still feeds.
        label: as it was sent.
    """

    task: int
    name: str
    stream: bool
    fed: tuple[int, ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Inventory of a node: its first event for a client that did not start it. `last`: the highest task number so far.

    `kept`: its kept values.
    """

    tasks: tuple[KnownTask, ...]
    blobs: tuple[Blob, ...]
    last: int
    kept: tuple[KeptInfo, ...] = ()
    task: int = 0


@dataclass(frozen=True, slots=True)
class Metrics:
    """Current resource usage of the node's machine."""

    now: NodeMetrics
    task: int = 0


@dataclass(frozen=True, slots=True)
class Farewell:
    """The last event of a node that is shutting down: all other events were sent before."""

    task: int = 0


@dataclass(frozen=True, slots=True)
class ReclaimNotice:
    """The provider will take the node's machine back in so many seconds."""

    seconds: float
    task: int = 0


@dataclass(frozen=True, slots=True)
class WorkerClosing:
    """The worker's process will end: a task did not stop, or can get no process. No more tasks start there."""

    task: int = 0


OfNode = (
    Clustered
    | CollectionsFilled
    | LossReported
    | CopiesReport
    | NodeReport
    | Peered
    | Fetched
    | Prepared
    | LeaseSet
    | Metrics
    | VolumesAttached
    | VolumeStates
    | VolumesWritten
    | VolumesFlushed
    | ReclaimNotice
    | WorkerClosing
    | Farewell
)
"""Events that belong to no task."""

type WorkerEvent = (
    Started
    | Output
    | Display
    | Yielded
    | Paused
    | Need
    | ValueKept
    | PartialResultPending
    | AtMeeting
    | Finished
    | OfNode
)


@dataclass(frozen=True)
class Commands:
    """Commands numbered `first`, `first + 1`, ... in order."""

    first: int
    items: tuple[NodeCommand, ...]


@dataclass(frozen=True)
class Batch:
    """Events numbered `first`, `first + 1`, ... and the number of commands received so far."""

    first: int
    events: tuple[WorkerEvent, ...]
    received: int


@dataclass(frozen=True)
class Exchange(Askable[Batch]):
    """Commands, if any, and a request for events, answered as soon as there are any.

    Attributes:
        acknowledged: number of the last event that has arrived; those up to it can be dropped.
        again: whether later events may have been lost and must be resent.
        first, items: as in `Commands`. `first` is 0 for a new client, which knows no numbers yet: it is answered with
            `NodeReport`.
        part: number of the further answer that a new client asks for, from 1 on; these have the events that a former
            client got and did not use, without numbers, and the one after the last has none.
    """

    acknowledged: int = 0
    again: bool = False
    first: int = 0
    items: tuple[NodeCommand, ...] = ()
    part: int = 0
