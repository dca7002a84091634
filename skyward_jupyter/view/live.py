"""Live state of one pool, published while any front end shows it, and the commands of those front ends."""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from skyward.errors import SkywardError, UsageError
from skyward.frontends.commands import sent_forms
from skyward.frontends.views import project
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.panel.decoding import decode
from skyward_kernel.panel.encoding import changes, encode
from skyward_kernel.panel.execution import answer, run_command
from skyward_kernel.panel.protocol import CommandReply, Reply, Request, RunCommand
from skyward_kernel.panel.publisher import Publisher
from skyward_kernel.pools import PoolManager, manager_of

if TYPE_CHECKING:
    from skyward.frontends.pools import Compute

__all__ = ["GAP", "SHOWN", "LiveView"]


GAP: Final = 0.25
"""Minimum seconds between two messages."""

SHOWN: Final = ("pools", "nodes", "gauges", "volumes", "decisions", "points")
"""Tables of the panel's state that the view draws. Others are not sent."""

MOST_VIEWERS: Final = 64
"""Maximum number of active views. Beyond that, the oldest is dropped: its page is probably gone."""


class _SinglePool:
    """One pool, as the publisher watches it."""

    def __init__(self, pool: "Compute") -> None:
        self._pool = pool
        self.names = [pool.name]

    def peek(self, name: str) -> "Compute | None":
        """Return the pool."""
        return self._pool


class LiveView:
    """Publisher of the state of one pool. It computes nothing while no front end shows the pool.

    Args:
        pool: the pool to show.
        send: sends a message of JSON values to the front ends. Called from any thread.
    """

    def __init__(self, pool: "Compute", send: Callable[[dict[str, Any]], object]) -> None:
        self._pool = pool
        self._send = send
        self._publisher = Publisher(_SinglePool(pool), self._forward, gap=GAP)
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
        """Handle a message of a front end: "look", "leave", or a command."""
        match message:
            case {"kind": "look", "view": str(viewer)}:
                self.look(viewer[:64])
            case {"kind": "leave", "view": str(viewer)}:
                self.leave(viewer[:64])
            case _:
                self._request(message)

    def _request(self, message: object) -> None:
        try:
            request = decode(message)
            self._validate(request)
        except SkywardError as error:
            given = message.get("id") if isinstance(message, Mapping) else None
            self._answer(CommandReply(str(given)[:100], "refused", str(error)))
            return
        self._answer(CommandReply(request.id, "heard"))
        # Terminating machines takes time, and must not delay the next cell.
        threading.Thread(target=self._do, args=(request,), name="skyward-command", daemon=True).start()

    def _validate(self, request: Request) -> None:
        """Check that the view offers the command.

        Raises:
            UsageError: it does not, or the command is about another pool.
        """
        if not isinstance(request, RunCommand):
            raise UsageError(f"This view has no request {request.kind}.")
        forms = [set(form.arguments) for form in sent_forms(COMMANDS[request.command], widget=True)]
        if set(request.arguments) not in forms or request.arguments.get("pool") != self._pool.name:
            raise UsageError(f"This view has no command {request.command}.")

    def _do(self, request: RunCommand) -> None:
        # The manager of this kernel tracks the requested sizes of its pools.
        pools = manager_of(self._pool) or PoolManager.of(self._pool)
        self._answer(answer(request, lambda: run_command(Context(pools), request)))

    def _answer(self, answer: Reply) -> None:
        self._send(encode(answer))

    def _forward(self, message: dict[str, Any]) -> None:
        """Forward a message of the publisher, without the tables that are not drawn."""
        tables, gone = _shown(message["tables"]), _shown(message.get("gone", {}))
        if message["kind"] == "snapshot" or tables or gone:
            self._send({"kind": message["kind"], "tables": tables, "gone": gone})


def _shown[T](tables: Mapping[str, T]) -> dict[str, T]:
    return {table: rows for table, rows in tables.items() if table in SHOWN}
