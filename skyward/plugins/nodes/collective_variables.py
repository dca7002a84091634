"""Environment variables of a task in a collective, and the network on which its members find each other."""

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = ["address_towards", "interface_towards", "network_variables", "proxy_variables", "set_variables"]

_GET_ADDRESS: Final = 0x8915
"""SIOCGIFADDR of Linux: the address of a network interface."""

_INTERFACE: Final = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")

_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")
"""Variables in which gRPC finds a proxy."""


@contextmanager
def set_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and restore them at the end."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def network_variables(address: str) -> Mapping[str, str]:
    """Return the variables that select the network interface towards `address`, except those that are set already.

    Without them, gloo uses the address to which the host's own name resolves, which is often that of loopback.
    """
    interface = interface_towards(address)
    return {name: interface for name in _INTERFACE if name not in os.environ} if interface else {}


def proxy_variables(address: str) -> Mapping[str, str]:
    """Return the variable that keeps gRPC from asking a proxy for `address`; none where there is no proxy."""
    if not any(map(os.environ.get, _PROXIES)):
        return {}
    excepted = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy")  # noqa: SIM112  # as gRPC reads them
    return {"no_grpc_proxy": f"{excepted},{address}" if excepted else address}


def interface_towards(address: str) -> str | None:
    """Return the network interface from which packets for an IPv4 address leave; None if it cannot be found."""
    own = address_towards(address)
    names = [name for _, name in socket.if_nameindex()]
    if own is not None and own.startswith("127."):
        return next((name for name in names if name in ("lo", "lo0")), None)
    return next((name for name in names if own is not None and _address_of(name) == own), None)


def address_towards(address: str) -> str | None:
    """Return the address of this machine from which packets for an IPv4 address leave; None if there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # selects the route; nothing is sent
        except OSError:
            return None
        own: str = probe.getsockname()[0]
        return own


def _address_of(interface: str) -> str | None:
    import fcntl  # not on every system

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _GET_ADDRESS, struct.pack("256s", interface.encode()))
        except OSError:  # it has none, or this is not Linux
            return None
    return socket.inet_ntoa(answer[20:24])
