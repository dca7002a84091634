"""What a worker says of itself once it listens."""

from dataclasses import dataclass
from typing import Protocol

from skyward.bootstrap.events import Facts

__all__ = ["Hello", "WorkerProcess"]


@dataclass(frozen=True, slots=True)
class Hello:
    """Where a started worker is.

    Attributes:
        address: `host:port` that it listens on, as it has it itself.
        bulk: its bulk path, to dial from here: `host:port`, or the path of a Unix socket.
        pid: its process, on its machine.
        machine: the address at which its machine was reached; "" where it is this one.
        bulk_there: `host:port` of its bulk path, as it has it itself.
        directory: its own, by which it can be entered again; "" where it cannot.
        vcpus: what its machine has; 0 where the provider knows that.
        memory_gb: the same; 0 where it is not known.
        python: its version; "" where it is ours.
    """

    address: str
    bulk: str
    pid: int
    machine: str = ""
    bulk_there: str = ""
    directory: str = ""
    vcpus: float = 0
    memory_gb: float = 0
    python: str = ""


class WorkerProcess(Protocol):
    """A started worker."""

    hello: Hello

    async def exited(self) -> str:
        """Why it ended, once it has."""

    async def answers(self) -> bool:
        """Return whether its machine is reached, so that it is the worker itself that is silent."""

    async def facts(self) -> Facts | None:
        """What its environment is made of; None where that is ours, or cannot be found out."""

    async def reach(self, address: str) -> str:
        """Where to connect here, as `host:port`, to reach another address of its machine."""

    def dial(self, address: str) -> str:
        """Where to connect here now, as `host:port`, to reach an address of its machine that was made reachable."""

    async def stop(self) -> bool:
        """End it, whatever it does; False where it could not be reached. Twice does no harm."""

    async def leave(self) -> None:
        """Let go of it. One that can outlive this process runs on."""
