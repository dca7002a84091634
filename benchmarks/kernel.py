"""What the kernel has counted of this process's connections, whichever part of the program made them."""

import contextlib
import os
import socket
import struct

import psutil

__all__ = ["bytes_sent"]

_BYTES_SENT = 200
"""Where Linux has the bytes sent, those sent again included, in what it tells of a connection (tcp(7), TCP_INFO)."""


def bytes_sent() -> dict[tuple[str, int], int]:
    """Bytes that left by each TCP connection of this process that is open, by its own end's address."""
    counted = {}
    for connection in psutil.Process().net_connections(kind="tcp"):
        if connection.status != psutil.CONN_ESTABLISHED or connection.fd < 0:
            continue
        with contextlib.suppress(OSError):  # closed meanwhile
            with socket.socket(fileno=os.dup(connection.fd)) as own:
                told = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_SENT + 8)
            counted[connection.laddr.ip, connection.laddr.port] = int(struct.unpack_from("=Q", told, _BYTES_SENT)[0])
    return counted
