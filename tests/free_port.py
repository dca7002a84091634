"""Ports for servers that tests start."""

import contextlib
import secrets
import socket


def free_port(ip: str = "127.0.0.1") -> int:
    """A port that nobody else takes before it is listened at.

    It is below those that the system gives to whoever asks for any.
    """
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((ip, port))
            return port
