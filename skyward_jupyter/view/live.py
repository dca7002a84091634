"""Live state of one pool, published while any front end shows it, and the commands of those front ends."""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from skyward.errors import SkywardError, UsageError
from skyward.specs import Nodes
from skyward.views.projection import project
from skyward_kernel.commands import attempt, scale_or_stop
from skyward_kernel.decoding import decode
from skyward_kernel.encoding import changes, encode
from skyward_kernel.pools import manager_of
from skyward_kernel.protocol import Answer, Command, Reply, Scale, StopPool
from skyward_kernel.publisher import Publisher

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["GAP", "SHOWN", "LiveView"]


GAP: Final = 0.25
"""Minimum seconds between two messages."""

SHOWN: Final = ("pools", "nodes", "gauges", "decisions", "points")
"""Tables of the panel's state that the view draws. Others are not sent."""

MOST_VIEWERS: Final = 64
"""Maximum number of active views. Beyond that, the oldest is dropped: its page is probably gone."""


class _SinglePool:
    """A registry with one pool, in the form of `PoolManager`."""

    def __init__(self, pool: "Compute") -> None:
        self._pool = pool
        self.names = [pool.name]

    def peek(self, name: str) -> "Compute | None":
        """Return the pool."""
        return self._pool

    def scale(self, name: str, nodes: Nodes) -> None:
        """Change how many nodes the pool has."""
        self._pool.resize(nodes)

    def close(self, name: str) -> None:
        """Close the pool."""
        self._pool.close()


class LiveView:
    """Publisher of the state of one pool. It computes nothing while no front end shows the pool.

    Args:
        pool: the pool to show.
        send: sends a message of JSON values to the front ends. Called from any thread.
    """

    def __init__(self, pool: "Compute", send: Callable[[dict[str, Any]], object]) -> None:
        self._pool = pool
        self._send = send
        self._single = _SinglePool(pool)
        self._publisher = Publisher(self._single, self._forward, gap=GAP)
        self._viewers: dict[str, None] = {}
        self._ended = False
        self._lock = threading.Lock()

    def state(self) -> dict[str, Any]:
        """Return the current state of the pool, as the tables of a snapshot."""
        rows, _ = changes({}, {self._pool.name: project(self._pool.report())})
        return {table: {key: encode(row) for key, row in entries.items()} for table, entries in _shown(rows).items()}

    def look(self, viewer: str) -> None:
        """Register a view as visible, and send it a snapshot."""
        with self._lock:
            if self._ended:
                return
            self._viewers[viewer] = None
            if len(self._viewers) > MOST_VIEWERS:
                del self._viewers[next(iter(self._viewers))]
            self._publisher.start()

    def leave(self, viewer: str) -> None:
        """Unregister a view that is not visible any more."""
        with self._lock:
            known = viewer in self._viewers
            self._viewers.pop(viewer, None)
            if known and not self._viewers:
                self._publisher.stop()

    def end(self) -> None:
        """Stop publishing. Idempotent."""
        with self._lock:
            self._ended = True
            self._viewers.clear()
        self._publisher.stop()

    def received(self, message: object) -> None:
        """Handle a message of a front end: "look", "leave", or a command of the panel's protocol."""
        match message:
            case {"kind": "look", "view": str(viewer)}:
                self.look(viewer[:64])
            case {"kind": "leave", "view": str(viewer)}:
                self.leave(viewer[:64])
            case _:
                self._command(message)

    def _command(self, message: object) -> None:
        try:
            command = decode(message)
        except SkywardError as error:
            given = message.get("id") if isinstance(message, Mapping) else None
            self._answer(Answer(str(given)[:100], "refused", str(error)))
            return
        self._answer(Answer(command.id, "heard"))
        # Terminating machines takes time, and must not delay the next cell.
        threading.Thread(target=self._do, args=(command,), name="skyward-command", daemon=True).start()

    def _do(self, command: Command) -> None:
        self._answer(attempt(command, lambda: Answer(command.id, "done", self._execute(command))))

    def _execute(self, command: Command) -> str:
        if not isinstance(command, Scale | StopPool):
            raise UsageError(f"This view has no command {command.kind}.")
        manager = manager_of(self._pool)  # it tracks the requested sizes of its pools
        return scale_or_stop(self._single if manager is None else manager, self._pool.name, command)

    def _answer(self, answer: Reply) -> None:
        self._send(encode(answer))

    def _forward(self, message: dict[str, Any]) -> None:
        """Forward a message of the publisher, without the tables that are not drawn."""
        tables, gone = _shown(message["tables"]), _shown(message.get("gone", {}))
        if message["kind"] == "snapshot" or tables or gone:
            self._send({"kind": message["kind"], "tables": tables, "gone": gone})


def _shown[T](tables: Mapping[str, T]) -> dict[str, T]:
    return {table: rows for table, rows in tables.items() if table in SHOWN}
