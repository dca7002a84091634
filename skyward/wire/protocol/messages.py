"""What crosses between a client and the worker of a node, typed once and used by both ends.

The client sends `Commands`, each numbered, and keeps them until the worker says it has them. The worker keeps its
events, each numbered, until the client says it has them: every `Exchange` acknowledges what came before it and waits
for what comes next. So a broken connection loses nothing and doubles nothing: each end sends again what the other has
not acknowledged, and drops what it has seen.

Bulk data does not travel here: a buffer over `INLINE_LIMIT` is a `Blob`, moved on its own connection (`wire.bulk`).
"""

import pickle
from dataclasses import dataclass, field
from typing import Literal

from casty import Askable

from skyward.events.metrics import NodeMetrics
from skyward.kept.keep import KeptInfo
from skyward.wire.collections.lost import Loss

__all__ = [
    "BATCH_BYTES",
    "CODES",
    "INLINE_LIMIT",
    "NOTHING_LEFT",
    "NOWHERE",
    "PACKING",
    "Batch",
    "Blob",
    "Cancel",
    "Clustered",
    "Code",
    "Command",
    "Commands",
    "Credit",
    "Display",
    "Drop",
    "Ending",
    "Event",
    "Exchange",
    "Farewell",
    "Feed",
    "Fetch",
    "Fetched",
    "Finished",
    "ForgetValues",
    "Join",
    "Keep",
    "Kept",
    "KeptRef",
    "Known",
    "Leave",
    "Leaving",
    "Losses",
    "Metrics",
    "Need",
    "Output",
    "Paused",
    "Payload",
    "Peered",
    "Peering",
    "Reported",
    "Shutdown",
    "Started",
    "Submit",
    "Told",
    "Topology",
    "ValueKept",
    "Yielded",
]

INLINE_LIMIT = 64 * 1024
"""Bytes up to which a buffer travels inside a message. Above it, it is a blob."""

BATCH_BYTES = 1024 * 1024
"""Bytes after which a batch of commands or events is closed: what comes after it waits for no more than that."""

CODES = 512
"""Functions that each end remembers the other, or a process of a slot, to have. Those used before are sent again."""

PACKING = 120.0
"""Seconds that packing what a stopped task leaves may take."""

NOWHERE = -1
"""The offset of output whose place in its stream is not known."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A buffer kept outside the message. `key` is its content address, or a fresh random one for a result."""

    key: bytes
    size: int


@dataclass(frozen=True, slots=True)
class KeptRef:
    """A handle of what nodes keep: the keys of the values, and what they are called."""

    keys: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Payload:
    """A pickled value: its pickle and the buffers that pickle protocol 5 left out of it, in order.

    `kept`: of a result, the handles of kept values that are part of it.
    """

    data: bytes | Blob
    buffers: tuple[bytes | Blob, ...] = ()
    kept: tuple[KeptRef, ...] = ()


NOTHING_LEFT = Payload(pickle.dumps(None, 5))
"""What a task leaves that was stopped before it had anything to leave."""


@dataclass(frozen=True, slots=True)
class Code:
    """A function. Sent to a node once, before the first task that uses it."""

    digest: bytes
    payload: Payload
    name: str = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """Run a function once.

    Attributes:
        task: number of the task, unique in its pool.
        attempt: how often it was sent before.
        code: digest of a `Code` sent earlier.
        call: pickled `(args, kwargs)`.
        stream: whether the function is a generator whose elements are sent back one by one.
        credit: elements of the stream that the worker may send before it is given more.
        inputs: how many of the arguments are streams fed by the client.
        timeout: seconds of running after which the task is stopped.
        share: position and size that `sky.shard` uses in a broadcast.
        label: what the client knows the task by; kept for whoever attaches to the pool.
        values: results of other tasks that its arguments are made of, as those tasks returned them.
        grace: seconds that it has to end by itself once it is told to stop; 0 for one that leaves nothing then.
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


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a task. With `recall`, only if it has not started; it then ends as "returned"."""

    task: int
    recall: bool = False


@dataclass(frozen=True, slots=True)
class Credit:
    """The client has room for `count` more elements of the stream that `task` sends."""

    task: int
    count: int


@dataclass(frozen=True, slots=True)
class Feed:
    """Elements of input stream `index` of `task`. The last of them says so, and may carry what ended the stream."""

    task: int
    index: int
    items: tuple[Payload, ...]
    last: bool = False
    failure: Payload | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget these blobs, and the code of these digests. Tasks that use them keep them to their end."""

    keys: tuple[bytes, ...]
    codes: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ForgetValues:
    """Forget the kept values of these keys. Tasks that have them already keep them to their end."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """What `sky.instance_info()` says from now on, as JSON."""

    info: str


@dataclass(frozen=True, slots=True)
class Join:
    """Join the cluster of the pool.

    Attributes:
        name: of the cluster.
        host: address that the other nodes reach this one at.
        seeds: `host:port` of nodes that are in it; none to be its first.
        cert, key, ca: what proves that it belongs there, as PEM.
        lost: collections that lost their content before, which nobody was told of yet.
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
    """The collections that lost their content and that nobody was told of yet; replaces what was said before."""

    lost: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class Keep:
    """The client has written to these strong collections, given by kind and name."""

    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the cluster, once the others have what this node keeps for it."""


@dataclass(frozen=True, slots=True)
class Peering:
    """Open a port at `host` at which other nodes of the pool get blobs; the rest proves who belongs to it, as PEM."""

    host: str
    cert: bytes
    key: bytes = field(repr=False)
    ca: bytes


@dataclass(frozen=True, slots=True)
class Fetch:
    """Get a blob from another node, instead of from where it was to come before.

    Attributes:
        source: `host:port` of the other node's port for it.
        attempt: number of the attempt; the answer has it too.
        near: whether the other node is on the same machine, so that its memory can be shared.
    """

    blob: Blob
    source: str
    attempt: int
    near: bool = False


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End the worker process, after a `Farewell`. What runs is interrupted."""


ToNode = (
    Code
    | Submit
    | Cancel
    | Credit
    | Feed
    | Drop
    | ForgetValues
    | Topology
    | Join
    | Losses
    | Keep
    | Leave
    | Peering
    | Fetch
    | Shutdown
)

type Command = ToNode


@dataclass(frozen=True, slots=True)
class Started:
    """The task left the queue of the node and runs."""

    task: int


@dataclass(frozen=True, slots=True)
class Output:
    """Text written to a standard stream. Task 0: by the node itself, or by nobody that can be told.

    Attributes:
        offset: characters of this stream of the task that this worker sent before; `NOWHERE` where that is not known.
    """

    task: int
    stream: Literal["stdout", "stderr"]
    text: str
    offset: int = NOWHERE


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
    """The next element of the stream that a task sends has no room at the client, and waits for more credit.

    Attributes:
        credited: all the credit that the task had been given so far, with that of its `Submit`.
    """

    task: int
    credited: int


@dataclass(frozen=True, slots=True)
class Need:
    """The task has room for `count` more elements of its input stream `index`. Zero or less: it wants no more."""

    task: int
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """The task was stopped, and what it leaves is being packed, which may take a while."""

    task: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a task. `seconds` is how long it ran.

    Outcome "error" carries a pickled `wire.failure.Failure`, and `error` the name of the exception's type; "timeout"
    and "cancelled" what the task leaves, or nothing if that is lost; "returned" means that it had not started; "lost",
    that the process it ran in died. A "value" with an `error` is a result that carries the exception, as a cell's does:
    its caller gets the result, and the task counts as failed.
    """

    task: int
    outcome: Literal["value", "error", "timeout", "cancelled", "returned", "lost"]
    payload: Payload
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Clustered:
    """The node is in the cluster of the pool, at `address`; or, where that is "", it is not: `why`."""

    address: str
    why: str = ""
    task: int = 0


@dataclass(frozen=True, slots=True)
class Kept:
    """These strong collections have content, given by kind and name."""

    names: tuple[tuple[str, str], ...]
    task: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """A task was told that this collection lost its content."""

    kind: str
    name: str
    task: int = 0


@dataclass(frozen=True, slots=True)
class Peered:
    """The node gives blobs to others at `address`; or, where that is "", it cannot: `why`."""

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
    """The node keeps a value from now on, for later tasks. `task`: which one it is of."""

    value: KeptInfo
    task: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """A task that a node has, or whose end it has not been able to tell.

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
class Reported:
    """What a node has, told first to a client that did not send it. `last`: the highest number of a task so far.

    `kept`: the values that it keeps.
    """

    tasks: tuple[Known, ...]
    blobs: tuple[Blob, ...]
    last: int
    kept: tuple[KeptInfo, ...] = ()
    task: int = 0


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the node uses of its machine now."""

    now: NodeMetrics
    task: int = 0


@dataclass(frozen=True, slots=True)
class Farewell:
    """The last event of a node that was told to shut down: all that it had to say was said before."""

    task: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """The worker's process ends soon, because a task did not stop. No task starts there any more."""

    task: int = 0


OfNode = Clustered | Kept | Told | Reported | Peered | Fetched | Metrics | Ending | Farewell
"""Events that are of no task."""

type Event = Started | Output | Display | Yielded | Paused | Need | ValueKept | Leaving | Finished | OfNode


@dataclass(frozen=True)
class Commands:
    """Commands numbered `first`, `first + 1`, ... in order."""

    first: int
    items: tuple[ToNode, ...]


@dataclass(frozen=True)
class Batch:
    """Events numbered `first`, `first + 1`, ... and the number of commands taken so far."""

    first: int
    events: tuple[Started | Output | Display | Yielded | Paused | Need | ValueKept | Leaving | Finished | OfNode, ...]
    received: int


@dataclass(frozen=True)
class Exchange(Askable[Batch]):
    """Commands, if any, and the wish to be answered as soon as there are events.

    Attributes:
        acknowledged: number of the last event that has arrived; those up to it can be forgotten.
        again: whether events after that may have been lost, so that they must be sent again.
        first, items: as in `Commands`. `first` is 0 where the client is new, and knows no numbers yet: it is answered
            with `Reported`.
    """

    acknowledged: int = 0
    again: bool = False
    first: int = 0
    items: tuple[ToNode, ...] = ()
