"""The information that a node has about itself and its pool."""

import os
import socket
from dataclasses import asdict, dataclass, field, replace
from json import dumps, loads  # captured here: a task may replace those of the module
from typing import Any

from skyward.errors import NotOnNodeError, SpecError
from skyward.task.variables import TaskVar

__all__ = [
    "AcceleratorInfo",
    "GangInfo",
    "InstanceInfo",
    "NetworkInfo",
    "Peer",
    "current_gang",
    "current_share",
    "instance_info",
    "is_head",
    "set_instance_info",
]

HEAD_PORT = 29500
"""Port on the head node where distributed frameworks rendezvous, by their own convention."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A node of the pool, with the addresses at which its peers reach it.

    Attributes:
        node: its rank.
        private_ip, public_ip: its addresses in the network of the nodes, and elsewhere; empty if it has none.

    Example:
        @sky.function
        def neighbours() -> list[str]:
            return [peer.private_ip for peer in sky.instance_info().peers]
    """

    node: int
    private_ip: str = ""
    public_ip: str = ""


@dataclass(frozen=True, slots=True)
class AcceleratorInfo:
    """The accelerators of one node.

    Attributes:
        type: name in the catalogue, such as "A100".
        count: number of them; a fraction is a share of one.
        memory_gb: memory of each, GB, as the vendor states it; 0 if unknown.
        is_trainium: True for AWS Trainium.

    Example:
        @sky.function
        def memory() -> float:
            found = sky.instance_info().accelerator
            return found.count * found.memory_gb if found else 0
    """

    type: str
    count: float = 1
    memory_gb: float = 0
    is_trainium: bool = False


@dataclass(frozen=True, slots=True)
class NetworkInfo:
    """The network between the nodes.

    Attributes:
        interface: name of the node's interface; empty if unknown.
        bandwidth_gbps: its bandwidth, Gbit/s; 0 if unknown.

    Example:
        @sky.function
        def interface() -> str:
            network = sky.instance_info().network
            return network.interface if network else ""
    """

    interface: str = ""
    bandwidth_gbps: float = 0


@dataclass(frozen=True, slots=True)
class GangInfo:
    """The place of the running task in its gang.

    Attributes:
        rank: position of the task among the members, which is that of its call in `sky.gang`.
        size: number of members.
        nodes: node of each member, by its rank in the gang.
        start: number of times that the gang has started, with this one: more than 1 after the loss of a node.
        head_addr: address of the node of the member of rank 0, for the other members; empty if it is unknown.

    Example:
        @sky.function
        def role() -> str:
            gang = sky.instance_info().gang
            return f"member {gang.rank} of {gang.size}" if gang else "alone"
    """

    rank: int
    size: int
    nodes: tuple[int, ...]
    start: int = 1
    head_addr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceInfo:
    """The pool as seen by one worker process of one node.

    Attributes:
        node: rank of this node; the head node is 0.
        worker: index of this worker process on the node.
        total_nodes: nodes in the pool.
        workers_per_node: worker processes on each node that run tasks.
        vcpus, memory_gb: CPUs and memory (GiB) of this node; 0 if unknown.
        accelerators: number of accelerators of this node.
        total_accelerators: number of accelerators of the pool.
        head_addr: address of the head node, for the other nodes.
        head_port: port on the head node where distributed frameworks rendezvous.
        job_id: identity of the pool.
        peers: every node of the pool, including this one, in order of rank.
        accelerator: type and memory of this node's accelerators; None without any.
        network: the network between the nodes; None if unknown.
        gang: the place of the running task in its gang; None outside a gang.

    Example:
        @sky.function
        def rank() -> int:
            info: sky.InstanceInfo = sky.instance_info()
            return info.node
    """

    node: int
    worker: int = 0
    total_nodes: int
    workers_per_node: int = 1
    vcpus: float = 0
    memory_gb: float = 0
    accelerators: float = 0
    total_accelerators: float = 0
    head_addr: str = "127.0.0.1"
    head_port: int = HEAD_PORT
    job_id: str = ""
    peers: tuple[Peer, ...] = field(default_factory=tuple)
    accelerator: AcceleratorInfo | None = None
    network: NetworkInfo | None = None
    gang: GangInfo | None = None

    @property
    def global_worker_index(self) -> int:
        """Index of this worker among all workers of the pool."""
        return self.node * self.workers_per_node + self.worker

    @property
    def total_workers(self) -> int:
        """Worker processes in the pool."""
        return self.total_nodes * self.workers_per_node

    @property
    def is_head(self) -> bool:
        """True on the head node. A broadcast runs once per node, so exactly one of its tasks sees True."""
        return self.node == 0

    @property
    def hostname(self) -> str:
        """Name of the machine."""
        return socket.gethostname()

    def to_json(self) -> str:
        """Return the text that `from_json` reads: the value of the environment variable `COMPUTE_POOL` on a node."""
        return dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "InstanceInfo":
        """Return the information in `text`. Unknown fields are ignored.

        Raises:
            SpecError: `text` is not the JSON of an `InstanceInfo`.
        """
        try:
            values = loads(text)
            values["peers"] = tuple(_read(Peer, peer) for peer in values.get("peers") or ())
            values.pop("gang", None)  # of the task that wrote the text
            for name, kind in (("accelerator", AcceleratorInfo), ("network", NetworkInfo)):
                values[name] = _read(kind, values[name]) if values.get(name) else None
            return _read(cls, values)
        except (ValueError, TypeError, AttributeError) as error:
            raise SpecError(f"COMPUTE_POOL does not describe a node ({error}): {text[:200]!r}.") from error


def _read[T](kind: type[T], values: dict[str, Any]) -> T:
    known: dict[str, Any] = getattr(kind, "__dataclass_fields__", {})
    return kind(**{name: value for name, value in values.items() if name in known})


current_share: TaskVar[tuple[int, int] | None] = TaskVar("skyward_current_share", default=None)
"""(index, count) of this task in the running broadcast or gang, fixed at dispatch; None outside of them."""

current_gang: TaskVar[GangInfo | None] = TaskVar("skyward_current_gang", default=None)
"""The place of the running task in its gang, without the address; None outside a gang."""

_info: InstanceInfo | None = None


def set_instance_info(info: InstanceInfo | None) -> None:
    """Set what `instance_info()` of this process returns. Called by the worker."""
    global _info
    _info = info


def instance_info() -> InstanceInfo:
    """Return the pool as this node sees it now.

    Raises:
        NotOnNodeError: this is not a node.

    Example:
        @sky.function
        def where() -> str:
            info = sky.instance_info()
            return f"node {info.node} of {info.total_nodes}"
    """
    if _info is not None:
        return _with_gang(_info)
    if text := os.environ.get("COMPUTE_POOL"):
        return _with_gang(InstanceInfo.from_json(text))
    raise NotOnNodeError(
        "`sky.instance_info()` works only on a node: call it inside a `@sky.function` that was sent to a pool."
    )


def _with_gang(info: InstanceInfo) -> InstanceInfo:
    gang = current_gang.get()
    if gang is None:
        return info
    head = gang.nodes[0]
    found = (peer.private_ip or peer.public_ip for peer in info.peers if peer.node == head)
    address = info.head_addr if head == 0 else next(found, "")
    return replace(info, gang=replace(gang, head_addr=address))


def is_head(info: InstanceInfo) -> bool:
    """Return whether `info` is that of the head node.

    Example:
        @sky.stdout(only=sky.is_head)
        @sky.function
        def train() -> None: ...
    """
    return info.is_head
