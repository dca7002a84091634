"""Counters of the kernel for the TCP connections of this process, whichever code opened them."""

import contextlib
import os
import socket
import struct

import psutil

__all__ = ["bytes_sent"]

_BYTES_SENT = 200
"""Offset of the bytes sent, including retransmissions, in the connection info of Linux (tcp(7), TCP_INFO)."""


def bytes_sent() -> dict[tuple[str, int], int]:
    """Return the bytes sent by each open TCP connection of this process, by its local address."""
    counted = {}
    for connection in psutil.Process().net_connections(kind="tcp"):
        if connection.status != psutil.CONN_ESTABLISHED or connection.fd < 0:
            continue
        with contextlib.suppress(OSError):  # closed meanwhile
            with socket.socket(fileno=os.dup(connection.fd)) as own:
                told = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_SENT + 8)
            counted[connection.laddr.ip, connection.laddr.port] = int(struct.unpack_from("=Q", told, _BYTES_SENT)[0])
    return counted
