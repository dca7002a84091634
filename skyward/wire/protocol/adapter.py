"""The worker-adapter protocol between an external source of nodes and the controller of a pool.

A worker group is one node with a number of slots. The adapter connects, and both sides prove that they know the token
without revealing it. Then the adapter sends heartbeats, which are echoed, and answers commands. Each message is one
JSON object on a line of its own; no part of it is executed, and a line that is not exactly such a message is refused.
After the proofs each line begins with a code (`Seal`), so that a relay cannot add, change, repeat or reorder lines.

Source: spec/ "Worker Adapter Protocol".
"""

import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NoReturn

from skyward.providers.protocol import Access, ExecAccess, Instance, InstanceStatus, LocalAccess, SSHAccess
from skyward.values.validation import FrozenMap
from skyward.wire.protocol.validation import (
    Malformed,
    amount,
    amounts,
    boolean,
    host,
    named,
    names,
    one_of,
    optional,
    sentence,
    several,
    text,
    whole,
    wrong,
)

__all__ = [
    "CODE_BYTES",
    "GREETING_BYTES",
    "LINE_BYTES",
    "PROTOCOL",
    "Answer",
    "Challenge",
    "Goodbye",
    "Heartbeat",
    "HeartbeatEcho",
    "Malformed",
    "Message",
    "Proof",
    "Seal",
    "ShutdownWorkerGroup",
    "StartWorkerGroup",
    "Status",
    "UnknownCommand",
    "Welcome",
    "decode",
    "encode",
    "proof_of",
]

PROTOCOL = 2
LINE_BYTES = 64 * 1024
"""Bytes of the longest message that either side reads."""

GREETING_BYTES = 512
"""Bytes of the longest line that either side reads before the proof."""

CODE_BYTES = 65
"""Bytes before the message of a line, after the proofs: 64 hexadecimal digits and a space."""

_HOST_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+=*( [\w@.:-]+)?")


type Command = Literal["start", "shutdown", "unknown"]
type Status = Literal["success", "too_much", "id_not_specified", "id_not_found", "unknown_action", "group_shutdown"]


@dataclass(frozen=True, slots=True)
class Challenge:
    """Controller, first message: a challenge to prove knowledge of the token."""

    nonce: str


@dataclass(frozen=True, slots=True)
class Proof:
    """Adapter: its proof, and a challenge to the controller, so that no other program is obeyed."""

    proof: str
    nonce: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Controller: its own proof."""

    proof: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Adapter, every few seconds: its capacity and its groups.

    Attributes:
        adapter_id: identity of the adapter; unchanged over reconnects while it has the same groups.
        max_worker_groups: how many groups it can have at a time; -1 for no limit.
        workers_per_group: slots of a node.
        capabilities: of each node.
        resources: of each node.
        hourly_price: of each node, USD.
        worker_group_ids: its current groups.
    """

    adapter_id: str
    max_worker_groups: int
    workers_per_group: int = 1
    capabilities: frozenset[str] = frozenset()
    resources: FrozenMap[str, float] = field(default_factory=FrozenMap)
    hourly_price: float = 0.0
    worker_group_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatEcho:
    """Controller: a heartbeat was received."""


@dataclass(frozen=True, slots=True)
class StartWorkerGroup:
    """Controller: start a group. Repeated with the same `request` until it is answered; starts at most one group.

    Attributes:
        worker_group_id: empty; the adapter assigns the id.
        capabilities: required of the group.
    """

    request: str
    worker_group_id: str = ""
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ShutdownWorkerGroup:
    """Controller: end a group. Repeated with the same `request` until it is answered."""

    request: str
    worker_group_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Adapter: the result of a command.

    Attributes:
        worker_ids: the slots of a started group.
        capabilities: of the started group.
        workers: the machines of a started group, with how each is entered.
        reason: one sentence, if the command failed.
    """

    request: str
    worker_group_id: str
    command: Command
    status: Status
    worker_ids: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    workers: tuple[Instance, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Either side: end of the connection.

    Attributes:
        ends_groups: whether every group ends too: the adapter's are gone, or the controller wants none.
    """

    reason: str
    ends_groups: bool = False


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A well-formed message of an unknown type."""

    request: str


type Message = (
    Challenge | Proof | Welcome | Heartbeat | HeartbeatEcho | StartWorkerGroup | ShutdownWorkerGroup | Answer | Goodbye
)


def proof_of(token: str, role: Literal["adapter", "controller"], challenge: str, nonce: str) -> str:
    """Return the proof for `challenge`, made by the other side, and `nonce`; it requires the token."""
    return hmac.new(token.encode(), f"{role}:{challenge}:{nonce}".encode(), "sha256").hexdigest()


class Seal:
    """The codes of the lines that one side sends over one connection, after the proofs.

    Each is the HMAC-SHA256 of the side, the number of the line and the line, under a key of this connection alone.
    """

    def __init__(self, token: str, role: Literal["adapter", "controller"], challenge: str, nonce: str) -> None:
        self._key = hmac.digest(token.encode(), f"session:{challenge}:{nonce}".encode(), "sha256")
        self._role = role
        self._number = 0

    def close(self, line: bytes) -> bytes:
        """Return the next line to send, with its code."""
        return self._code(line) + b" " + line

    def open(self, line: bytes) -> bytes:
        """Return the next received line, without its code.

        Raises:
            Malformed: the other side did not send it, or not as the next one.
        """
        code, _, rest = line.partition(b" ")
        if not hmac.compare_digest(code, self._code(rest)):
            raise Malformed("A line does not have the expected code.")
        return rest

    def _code(self, line: bytes) -> bytes:
        self._number += 1
        content = f"{self._role}:{self._number}:".encode() + line
        return hmac.digest(self._key, content, "sha256").hex().encode()


def encode(message: Message) -> bytes:
    """Return the message as a line.

    Raises:
        Malformed: the other side would refuse it.
    """
    plain = {"v": PROTOCOL, "type": _NAMES[type(message)], **_plain_fields(message)}
    line = json.dumps(plain, separators=(",", ":")).encode() + b"\n"
    decode(line)
    return line


def _plain_fields(value: Any) -> dict[str, Any]:
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}


def _plain(value: object) -> object:
    match value:
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return dict(value)
        case Instance():
            return _plain_fields(value)
        case LocalAccess(host, directory):  # the controller chooses the interpreter
            return {"kind": "local", "host": host, "directory": directory}
        case ExecAccess():
            raise Malformed("A machine that is entered by a local command of the adapter cannot be shared.")
        case SSHAccess():
            if value.config not in (None, "none"):
                raise Malformed("A machine that needs an SSH configuration of the adapter cannot be shared.")
            return {"kind": "ssh", **_plain_fields(value)}
    return value


def decode(line: bytes) -> Message | UnknownCommand:
    """Return the message of a line.

    Raises:
        Malformed: it is not a message.
    """
    if len(line) > LINE_BYTES:
        raise Malformed(f"A line has {len(line)} bytes; the limit is {LINE_BYTES}.")
    try:
        words = json.loads(line.decode(), parse_constant=_no_number, object_pairs_hook=_once)
    except Malformed:
        raise
    except (ValueError, RecursionError) as error:
        raise Malformed(f"A line is not JSON ({type(error).__name__}).") from None
    if not isinstance(words, dict):
        raise Malformed("A line is not a JSON object.")
    version, name = words.pop("v", None), words.pop("type", None)
    if type(version) is not int or version != PROTOCOL:
        raise Malformed(f"A message is not of version {PROTOCOL}, the version of the protocol that this side supports.")
    if not isinstance(name, str):
        raise Malformed("A message has no type.")
    found = _TYPES.get(name)
    if found is None:
        return UnknownCommand(named(words.get("request"), "request"))
    message: Message = _read(found, words)
    return message


def _no_number(name: str) -> NoReturn:
    raise Malformed(f"A message contains {name}, which is not a number.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise Malformed("A message contains a field twice.")
    return found


def _read(kind: type[Any], words: Any) -> Any:
    """Return a value of `kind`, with exactly its fields."""
    readers = _FIELDS[kind]
    if not isinstance(words, dict):
        raise Malformed(f"A {kind.__name__} is not a JSON object.")
    if words.keys() != readers.keys():
        differ = ", ".join(sorted(repr(each[:40]) for each in words.keys() ^ readers.keys())[:3])
        raise Malformed(f"A {kind.__name__} has unexpected or missing fields: {differ}.")
    return kind(**{name: read(words[name], name) for name, read in readers.items()})


def _loopback(value: object, name: str) -> str:
    address = host(value, name)
    return address if address.startswith("127.") else wrong(name, "a loopback address")


def _config(value: object, name: str) -> str | None:
    return "none" if value == "none" else None if value is None else wrong(name, "none, as the adapter keeps it")


def _host_key(value: object, name: str) -> str:
    line = named(value, name)
    return line if _HOST_KEY.fullmatch(line) else wrong(name, "a host key such as 'ssh-ed25519 AAAA...'")


def _access(value: object, name: str) -> Access | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        wrong(name, "an object")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in _ACCESS:
        wrong(f"the kind of {name}", f"one of {', '.join(_ACCESS)}")
    access: Access = _read(_ACCESS[kind], {key: each for key, each in value.items() if key != "kind"})
    return access


def _instance(value: object, name: str) -> Instance:
    found: Instance = _read(Instance, value)
    return found


_ACCESS: Mapping[str, type[Access]] = {"local": LocalAccess, "ssh": SSHAccess}
_FIELDS: Mapping[type[Any], Mapping[str, Callable[[object, str], Any]]] = {
    LocalAccess: {"host": _loopback, "directory": named},
    SSHAccess: {
        "host": host,
        "port": optional(whole(1, 65535)),
        "user": optional(host),
        "client_keys": several(named),
        "known_hosts": optional(named),
        "host_key": optional(_host_key),
        "config": _config,
        "directory": optional(named),
        "grace": amount,
        "python": optional(named),
        "answer_within": optional(amount),
        "retry_every": optional(amount),
        "lent": boolean,
    },
    Instance: {
        "id": named,
        "status": one_of(InstanceStatus),
        "access": _access,
        "address": text,
        "public_address": text,
        "interface": text,
        "spot": boolean,
        "hourly_price": amount,
    },
    Challenge: {"nonce": named},
    Proof: {"proof": named, "nonce": named},
    Welcome: {"proof": named},
    Heartbeat: {
        "adapter_id": named,
        "max_worker_groups": whole(-1),
        "workers_per_group": whole(1),
        "capabilities": names,
        "resources": amounts,
        "hourly_price": amount,
        "worker_group_ids": several(named),
    },
    HeartbeatEcho: {},
    StartWorkerGroup: {"request": named, "worker_group_id": text, "capabilities": names},
    ShutdownWorkerGroup: {"request": named, "worker_group_id": text},
    Answer: {
        "request": named,
        "worker_group_id": text,
        "command": one_of(Command),
        "status": one_of(Status),
        "worker_ids": several(named),
        "capabilities": names,
        "workers": several(_instance),
        "reason": sentence,
    },
    Goodbye: {"reason": sentence, "ends_groups": boolean},
}
_TYPES: Mapping[str, type[Any]] = {
    "challenge": Challenge,
    "proof": Proof,
    "welcome": Welcome,
    "heartbeat": Heartbeat,
    "heartbeat_echo": HeartbeatEcho,
    "start_worker_group": StartWorkerGroup,
    "shutdown_worker_group": ShutdownWorkerGroup,
    "answer": Answer,
    "goodbye": Goodbye,
}
_NAMES: Mapping[type[Any], str] = {kind: name for name, kind in _TYPES.items()}
