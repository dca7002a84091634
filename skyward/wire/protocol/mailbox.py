"""The one actor of a node: what the engine delivers to it goes to the agent of the worker.

It is declared here and not in `skyward.worker`, because the client names the same actor to reach it.
"""

from collections.abc import Callable
from datetime import timedelta

from casty import Client, Context, Limits, Ref, actor

from skyward.wire.protocol.messages import Commands, Exchange

__all__ = ["KEY", "LIMITS", "mailbox", "receive_with", "reference"]

KEY = "node"

LIMITS = Limits(message=256 * 1024 * 1024)
"""The most bytes of one message, the same at both ends. Messages are far smaller; a large display is one event, though,
and must arrive. Whatever is larger holds up what is behind it."""

type Message = Commands | Exchange

_receive: Callable[[Message], None] | None = None


def receive_with(receive: Callable[[Message], None]) -> None:
    """From now on, give every message that reaches this process to `receive`, on the engine's loop."""
    global _receive
    _receive = receive


@actor(pinned=True, initial=0, idle_after=timedelta(days=3650), ask_timeout=timedelta(days=1))
async def mailbox(ctx: Context[int, Commands | Exchange]) -> None:
    """Hand over every message at once, so that the engine never queues behind a task."""
    async for message in ctx.inbox:
        if _receive is not None:
            _receive(message)


def reference(client: Client, address: str) -> Ref[Commands | Exchange]:
    """The mailbox of the node that listens on `address`."""
    return client.ref(mailbox, KEY, at=address)
