"""One pool, kept up to date in front ends while any of them looks, and the commands that come from there."""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from skyward.errors import SkywardError, UsageError
from skyward.specs import Nodes
from skyward_kernel.commands import attempt, scale_or_stop
from skyward_kernel.decoding import decode
from skyward_kernel.pools import manager_of
from skyward_kernel.projection import changes, encode, project
from skyward_kernel.protocol import Answer, Command, Reply, Scale, StopPool
from skyward_kernel.publisher import Publisher

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["GAP", "SHOWN", "LiveView"]


GAP: Final = 0.25
"""Seconds between two messages, at least."""

SHOWN: Final = ("pools", "nodes", "gauges", "decisions", "points")
"""The tables of the panel's state that the view draws. The others are not sent."""

MOST_VIEWERS: Final = 64
"""Views that may look at once. Of more, the one that came first is forgotten: its page is gone."""


class _One:
    """The pools that there are: this one."""

    def __init__(self, pool: "Compute") -> None:
        self._pool = pool
        self.names = [pool.name]

    def peek(self, name: str) -> "Compute | None":
        """It."""
        return self._pool

    def scale(self, name: str, nodes: Nodes) -> None:
        """Change how many nodes it has."""
        self._pool.resize(nodes)

    def close(self, name: str) -> None:
        """Close it."""
        self._pool.close()


class LiveView:
    """Sends what a pool is like while somebody looks; nothing is computed while nobody does.

    Args:
        pool: to show.
        send: takes a message for the front ends, as JSON has it. Called from any thread.
    """

    def __init__(self, pool: "Compute", send: Callable[[dict[str, Any]], object]) -> None:
        self._pool = pool
        self._send = send
        self._one = _One(pool)
        self._publisher = Publisher(self._one, self._tell, gap=GAP)
        self._viewers: dict[str, None] = {}
        self._ended = False
        self._lock = threading.Lock()

    def state(self) -> dict[str, Any]:
        """The pool now, as the tables of a snapshot."""
        rows, _ = changes({}, {self._pool.name: project(self._pool.report())})
        return {table: {key: encode(row) for key, row in there.items()} for table, there in _shown(rows).items()}

    def look(self, viewer: str) -> None:
        """Somebody looks from now on, and is sent everything."""
        with self._lock:
            if self._ended:
                return
            self._viewers[viewer] = None
            if len(self._viewers) > MOST_VIEWERS:
                del self._viewers[next(iter(self._viewers))]
            self._publisher.start()

    def leave(self, viewer: str) -> None:
        """Somebody does not look any more."""
        with self._lock:
            known = viewer in self._viewers
            self._viewers.pop(viewer, None)
            if known and not self._viewers:
                self._publisher.stop()

    def end(self) -> None:
        """Send nothing any more. Twice does no harm."""
        with self._lock:
            self._ended = True
            self._viewers.clear()
        self._publisher.stop()

    def received(self, message: object) -> None:
        """Take what a front end says: that it looks or does not, or a command of the panel's protocol."""
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
        # Giving machines back takes its time, and a kernel that has nothing to do may get a cell any moment.
        threading.Thread(target=self._do, args=(command,), name="skyward-command", daemon=True).start()

    def _do(self, command: Command) -> None:
        self._answer(attempt(command, lambda: Answer(command.id, "done", self._carried_out(command))))

    def _carried_out(self, command: Command) -> str:
        if not isinstance(command, Scale | StopPool):
            raise UsageError(f"This view has no command {command.kind}.")
        residents = manager_of(self._pool)  # it keeps account of the sizes that its pools were given
        return scale_or_stop(self._one if residents is None else residents, self._pool.name, command)

    def _answer(self, answer: Reply) -> None:
        self._send(encode(answer))

    def _tell(self, message: dict[str, Any]) -> None:
        """Pass on a message of the publisher, without what is not drawn."""
        tables, gone = _shown(message["tables"]), _shown(message.get("gone", {}))
        if message["kind"] == "snapshot" or tables or gone:
            self._send({"kind": message["kind"], "tables": tables, "gone": gone})


def _shown[T](tables: Mapping[str, T]) -> dict[str, T]:
    return {table: rows for table, rows in tables.items() if table in SHOWN}
