"""The one actor of a node: it passes the engine's messages to the agent of the worker.

It is declared here and not in `skyward.worker`, because the client addresses the same actor.
"""

from collections.abc import Callable
from datetime import timedelta

from casty import Client, Context, Limits, Ref, actor

from skyward.wire.protocol.messages import Commands, Exchange

__all__ = ["KEY", "LIMITS", "mailbox", "receive_with", "reference"]

KEY = "node"

LIMITS = Limits(message=256 * 1024 * 1024)
"""Bytes of the largest message, the same at both ends.

Messages are far smaller, but a large display is one event and must arrive. A large message delays those behind it.
"""

type MailboxMessage = Commands | Exchange

_receive: Callable[[MailboxMessage], None] | None = None


def receive_with(receive: Callable[[MailboxMessage], None]) -> None:
    """Set the receiver of this process's messages. It is called on the engine's loop."""
    global _receive
    _receive = receive


@actor(pinned=True, initial=0, idle_after=timedelta(days=3650), ask_timeout=timedelta(days=1))
async def mailbox(ctx: Context[int, Commands | Exchange]) -> None:
    """Pass on every message at once, so that the engine never queues behind a task."""
    async for message in ctx.inbox:
        if _receive is not None:
            _receive(message)


def reference(client: Client, address: str) -> Ref[Commands | Exchange]:
    """Return the mailbox of the node that listens on `address`."""
    return client.ref(mailbox, KEY, at=address)
