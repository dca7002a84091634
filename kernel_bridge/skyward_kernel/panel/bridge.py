"""Bridge between the kernel and the panel: receives commands, also while a cell runs, and publishes state.

State is published as messages of a comm with a fixed id, which is never opened: front ends that know the id listen,
others ignore the messages. Commands arrive on a comm that the panel opens, on a subshell if the kernel supports them.
Nothing is ever sent on that comm, because ipykernel 7.4 would then deliver its messages to the main shell, which the
cell blocks.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from skyward.errors import SkywardError
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.panel.decoding import decode
from skyward_kernel.panel.encoding import encode
from skyward_kernel.panel.execution import answer, run_command
from skyward_kernel.panel.form import form_fields
from skyward_kernel.panel.protocol import (
    COMMAND_TARGET,
    STATE_COMM,
    AskCheck,
    AskPrice,
    CommandReply,
    Dismiss,
    Refresh,
    Reply,
    Request,
    RunCommand,
)
from skyward_kernel.panel.publisher import FindOrphans, Publisher
from skyward_kernel.panel.queries import QueryHandler
from skyward_kernel.pools import PoolManager

__all__ = ["PanelBridge"]


MOST_CLIENTS: Final = 16
"""Maximum number of connected pages. A reloaded page replaces its old connection; beyond that, the oldest is closed."""


class _Listed:
    """An entry in the kernel's list of comms, by which a panel detects that it can connect."""

    comm_id = target_name = STATE_COMM


class PanelBridge:
    """Connection between the pools of a kernel and the panels that watch it.

    Args:
        kernel: the ipykernel.
        pools: its pools.
        orphans: finds orphaned pools of other processes.
    """

    def __init__(self, kernel: Any, pools: PoolManager, orphans: FindOrphans = tuple) -> None:
        self._kernel = kernel
        self._context = Context(pools)
        self._run_query = QueryHandler(pools)
        self._publisher = Publisher(pools, self._send, form_fields(), orphans, lambda: pools.failed_starts)
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._listed = _Listed()
        kernel.comm_manager.register_target(COMMAND_TARGET, self._opened)
        kernel.comm_manager.register_comm(self._listed)
        self._shut_down = kernel.do_shutdown
        kernel.do_shutdown = self._shutting_down
        self._pools = pools
        self._publisher.poll_once()  # tells panels that are already open that they can connect

    def close(self) -> None:
        """Disconnect every panel. Idempotent."""
        with contextlib.suppress(KeyError):
            self._kernel.comm_manager.unregister_target(COMMAND_TARGET, self._opened)
            self._kernel.comm_manager.unregister_comm(self._listed)
        self._kernel.do_shutdown = self._shut_down
        with self._lock:
            clients, self._clients = self._clients, {}
            self._publisher.stop()
        for comm in clients.values():
            comm.close()

    def _shutting_down(self, restart: bool) -> Any:
        """Leave pools that outlive the kernel to the next one, if the kernel restarts."""
        if restart:
            self._pools.leave()
        return self._shut_down(restart)

    def _opened(self, comm: Any, message: Mapping[str, Any]) -> None:
        """Connect a panel."""
        data = message["content"].get("data")
        client = data.get("client") if isinstance(data, Mapping) else None
        client = client if isinstance(client, str) else comm.comm_id
        comm.on_msg(self._received)
        comm.on_close(lambda _: self._disconnected(client, comm))
        with self._lock:
            replaced = [self._clients.pop(client, None)]
            self._clients[client] = comm
            while len(self._clients) > MOST_CLIENTS:
                replaced.append(self._clients.pop(next(iter(self._clients))))
            self._publisher.start()
        for old in replaced:
            if old is not None:
                old.close()

    def _disconnected(self, client: str, comm: Any) -> None:
        with self._lock:
            if self._clients.get(client) is comm:
                del self._clients[client]
            if not self._clients:
                self._publisher.stop()

    def _received(self, message: Mapping[str, Any]) -> None:
        """Handle a message of a panel. It runs on a subshell, beside a cell, and must return quickly."""
        data = message["content"].get("data")
        try:
            request = decode(data)
        except SkywardError as error:
            given = data.get("id") if isinstance(data, Mapping) else None
            if isinstance(given, str):
                self._answer(CommandReply(given[:100], "refused", str(error)))
            return
        match request:
            case Refresh(id):
                self._publisher.start()
                self._answer(CommandReply(id, "done"))
            case Dismiss(id, pool):
                self._pools.dismiss(pool)
                self._answer(CommandReply(id, "done"))
            case RunCommand(_, command) if COMMANDS[command].slow:
                self._start(request, lambda: run_command(self._context, request))
            case RunCommand():
                self._answer(answer(request, lambda: run_command(self._context, request)))
            case AskCheck() | AskPrice():
                self._start(request, lambda: self._run_query(request))
            case _:
                self._answer(answer(request, lambda: self._run_query(request)))

    def _start(self, request: Request, reply: Callable[[], Reply]) -> None:
        """Answer a request that waits for machines or providers: at once that it was received, later with the reply."""

        def do() -> None:
            self._answer(answer(request, reply))
            if isinstance(request, RunCommand) and request.command in ("attach", "reap"):
                self._publisher.refresh_orphans()

        self._answer(CommandReply(request.id, "heard"))
        threading.Thread(target=do, name="skyward-command", daemon=True).start()

    def _answer(self, answer: Reply) -> None:
        self._send(encode(answer))

    def _send(self, data: dict[str, Any]) -> None:
        self._kernel.session.send(
            self._kernel.iopub_socket,
            "comm_msg",
            {"comm_id": STATE_COMM, "data": data},
            parent={},
            ident=f"comm-{STATE_COMM}".encode(),
        )
