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
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NoReturn

from skyward.providers.protocol import Access, ExecAccess, Instance, LocalAccess, SSHAccess
from skyward.values.validation import FrozenMap
from skyward.wire.protocol.decoding import (
    Malformed,
    Reader,
    amount,
    host,
    named,
    one_line,
    reader_of,
    record,
    sentence,
    whole,
    wrong,
)

__all__ = [
    "CODE_BYTES",
    "GREETING_BYTES",
    "LINE_BYTES",
    "PROTOCOL",
    "AdapterMessage",
    "Answer",
    "Challenge",
    "Goodbye",
    "Heartbeat",
    "HeartbeatEcho",
    "Malformed",
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

type _Name = Annotated[str, named]
type _Text = Annotated[str, one_line]
type _Sentence = Annotated[str, sentence]
type _Amount = Annotated[float, amount]
type _Capabilities = Annotated[frozenset[str], _capability_names]

_HOST_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+=*( [\w@.:-]+)?")


def _loopback(value: object, name: str) -> str:
    address = host(value, name)
    return address if address.startswith("127.") else wrong(name, "a loopback address")


def _capability_names(value: object, name: str) -> frozenset[str]:
    """Return capabilities, given as a list of names or, as Scaler gives them, as an object with an amount of 1 each."""
    if isinstance(value, dict):
        if any(isinstance(each, bool) or each != 1 for each in value.values()):
            wrong(name, "a list of names, or an object with 1 for each name: amounts are resources")
        value = list(value)
    return _names(value, name)


def _config(value: object, name: str) -> str | None:
    return "none" if value == "none" else None if value is None else wrong(name, "none, as the adapter keeps it")


def _host_key(value: object, name: str) -> str:
    line = named(value, name)
    return line if _HOST_KEY.fullmatch(line) else wrong(name, "a host key such as 'ssh-ed25519 AAAA...'")


def _access(value: object, name: str) -> Access | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        wrong(name, "a JSON object")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in _ACCESS:
        wrong(f"the kind of {name}", f"one of {', '.join(_ACCESS)}")
    return _ACCESS[kind]({key: each for key, each in value.items() if key != "kind"}, name)


_names: Reader[frozenset[str]] = reader_of(frozenset[_Name])
_optional_name: Reader[str | None] = reader_of(_Name | None)
_optional_amount: Reader[float | None] = reader_of(_Amount | None)
_ACCESS: Mapping[str, Reader[Access]] = {
    "local": record(LocalAccess, omit={"python"}, host=_loopback, directory=named),
    "ssh": record(
        SSHAccess,
        host=host,
        port=reader_of(Annotated[int, whole(1, 65535)] | None),
        user=reader_of(Annotated[str, host] | None),
        client_keys=reader_of(tuple[_Name, ...]),
        known_hosts=_optional_name,
        host_key=reader_of(Annotated[str, _host_key] | None),
        config=_config,
        directory=_optional_name,
        grace=amount,
        python=_optional_name,
        answer_within=_optional_amount,
        retry_every=_optional_amount,
    ),
}
_instance = record(
    Instance,
    id=named,
    access=_access,
    address=one_line,
    public_address=one_line,
    interface=one_line,
    hourly_price=amount,
)

type _Machine = Annotated[Instance, _instance]


type AdapterCommand = Literal["start", "shutdown", "unknown"]
type Status = Literal["success", "too_much", "id_not_specified", "id_not_found", "unknown_action", "group_shutdown"]


@dataclass(frozen=True, slots=True)
class Challenge:
    """Controller, first message: a challenge to prove knowledge of the token."""

    nonce: _Name


@dataclass(frozen=True, slots=True)
class Proof:
    """Adapter: its proof, and a challenge to the controller, so that no other program is obeyed."""

    proof: _Name
    nonce: _Name


@dataclass(frozen=True, slots=True)
class Welcome:
    """Controller: its own proof."""

    proof: _Name


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

    adapter_id: _Name
    max_worker_groups: Annotated[int, whole(-1)]
    workers_per_group: Annotated[int, whole(1)] = 1
    capabilities: _Capabilities = frozenset()
    resources: FrozenMap[_Name, _Amount] = field(default_factory=FrozenMap)
    hourly_price: _Amount = 0.0
    worker_group_ids: tuple[_Name, ...] = ()


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

    request: _Name
    worker_group_id: _Text = ""
    capabilities: _Capabilities = frozenset()


@dataclass(frozen=True, slots=True)
class ShutdownWorkerGroup:
    """Controller: end a group. Repeated with the same `request` until it is answered."""

    request: _Name
    worker_group_id: _Text


@dataclass(frozen=True, slots=True)
class Answer:
    """Adapter: the result of a command.

    Attributes:
        worker_ids: the slots of a started group.
        capabilities: of the started group.
        workers: the machines of a started group, with how each is entered.
        reason: one sentence, if the command failed.
    """

    request: _Name
    worker_group_id: _Text
    command: AdapterCommand
    status: Status
    worker_ids: tuple[_Name, ...] = ()
    capabilities: _Capabilities = frozenset()
    workers: tuple[_Machine, ...] = ()
    reason: _Sentence = ""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """Either side: end of the connection.

    Attributes:
        ends_groups: whether every group ends too: the adapter's are gone, or the controller wants none.
    """

    reason: _Sentence
    ends_groups: bool = False


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A well-formed message of an unknown type."""

    request: str


type AdapterMessage = (
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


def encode(message: AdapterMessage) -> bytes:
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


def decode(line: bytes) -> AdapterMessage | UnknownCommand:
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
    found = _READERS.get(name)
    if found is None:
        return UnknownCommand(named(words.get("request"), "request"))
    return found(words, "a message")


def _no_number(name: str) -> NoReturn:
    raise Malformed(f"A message contains {name}, which is not a number.")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise Malformed("A message contains a field twice.")
    return found


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
_READERS: Mapping[str, Reader[AdapterMessage]] = {name: record(kind) for name, kind in _TYPES.items()}
