"""The worker-adapter protocol: messages round-trip, and all other input is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.providers.protocol import Access, ExecAccess, Instance, LocalAccess, SSHAccess
from skyward.values.validation import FrozenMap
from skyward.wire.protocol import adapter as wire
from skyward.wire.protocol.adapter import LINE_BYTES, Malformed, decode, encode, proof_of

pytestmark = pytest.mark.unit

names = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)
amounts = st.floats(0, 1e12)
sets = st.frozensets(names, max_size=4)
hosts = st.from_regex(r"[a-z0-9][a-z0-9.]{0,20}", fullmatch=True)
accesses: st.SearchStrategy[Access] = st.one_of(
    st.builds(LocalAccess, host=hosts.map("127.{}".format), directory=names),
    st.builds(
        SSHAccess,
        host=hosts,
        port=st.none() | st.integers(1, 65535),
        user=st.none() | hosts,
        client_keys=st.lists(names, max_size=2).map(tuple),
        known_hosts=st.none() | names,
        host_key=st.none() | st.just("ssh-ed25519 AAAAC3Nz me@here"),
        config=st.none() | st.just("none"),
        directory=st.none() | names,
        grace=amounts,
        python=st.none() | names,
    ),
)
instances = st.builds(
    Instance,
    id=names,
    status=st.sampled_from(["provisioning", "running", "exited"]),
    access=st.none() | accesses,
    address=hosts,
    public_address=hosts,
    interface=names,
    spot=st.booleans(),
    hourly_price=amounts,
)
messages = st.one_of(
    st.builds(wire.Challenge, names),
    st.builds(wire.Proof, names, names),
    st.builds(wire.Welcome, names),
    st.builds(
        wire.Heartbeat,
        adapter_id=names,
        max_worker_groups=st.integers(-1, 10_000),
        workers_per_group=st.integers(1, 64),
        capabilities=sets,
        resources=st.dictionaries(names, amounts, max_size=4).map(FrozenMap),
        hourly_price=amounts,
        worker_group_ids=st.lists(names, max_size=4).map(tuple),
    ),
    st.just(wire.HeartbeatEcho()),
    st.builds(wire.StartWorkerGroup, names, st.just(""), sets),
    st.builds(wire.ShutdownWorkerGroup, names, st.text("abc0-", max_size=9)),
    st.builds(
        wire.Answer,
        request=names,
        worker_group_id=names,
        command=st.sampled_from(["start", "shutdown", "unknown"]),
        status=st.sampled_from(
            ["success", "too_much", "id_not_specified", "id_not_found", "unknown_action", "group_shutdown"]
        ),
        worker_ids=st.lists(names, max_size=3).map(tuple),
        capabilities=sets,
        workers=st.lists(instances, max_size=2).map(tuple),
        reason=names.map("{}\nand so on".format),
    ),
    st.builds(wire.Goodbye, names, st.booleans()),
)

HEARTBEAT: dict[str, Any] = json.loads(encode(wire.Heartbeat("a", 2)))


@given(messages)
def test_message_round_trip(message: wire.AdapterMessage) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


def answer(access: Access | None) -> wire.Answer:
    return wire.Answer("r", "g", "start", "success", workers=(Instance("g", "running", access),))


SSH: dict[str, Any] = json.loads(encode(answer(SSHAccess("h"))))["workers"][0]["access"]


def refused(line: bytes) -> bool:
    """Return whether a line is refused, with a one-line message. Any other exception fails the test."""
    message = ""
    try:
        decode(line)
    except Malformed as error:
        message = str(error)
    assert len(message) < 500
    assert "\n" not in message
    return bool(message)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(noise: bytes) -> None:
    assert refused(noise)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(message=messages, data=st.data())
def test_message_with_replaced_field_is_refused_or_valid(message: wire.AdapterMessage, data: Any) -> None:
    """Replace each field in turn: the line is decoded as a valid message or refused."""
    words = json.loads(encode(message))
    spot = data.draw(st.sampled_from(sorted(words)))
    words[spot] = data.draw(json_values)
    line = json.dumps(words).encode() + b"\n"
    if not refused(line):
        read = decode(line)
        assert isinstance(read, wire.UnknownCommand) or decode(encode(read)) == read


@given(message=messages, data=st.data())
def test_truncated_or_corrupted_message_is_refused_or_valid(message: wire.AdapterMessage, data: Any) -> None:
    line = encode(message)
    at = data.draw(st.integers(0, len(line) - 2))
    assert refused(line[:at])
    bent = line[:at] + data.draw(st.binary(min_size=1, max_size=2)) + line[at + 1 :]
    if not refused(bent):
        assert isinstance(bent.decode(), str)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[" * 60_000, "not JSON"),
        (b'{"v":2,"type":' + b"[" * 30_000 + b"]" * 30_000 + b"}", "no"),
        (b" " * (LINE_BYTES + 1), "65537 bytes"),
        (b'{"v":' + b"1" * 5000 + b"}", "not JSON"),
        (b'{"v":2,"v":2,"type":"heartbeat_echo"}', "twice"),
        (b'{"v":1,"type":"heartbeat_echo"}', "not of version 2"),
        (b'{"v":true,"type":"heartbeat_echo"}', "not of version 2"),
        (b'{"v":2,"type":"heartbeat_echo","more":1}', "HeartbeatEcho has no field 'more'"),
        (b'{"v":2,"type":"challenge"}', "Challenge lacks field 'nonce'"),
        (b'{"v":2,"type":"challenge","nonce":"\\ud800"}', "printable"),
        (b'{"v":2,"type":"challenge","nonce":""}', "empty"),
        (b'{"v":2,"type":"dance"}', "request"),
        (b"null", "not a JSON object"),
        (b"cbuiltins\neval\n(S'1'\ntR.", "not JSON"),
        (json.dumps({**HEARTBEAT, "hourly_price": float("nan")}).encode(), "NaN"),
        (json.dumps({**HEARTBEAT, "hourly_price": -1}).encode(), "at least 0"),
        (json.dumps({**HEARTBEAT, "hourly_price": True}).encode(), "at least 0"),
        (json.dumps({**HEARTBEAT, "hourly_price": 0}).replace("0", "1e999").encode(), "at least 0|whole"),
        (json.dumps({**HEARTBEAT, "max_worker_groups": -2}).encode(), "from -1"),
        (json.dumps({**HEARTBEAT, "worker_group_ids": ["g"] * 1001}).encode(), "at most 1000"),
    ],
)
def test_error_names_the_problem(line: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        decode(line)


@pytest.mark.parametrize(
    "access",
    [
        {"kind": "local", "host": "10.0.0.1", "directory": "/x"},
        {"kind": "local", "host": "127.0.0.1", "directory": "/x", "python": "/tmp/evil"},
        {"kind": "exec", "command": "rm"},
        {"kind": ["local"]},
        {**SSH, "host": "-oProxyCommand=x"},
        {**SSH, "config": "/tmp/evil"},
        {**SSH, "host_key": "one\nmore"},
    ],
)
def test_machine_that_would_run_a_local_command_is_refused(access: dict[str, Any]) -> None:
    words = json.loads(encode(answer(None)))
    words["workers"][0]["access"] = access
    assert refused(json.dumps(words).encode())


def test_controller_chooses_interpreter_of_local_machine() -> None:
    there = LocalAccess("127.0.0.1", "/x", python="/elsewhere/python")
    message = decode(encode(answer(there)))
    assert isinstance(message, wire.Answer)
    assert message.workers[0].access == LocalAccess("127.0.0.1", "/x")


def test_invalid_message_is_refused_before_sending() -> None:
    with pytest.raises(Malformed):
        encode(wire.Goodbye("x" * 100_000))
    with pytest.raises(Malformed, match="SSH configuration"):
        encode(answer(SSHAccess("h", config="c")))
    with pytest.raises(Malformed, match="entered by a local command of the adapter"):
        encode(answer(ExecAccess(("docker", "exec", "-i", "x"), "container x")))


def test_unknown_command_is_decoded_with_its_request() -> None:
    assert decode(b'{"v":2,"type":"dance","request":"r-1","steps":3}') == wire.UnknownCommand("r-1")


def test_proof_is_valid_for_one_role_challenge_and_token_only() -> None:
    proof = proof_of("token", "adapter", "c", "n")
    others = [("other", "adapter", "c", "n"), ("token", "controller", "c", "n"), ("token", "adapter", "d", "n")]
    assert proof == proof_of("token", "adapter", "c", "n")
    assert proof not in {proof_of(token, role, c, n) for token, role, c, n in others}  # type: ignore[arg-type]
    assert "token" not in proof


def test_seal_accepts_only_lines_of_the_peer_in_order() -> None:
    def seal(role: Any = "adapter", token: str = "token", challenge: str = "c") -> wire.Seal:
        return wire.Seal(token, role, challenge, "n")

    ours, theirs = seal(), seal()
    first, second = ours.close(b"one\n"), ours.close(b"two\n")
    assert (theirs.open(first), theirs.open(second)) == (b"one\n", b"two\n")
    refused = [
        (seal(), second),
        (seal("controller"), first),
        (seal(token="other"), first),
        (seal(challenge="d"), first),
        (seal(), first.replace(b"one", b"won")),
        (seal(), b"one\n"),
        (theirs, second),
    ]
    for other, line in refused:
        with pytest.raises(Malformed, match="does not have the expected code"):
            other.open(line)


def test_capabilities_may_be_an_object_with_an_amount_of_one() -> None:
    """Regression: a heartbeat with `{"gpu": 1}`, the form of Scaler, ended the connection."""
    line = json.dumps({**HEARTBEAT, "capabilities": {"gpu": 1, "fast": 1}}).encode() + b"\n"
    assert decode(line) == wire.Heartbeat("a", 2, capabilities=frozenset({"gpu", "fast"}))


@pytest.mark.parametrize("amount", [2, 0, 0.5, True, None, "1"])
def test_other_amounts_of_a_capability_are_refused(amount: object) -> None:
    line = json.dumps({**HEARTBEAT, "capabilities": {"gpu": amount}}).encode() + b"\n"
    with pytest.raises(Malformed, match="is not a list of names, or an object with 1 for each name"):
        decode(line)
