"""Identification of the local user who opened a connection to one of our loopback ports."""

import os
import socket
import struct

__all__ = ["is_of_this_user"]


def is_of_this_user(connection: socket.socket, tables: tuple[str, ...] = ("/proc/net/tcp", "/proc/net/tcp6")) -> bool:
    """Return whether the peer of a loopback connection is a process of this user, or of root.

    The peer must still hold its end, which may be half-closed. For a closed socket, the kernel shows user 0 and inode
    0, whoever owned it.

    Where the system has no such table, as on all but Linux, every peer is accepted. A Unix socket is protected by its
    folder.
    """
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or not os.path.exists(tables[0]):
        return True
    try:
        ours, peers = connection.getsockname(), connection.getpeername()
    except OSError:  # already closed
        return False
    wanted = f": {_formatted(peers)} {_formatted(ours)} "  # as seen from the peer's end
    for table in tables:
        try:
            with open(table) as rows:
                found = [row.split() for row in rows if wanted in row]
        except OSError:
            continue
        if found:
            user, inode = int(found[0][7]), int(found[0][9])  # see proc_net_tcp.rst of the kernel
            return inode != 0 and user in (os.getuid(), 0)
    return False


def _formatted(address: tuple[str, int]) -> str:
    """Format an address as the kernel's table does: 32-bit words in the machine's byte order, in hex."""
    host, port = address[:2]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
