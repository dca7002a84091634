"""The schema: both sides agree on it, and malformed messages are refused."""

import json
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.panel_build import FOLDER, NOTE, digest
from scripts.panel_types import PATH, typescript
from skyward.errors import UsageError
from skyward.wire.protocol.decoding import LONGEST
from skyward_jupyter.magics.panel import open_pool, read_options
from skyward_kernel.commands import CommandHandler
from skyward_kernel.decoding import decode
from skyward_kernel.pools import PoolManager
from skyward_kernel.protocol import (
    COMMANDS,
    QUERIES,
    AskOutput,
    AskPrice,
    AskShell,
    AskStartLog,
    Attach,
    CancelCell,
    CancelTask,
    Command,
    Drain,
    NewPool,
    Reap,
    Refresh,
    Scale,
    StopAll,
    StopPool,
)
from skyward_kernel.queries import QueryHandler
from tests.unit.jupyter.conftest import Notebook
from tests.unit.panel.conftest import FakePool, task

pytestmark = pytest.mark.unit

EXAMPLES: list[Command] = [
    Refresh("1"),
    CancelTask("2", "p", 12),
    CancelCell("3", 7),
    Scale("4", "p", 2, 16),
    Drain("5", "p", 3),
    StopPool("6", "p"),
    StopAll("7"),
    NewPool("8", "train", {"--nodes": "2:4"}),
    Attach("9", "train"),
    Reap("10", "train-0123456789"),
    AskPrice("11", "train", {"--nodes": "2:4"}),
    AskShell("12", "p", 3),
    AskOutput("13", "p", None, 12),
    AskOutput("14", "p", 3, None),
    AskStartLog("15", "p", 3),
]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)


def test_typescript_types_are_generated_from_the_schema() -> None:
    assert PATH.read_text() == typescript(), "run: .venv/bin/python scripts/panel_types.py"


def test_every_command_has_an_example() -> None:
    assert {type(example) for example in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command.kind)
def test_commands_survive_a_round_trip_through_json(command: Command) -> None:
    assert decode(json.loads(json.dumps(asdict(command)))) == command


@given(JSON)
def test_arbitrary_json_is_decoded_or_refused(message: object) -> None:
    try:
        command = decode(message)
    except UsageError as error:
        text = str(error)
    else:
        assert isinstance(message, dict)
        text = command.kind
        assert text == message["kind"]
    assert "\n" not in text
    assert len(text) < 200


@given(st.sampled_from(EXAMPLES), st.data())
def test_command_with_one_invalid_field_is_refused_or_well_typed(command: Command, data: st.DataObject) -> None:
    message = asdict(command)
    field = data.draw(st.sampled_from(sorted(message)))
    message[field] = data.draw(JSON)
    try:
        decoded = decode(message)
    except UsageError:
        return
    allowed = {type(getattr(each, field)) for each in EXAMPLES if type(each) is type(command)}
    assert type(getattr(decoded, field)) in allowed


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ([], "Invalid message: not a JSON object."),
        ({}, "Unknown command 'None'."),
        ({"kind": "explode", "id": "1"}, "Unknown command 'explode'."),
        ({"kind": "drain", "id": "1", "pool": "p"}, "Invalid message: Drain lacks field 'node'."),
        ({"kind": "drain", "id": "1", "pool": "p", "node": True}, "Invalid message: Drain.node is not a whole number"),
        ({"kind": "drain", "id": "1", "pool": "p", "node": "3"}, "Invalid message: Drain.node is not a whole number"),
        (
            {"kind": "stop-pool", "id": "1", "pool": "x" * (LONGEST + 1)},
            "Invalid message: StopPool.pool is not a text of at most 10000 characters.",
        ),
        (
            {"kind": "new-pool", "id": "1", "name": "p", "options": {"--nodes": 2}},
            "Invalid message: a value in NewPool.options is not a text of at most 10000 characters.",
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
def test_equivalent_line_does_the_same_as_the_command(case: dict[str, Any], notebook: Notebook) -> None:
    """The panel's own tests check that it shows these lines; this one compares their effect with the command's."""
    pools: list[PoolManager] = []
    done: list[list[Any]] = []
    for run in ("command", "line"):
        manager = PoolManager(FakePool)  # type: ignore[arg-type]  # a fake Compute
        pool: Any = manager.get_or_open("train")
        pool.tasks = [task(12), task(13)]
        if run == "command":
            execute = CommandHandler(manager, partial(open_pool, manager))
            command: Any = decode({"id": "1", **case["command"]})
            if isinstance(command, QUERIES):
                QueryHandler(manager, read_options)(command)
            else:
                execute(command)
        else:
            notebook.magics._pools = notebook.magics._runner._pools = manager
            error = notebook(case["line"]).error
            assert error is None
        pools.append(manager)
        done.append(pool.done)
    assert done[0] == done[1]
    assert pools[0].names == pools[1].names
    asked: list[Any] = [[manager.get(name) for name in manager.names] for manager in pools]
    assert [pool.fields for pool in asked[0]] == [pool.fields for pool in asked[1]]
