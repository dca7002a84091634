"""Telling which user of this machine has opened a connection to one of our loopback ports."""

import os
import socket
import struct

__all__ = ["is_of_this_user"]


def is_of_this_user(connection: socket.socket, tables: tuple[str, ...] = ("/proc/net/tcp", "/proc/net/tcp6")) -> bool:
    """Return whether the other end of a connection over loopback belongs to a process of this user, or of root.

    The other end must still be held by a process, though it may be half closed. Of a socket that was closed, the
    kernel shows user 0 and inode 0, whoever had it.

    Where the system has no such table, which only Linux has, everybody passes. A Unix socket is guarded by its folder.
    """
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or not os.path.exists(tables[0]):
        return True
    try:
        here, there = connection.getsockname(), connection.getpeername()
    except OSError:  # it is gone
        return False
    wanted = f": {_written(there)} {_written(here)} "  # as their end has it
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


def _written(address: tuple[str, int]) -> str:
    """An IPv4 or IPv6 address and port as the kernel's table shows them: words of the machine's byte order, in hex."""
    host, port = address[:2]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
