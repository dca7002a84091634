"""First message of a worker, sent once it listens."""

from dataclasses import dataclass
from typing import Protocol

from skyward.bootstrap.events import Facts

__all__ = ["Hello", "WorkerProcess"]


@dataclass(frozen=True, slots=True)
class Hello:
    """Addresses and properties of a started worker.

    Attributes:
        address: `host:port` that it listens on, as it sees it.
        bulk: address of its bulk path from here: `host:port`, or the path of a Unix socket.
        pid: its process id, on its machine.
        machine: the address at which its machine was reached; "" for this machine.
        machine_bulk: `host:port` of its bulk path, as it sees it.
        directory: its directory, by which another process can attach to it; "" if none can.
        vcpus: CPUs of its machine; 0 where the provider knows them.
        memory_gb: memory of its machine, GiB; 0 where it is not known.
        gpus: GPUs that the batch system granted; 0 if none, or if there is no batch system.
        python: its version of Python; "" if it is the client's.
    """

    address: str
    bulk: str
    pid: int
    machine: str = ""
    machine_bulk: str = ""
    directory: str = ""
    vcpus: float = 0
    memory_gb: float = 0
    gpus: float = 0
    python: str = ""


class WorkerProcess(Protocol):
    """A started worker process."""

    hello: Hello

    async def exited(self) -> str:
        """Wait for its end, and return the reason."""

    async def answers(self) -> bool:
        """Return whether its machine can be reached, so that the worker itself is the one that is silent."""

    @property
    def unreachable(self) -> bool:
        """True while the connection to its machine is broken."""

    async def facts(self) -> Facts | None:
        """Return the facts of its environment; None if it is the client's, or they cannot be read."""

    async def reach(self, address: str) -> str:
        """Make another address of its machine reachable; return the `host:port` to connect to here."""

    def dial(self, address: str) -> str:
        """Return the `host:port` to connect to here, now, for an address that `reach` made reachable."""

    async def stop(self) -> bool:
        """End it, whatever it does; return False if it could not be reached. Idempotent."""

    async def leave(self) -> None:
        """Disconnect. A worker that can outlive this process keeps running."""
