"""The kernel's end of the panel: takes its commands while a cell blocks the kernel, and has its state published.

State goes out as messages of a comm of a fixed id, which is never opened: a front end that knows of it listens, any
other leaves them be. Commands come in on a comm that the panel opens, on a subshell where the kernel has them. Nothing
is ever sent on that one, because ipykernel 7.4 would then deliver its messages to the shell that the cell blocks.
"""

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skyward.errors import SkywardError
from skyward_kernel.commands import SLOW, CommandHandler, OpenPool, attempt
from skyward_kernel.decoding import decode
from skyward_kernel.pools import PoolManager
from skyward_kernel.projection import encode
from skyward_kernel.protocol import (
    COMMAND_TARGET,
    QUESTIONS,
    STATE_COMM,
    Answer,
    Attach,
    Command,
    FormField,
    Reap,
    Refresh,
    Reply,
)
from skyward_kernel.publisher import FindOrphans, Publisher
from skyward_kernel.queries import QueryHandler, ReadOptions

__all__ = ["PanelBridge", "PoolForm"]


MOST_CLIENTS: Final = 16
"""Pages that may be connected. One that is reloaded takes the place that it had; of more, the oldest goes."""


@dataclass(frozen=True, slots=True)
class PoolForm:
    """The form of a new pool: its fields, what reads them, and what opens a pool from them."""

    fields: tuple[FormField, ...]
    read: ReadOptions
    open: OpenPool


class _Listed:
    """What the kernel lists among its comms, for a panel that asks whether there is anything to connect to."""

    comm_id = target_name = STATE_COMM


class PanelBridge:
    """Connects the pools of a kernel to the panels that watch it.

    Args:
        kernel: the ipykernel.
        pools: its pools.
        form: of a new pool.
        orphans: finds what others have left behind.
    """

    def __init__(self, kernel: Any, pools: PoolManager, form: PoolForm, orphans: FindOrphans = tuple) -> None:
        self._kernel = kernel
        self._carry_out = CommandHandler(pools, form.open)
        self._find_out = QueryHandler(pools, form.read)
        self._publisher = Publisher(pools, self._send, form.fields, orphans)
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._listed = _Listed()
        kernel.comm_manager.register_target(COMMAND_TARGET, self._opened)
        kernel.comm_manager.register_comm(self._listed)
        self._shut_down = kernel.do_shutdown
        kernel.do_shutdown = self._shutting_down
        self._pools = pools
        self._publisher.look_once()  # a panel that is open already learns that there is something to connect to

    def close(self) -> None:
        """Let go of every panel. Twice does no harm."""
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
        """The kernel is about to end. Where another takes its place, that one finds the pools that can live on."""
        if restart:
            self._pools.leave()
        return self._shut_down(restart)

    def _opened(self, comm: Any, message: Mapping[str, Any]) -> None:
        """A panel connects."""
        data = message["content"].get("data")
        client = data.get("client") if isinstance(data, Mapping) else None
        client = client if isinstance(client, str) else comm.comm_id
        comm.on_msg(self._received)
        comm.on_close(lambda _: self._left(client, comm))
        with self._lock:
            replaced = [self._clients.pop(client, None)]
            self._clients[client] = comm
            while len(self._clients) > MOST_CLIENTS:
                replaced.append(self._clients.pop(next(iter(self._clients))))
            self._publisher.start()
        for old in replaced:
            if old is not None:
                old.close()

    def _left(self, client: str, comm: Any) -> None:
        with self._lock:
            if self._clients.get(client) is comm:
                del self._clients[client]
            if not self._clients:
                self._publisher.stop()

    def _received(self, message: Mapping[str, Any]) -> None:
        """A command. This runs on a subshell, beside a cell, and must be over soon."""
        data = message["content"].get("data")
        try:
            command = decode(data)
        except SkywardError as error:
            given = data.get("id") if isinstance(data, Mapping) else None
            if isinstance(given, str):
                self._answer(Answer(given[:100], "refused", str(error)))
            return
        if isinstance(command, Refresh):
            self._publisher.start()
            self._answer(Answer(command.id, "done"))
        elif isinstance(command, SLOW):
            self._answer(Answer(command.id, "heard"))
            threading.Thread(target=self._do, args=(command,), name="skyward-command", daemon=True).start()
        else:
            self._do(command)

    def _do(self, command: Command) -> None:
        def do() -> Reply:
            if isinstance(command, QUESTIONS):
                return self._find_out(command)
            return Answer(command.id, "done", self._carry_out(command))

        self._answer(attempt(command, do))
        if isinstance(command, Attach | Reap):
            self._publisher.look_for_orphans()

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
