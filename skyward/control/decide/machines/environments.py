"""Choice of the node that sends its environment to a new one.

Decides only; no I/O. Every node that becomes ready may send its environment, to a few nodes at once, so that the number
of senders grows with the pool. A node that finds none free makes its environment itself.
"""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["AT_ONCE", "EnvironmentServers", "TransferOutcome"]

AT_ONCE = 3
"""Transfers of a node at the same time."""

MOST_FAILURES = 2
"""Failed transfers in a row, of a node or over a network, after which it is not used again."""

type TransferOutcome = Literal["sent", "small", "refused", "unreached", "broken"]
"""Outcome of a transfer: nothing was wrong with it; the environment was too small for it; the node refused it; the new
node did not reach it; or it was interrupted."""


@dataclass(slots=True)
class _Server:
    environment: str
    network: str
    active: int = 0
    failures: int = 0


@dataclass(slots=True)
class EnvironmentServers:
    """The nodes that may send their environments, by number of machine."""

    _servers: dict[int, _Server] = field(default_factory=dict)
    _unreached: dict[str, int] = field(default_factory=dict)
    _small: set[str] = field(default_factory=set)

    def add(self, machine: int, environment: str, network: str) -> None:
        """Add a ready node.

        Args:
            machine: number of its machine.
            environment: identity of its environment.
            network: name of the network over which it may be reached.
        """
        self._servers[machine] = _Server(environment, network)

    def remove(self, machine: int) -> None:
        """Remove a node that is gone. Idempotent."""
        self._servers.pop(machine, None)

    def choose(self, environment: str, network: str, *, unless_small: bool = False) -> int | None:
        """Return the node with the fewest transfers, the oldest of several; None if none is free.

        With `unless_small`, also None if the environment is known to be too small for a transfer.
        """
        if self._unreached.get(network, 0) >= MOST_FAILURES or (unless_small and environment in self._small):
            return None
        found = [pair for pair in self._usable(environment, network) if pair[0] < AT_ONCE]
        return min(found)[1] if found else None

    def _usable(self, environment: str, network: str) -> list[tuple[int, int]]:
        """Return the number of transfers, and the machine, of each node that has the environment and sends it."""
        return [
            (server.active, machine)
            for machine, server in self._servers.items()
            if (server.environment, server.network) == (environment, network) and server.failures < MOST_FAILURES
        ]

    def will_be_free(self, environment: str, network: str) -> bool:
        """Return whether a node could be chosen, once its transfers have ended."""
        return self._unreached.get(network, 0) < MOST_FAILURES and bool(self._usable(environment, network))

    def started(self, machine: int) -> None:
        """Count a transfer that starts."""
        self._servers[machine].active += 1

    def ended(self, machine: int, network: str, outcome: TransferOutcome) -> None:
        """Count the end of a transfer. A firewall is that of a network, anything else concerns one node."""
        if outcome == "unreached":
            self._unreached[network] = self._unreached.get(network, 0) + 1
        elif outcome == "sent":
            self._unreached[network] = 0
        server = self._servers.get(machine)
        if server is not None:
            server.active -= 1
            if outcome == "small":
                self._small.add(server.environment)
            else:
                server.failures = 0 if outcome == "sent" else server.failures + 1
