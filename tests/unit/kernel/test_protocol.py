"""The schema: both sides agree on it, and malformed messages are refused."""

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.panel_build import FOLDER, NOTE, digest
from scripts.panel_types import PATH, typescript
from skyward.errors import UsageError
from skyward.wire.protocol.decoding import LONGEST
from skyward_kernel.commands.context import Context
from skyward_kernel.panel.decoding import decode
from skyward_kernel.panel.execution import run_command
from skyward_kernel.panel.protocol import (
    REQUESTS,
    AskCheck,
    AskOutput,
    AskPrice,
    AskShell,
    AskStartLog,
    Dismiss,
    Refresh,
    Request,
    RunCommand,
)
from skyward_kernel.pools import PoolManager
from tests.notebook import Notebook
from tests.unit.kernel.conftest import FakePool, task

pytestmark = pytest.mark.unit

EXAMPLES: list[Request] = [
    Refresh("1"),
    RunCommand("2", "cancel", {"pool": "p", "task": 12}),
    RunCommand("3", "cancel", {"cell": 7}),
    RunCommand("4", "scale", {"pool": "p", "nodes": "2:16"}),
    RunCommand("5", "drain", {"pool": "p", "node": 3}),
    RunCommand("6", "down", {"pool": "p"}),
    RunCommand("7", "down", {"every": True}),
    RunCommand("8", "up", {"pool": "train", "options": {"--nodes": "2:4"}}),
    RunCommand("9", "attach", {"pool": "train"}),
    RunCommand("10", "reap", {"pools": ("train-0123456789",)}),
    AskPrice("11", "train", {"--nodes": "2:4"}),
    AskShell("12", "p", 3),
    AskOutput("13", "p", None, 12),
    AskOutput("14", "p", 3, None),
    AskStartLog("15", "p", 3),
    Dismiss("16", "p"),
    AskCheck("17", "train", {"--nodes": "2:4"}),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def test_typescript_types_are_generated_from_the_schema() -> None:
    assert PATH.read_text() == typescript(), "run: make panel"


def test_every_request_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == set(REQUESTS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each.kind} {getattr(each, 'command', '')}")
def test_requests_survive_a_round_trip_through_json(example: Request) -> None:
    assert decode(json.loads(json.dumps(asdict(example)))) == example


@given(JSON)
def test_arbitrary_json_is_decoded_or_refused(message: object) -> None:
    try:
        request = decode(message)
    except UsageError as error:
        text = str(error)
    else:
        assert isinstance(message, dict)
        text = request.kind
        assert text == message["kind"]
    assert "\n" not in text
    assert len(text) < 200


@given(st.sampled_from(EXAMPLES), st.data())
def test_request_with_one_invalid_field_is_refused_or_well_typed(example: Request, data: st.DataObject) -> None:
    message = asdict(example)
    field = data.draw(st.sampled_from(sorted(message)))
    message[field] = data.draw(JSON)
    try:
        decoded = decode(message)
    except UsageError:
        return
    allowed = {type(getattr(each, field)) for each in EXAMPLES if type(each) is type(example)}
    assert type(getattr(decoded, field)) in allowed


@given(st.sampled_from([each for each in EXAMPLES if isinstance(each, RunCommand)]), st.data())
def test_command_with_one_invalid_argument_is_refused_or_well_typed(example: RunCommand, data: st.DataObject) -> None:
    message = asdict(example)
    name = data.draw(st.sampled_from(sorted(message["arguments"])))
    message["arguments"][name] = data.draw(JSON)
    try:
        decoded = decode(message)
    except UsageError:
        return
    assert isinstance(decoded, RunCommand)
    assert type(decoded.arguments[name]) is type(example.arguments[name])


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ([], "Invalid message: not a JSON object."),
        ({}, "Unknown request 'None'."),
        ({"kind": "explode", "id": "1"}, "Unknown request 'explode'."),
        ({"kind": "ask-shell", "id": "1", "pool": "p"}, "Invalid message: AskShell lacks field 'node'."),
        (
            {"kind": "ask-shell", "id": "1", "pool": "p", "node": True},
            "Invalid message: AskShell.node is not a whole number",
        ),
        ({"kind": "run", "id": "1", "command": "explode", "arguments": {}}, "Unknown command 'explode'."),
        (
            {"kind": "run", "id": "1", "command": "config", "arguments": {"pool": "p"}},
            "Command config cannot be sent to the kernel.",
        ),
        (
            {"kind": "run", "id": "1", "command": "drain", "arguments": {"pool": "p"}},
            "Command drain takes the arguments node, pool.",
        ),
        (
            {"kind": "run", "id": "1", "command": "down", "arguments": {"pool": "p", "every": True}},
            "Command down takes the arguments pool, or every.",
        ),
        (
            {"kind": "run", "id": "1", "command": "drain", "arguments": {"pool": "p", "node": "3"}},
            "Invalid message: drain.node is not a whole number",
        ),
        (
            {"kind": "run", "id": "1", "command": "down", "arguments": {"pool": "x" * (LONGEST + 1)}},
            "Invalid message: down.pool is not a text of at most 10000 characters.",
        ),
        (
            {"kind": "run", "id": "1", "command": "up", "arguments": {"pool": "p", "options": {"--nodes": 2}}},
            "Invalid message: a value in up.options is not a text of at most 10000 characters.",
        ),
    ],
)
def test_malformed_message_is_explained(message: Any, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode(message)
    assert str(caught.value).startswith(says)


def test_panel_was_built_from_its_sources() -> None:
    assert NOTE.read_text().strip() == digest(), "run: make panel"


@pytest.mark.parametrize("case", json.loads((FOLDER / "test" / "equivalents.json").read_text()), ids=str)
def test_equivalent_line_does_the_same_as_the_command(
    case: dict[str, Any], notebook: Notebook, pools: PoolManager
) -> None:
    """The panel's own tests check that it shows these lines; this one compares their effect with the command's."""
    others = PoolManager(FakePool)  # type: ignore[arg-type]  # a fake Compute
    for manager in (pools, others):
        pool: Any = manager.get_or_open("train")
        pool.tasks = [task(12), task(13)]
    first, second = pools.get("train"), others.get("train")
    assert notebook(case["line"]).error is None
    request = decode({"id": "1", **case["command"]})
    assert isinstance(request, RunCommand)
    run_command(Context(others), request)
    assert first.done == second.done  # type: ignore[attr-defined]  # fake pools
    assert pools.names == others.names
    fields = [[manager.get(name).fields for name in manager.names] for manager in (pools, others)]  # type: ignore[attr-defined]  # fake pools
    assert fields[0] == fields[1]
