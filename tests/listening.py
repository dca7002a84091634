"""Ports at which processes listen."""

import psutil

__all__ = ["listening_at"]


def listening_at(process: psutil.Process) -> list[tuple[str, int]]:
    """Return the addresses and ports at which a process listens for TCP connections."""
    found = process.net_connections(kind="tcp")
    return [(each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN]
