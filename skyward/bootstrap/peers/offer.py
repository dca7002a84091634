"""Offers of an environment: a node that has one, and how another node of the pool receives it."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from typing import Any, Protocol

__all__ = [
    "PROCESSORS",
    "SMALL",
    "EnvironmentOffer",
    "EnvironmentRequest",
    "EnvironmentSource",
    "MachineKind",
    "can_offer_at",
    "seal",
]

SMALL = 256 * 1024 * 1024
"""Size in bytes of an environment below which a machine with uv and Python makes it as quickly itself: measured over a
connection of 1 Gbit/s, where an environment of twice that size takes about the same time in both ways."""

PROCESSORS = (
    "{ grep -m 1 -E '^(flags|Features)' /proc/cpuinfo; "
    "grep -h Model /proc/driver/nvidia/gpus/*/information | sort -u; } 2>/dev/null | cksum"
)
"""Shell text that prints a checksum of the instructions of the CPUs, and the models of the GPUs, of a machine."""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """Properties of a machine that an environment depends on.

    Attributes:
        system, machine: as `uname -s` and `uname -m` print them.
        libc: version of the C library, such as "glibc 2.36"; other text without "glibc" stands for another one.
        processors: output of `PROCESSORS`.
    """

    system: str
    machine: str
    libc: str
    processors: str = ""


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """Request to a node to send its environment to one other node, as the standard input of `serve`.

    Attributes:
        address: the address to listen on.
        token: what the other node has to present; sent in the clear, and valid once.
        key: secret that both nodes have from the client, and never send: see `seal`.
        kind: kind of the other machine.
        within: seconds until the program ends, whatever happens.
        least: size in bytes below which the environment need not be sent.
    """

    address: str
    token: str = field(repr=False)
    key: str = field(repr=False)
    kind: MachineKind
    within: float
    least: int = 0

    @classmethod
    def new(cls, address: str, kind: MachineKind, within: float, least: int = 0) -> "EnvironmentRequest":
        """Return a request with new secrets."""
        return cls(address, secrets.token_hex(32), secrets.token_hex(32), kind, within, least)

    def to_json(self) -> bytes:
        """Return the request as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, text: str) -> "EnvironmentRequest":
        """Return the request in a JSON text."""
        fields = json.loads(text)
        return cls(**{**fields, "kind": MachineKind(**fields["kind"])})


@dataclass(frozen=True, slots=True)
class EnvironmentOffer:
    """A node that waits for another one to receive its environment.

    Attributes:
        request: the request that it was given.
        node: its name, such as "node 0".
        port: port that it listens on.
        size: size of the environment in bytes.
        python: version of its Python.
        base: path of the interpreter that the environment needs besides; "" if that is sent with it.
        executable: path of the environment's interpreter.
        variables: variables of the environment, with the values of that machine.
    """

    request: EnvironmentRequest
    node: str
    port: int
    size: int
    python: str
    base: str
    executable: str
    variables: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        request: EnvironmentRequest,
        answer: Mapping[str, Any],
        node: str,
        executable: str,
        variables: Mapping[str, str],
    ) -> "EnvironmentOffer":
        """Return the offer that a node's answer to a request makes.

        Raises:
            LookupError, TypeError, ValueError: the answer is not one of `serve`.
        """
        return cls(
            request,
            node,
            int(answer["port"]),
            int(answer["size"]),
            str(answer["python"]),
            str(answer["base"]),
            executable,
            variables,
        )


class EnvironmentSource(Protocol):
    """The other nodes of a pool, as the source of an environment for one new node."""

    def is_ready(self) -> bool:
        """Return whether a node could send its environment now."""

    async def offer(self, kind: MachineKind, least: int, *, patient: bool) -> EnvironmentOffer | None:
        """Have a node wait for a machine of a kind; None if none can, or it has less than `least` bytes to send.

        With `patient`, a node that is busy with others is waited for: the only other source is the client.
        """


def can_offer_at(address: str) -> bool:
    """Return whether an environment may be offered at an address: one of a private network, as it is not encrypted."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return not (found.is_global or found.is_loopback or found.is_multicast or found.is_unspecified)


def seal(key: str, digest: str) -> str:
    """Return the proof that content with a SHA-256 was sent by a node that has the key; all in hex.

    `key` and `digest` have fixed lengths, so the hash cannot be extended to that of another digest.
    """
    return hashlib.sha256(f"{key}{digest}".encode()).hexdigest()
