"""The listener's part of the mutual proof of a bulk path, for tests that stand in for a node."""

import selectors
import socket

from skyward.wire.transport.proof import prove_to_caller

__all__ = ["accept"]


def accept(listener: socket.socket, key: bytes) -> socket.socket:
    """Accept a connection, and run the mutual proof."""
    connection = listener.accept()[0]
    connection.setblocking(False)
    with selectors.DefaultSelector() as selector:
        for event in prove_to_caller(connection, key):
            selector.register(connection, event)
            assert selector.select(20), "the caller says nothing"
            selector.unregister(connection)
    connection.setblocking(True)
    return connection
