"""The panel with a real kernel: state while a cell blocks it, and commands that are executed meanwhile."""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skyward_kernel.panel.protocol import COMMAND_TARGET, STATE_COMM, VERSION
from tests.local.kernel import plain_kernel
from tests.local.test_stopping import stands_still

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

LIMIT = 50.0
BEATS = "import time\nwhile True:\n    open({path!r}, 'a').write('.')\n    time.sleep(0.01)"


class Panel:
    """A front end with the panel, and a command comm on its own subshell."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._comm = uuid.uuid4().hex
        self._subshell = ""
        self.messages: list[dict[str, Any]] = []
        self.tables: dict[str, dict[str, Any]] = {}
        self.idle: set[str] = set()
        self.errors: dict[str, str] = {}
        self.numbers: dict[str, int] = {}

    def connect(self) -> None:
        """Open the command comm."""
        control = self._client.session.msg("create_subshell_request", {})
        self._client.control_channel.send(control)
        reply = self._client.get_control_msg(timeout=LIMIT)
        self._subshell = reply["content"]["subshell_id"]
        content = {"target_name": COMMAND_TARGET, "data": {"client": "test", "version": VERSION}}
        self._shell("comm_open", content)

    def request(self, kind: str, **fields: Any) -> str:
        """Send a request; return its id."""
        name = uuid.uuid4().hex
        self._shell("comm_msg", {"data": {"kind": kind, "id": name, **fields}})
        return name

    def run_command(self, command: str, /, **arguments: Any) -> str:
        """Send a command of `%sky`; return the id of the request."""
        return self.request("run", command=command, arguments=arguments)

    def run(self, code: str) -> str:
        """Run a cell without waiting for it; return its id."""
        return str(self._client.execute(code))

    def _shell(self, kind: str, content: dict[str, Any]) -> None:
        message = self._client.session.msg(kind, {"comm_id": self._comm, **content})
        message["header"]["subshell_id"] = self._subshell
        self._client.shell_channel.send(message)

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Take messages until a condition holds."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline, f"waited {LIMIT:.0f} s for {what}; there is {self.tables}"
            try:
                message = self._client.get_iopub_msg(timeout=0.05)
            except Exception:  # no message yet
                continue
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        content, parent = message["content"], message["parent_header"].get("msg_id", "")
        match message["msg_type"]:
            case "status" if content["execution_state"] == "idle":
                self.idle.add(parent)
            case "execute_input":
                self.numbers[parent] = content["execution_count"]
            case "error":
                self.errors[parent] = content["ename"]
            case "comm_msg" if content["comm_id"] == STATE_COMM:
                self._apply(content["data"])

    def _apply(self, data: dict[str, Any]) -> None:
        self.messages.append(data)
        if data["kind"] == "snapshot":
            self.tables = {}
        if data["kind"] != "answer":
            for table, rows in data["tables"].items():
                self.tables.setdefault(table, {}).update(rows)
            for table, keys in data.get("gone", {}).items():
                for key in keys:
                    self.tables[table].pop(key)

    def rows(self, table: str, **like: Any) -> list[dict[str, Any]]:
        """Return the rows of a table with these values."""
        rows_of_table = self.tables.get(table, {}).values()
        return [row for row in rows_of_table if all(row[name] == value for name, value in like.items())]

    def answered(self, name: str) -> str:
        """Return the state of the answer to a command; empty if there is none."""
        return next((m["state"] for m in self.messages if m["kind"] == "answer" and m["id"] == name), "")


@pytest.fixture(scope="module")
def panel() -> Iterator[Panel]:
    with plain_kernel() as (_, client):
        panel = Panel(client)
        panel.run("%load_ext skyward")
        panel.until(lambda: panel.messages, "the first message of the kernel")
        panel.connect()
        panel.run("%sky up --nodes 1:2")
        panel.until(lambda: panel.rows("pools", state="ready"), "the pool")
        yield panel


@pytest.mark.parametrize("how", ["cell", "task"])
def test_state_arrives_and_cancel_works_while_a_cell_blocks_the_kernel(panel: Panel, tmp_path: Path, how: str) -> None:
    beat = tmp_path / "beat"
    cell = panel.run(f"%%sky\n{BEATS.format(path=str(beat))}")
    panel.until(lambda: panel.rows("tasks", state="running") and beat.exists(), "the task that runs")
    (task,) = panel.rows("tasks", state="running")
    assert task["code"] == "import time"
    assert f"[{task['cell']}]" == f"[{panel.numbers[cell]}]", "not the number that the notebook shows"
    assert cell not in panel.idle
    if how == "cell":
        name = panel.run_command("cancel", cell=task["cell"])
    else:
        name = panel.run_command("cancel", pool="default", task=task["number"])
    panel.until(lambda: panel.answered(name) and cell in panel.idle, "the answer, and the end of the cell")
    assert panel.answered(name) == "done"
    assert panel.errors[cell] == "TaskCancelledError"
    assert stands_still(beat)
    panel.until(lambda: panel.rows("tasks", number=task["number"], state="cancelled"), "the end of the task")


def test_cell_that_raised_has_failed_and_a_stream_counts_its_elements(panel: Panel) -> None:
    (before,) = panel.rows("pools", name="default")
    failing = panel.run("%%sky\n1 / 0")
    panel.until(lambda: failing in panel.idle, "the end of the cell")
    panel.until(
        lambda: panel.rows("tasks", code="1 / 0", state="failed", reason="ZeroDivisionError: division by zero"),
        "the failed task",
    )
    panel.run("%%sky\nfor i in range(100):\n    yield i")
    panel.until(lambda: panel.rows("tasks", state="done", yielded=100), "the stream")
    panel.until(lambda: panel.rows("pools", name="default", failed=before["failed"] + 1), "the count of the pool")


def test_pool_is_scaled_and_a_node_drained_while_a_cell_blocks_the_kernel(panel: Panel, tmp_path: Path) -> None:
    go = tmp_path / "go"
    cell = panel.run(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    refreshed = panel.request("refresh")
    panel.until(lambda: panel.answered(refreshed), "an answer")
    panel.run_command("scale", pool="default", nodes="2:3")
    panel.until(lambda: len(panel.rows("nodes", state="active")) == 2, "two nodes")
    refused = panel.run_command("drain", pool="default", node=1)
    panel.until(lambda: panel.answered(refused), "an answer")
    assert panel.answered(refused) == "refused", "the pool is at its minimum"
    panel.run_command("scale", pool="default", nodes="1:3")
    panel.until(lambda: panel.rows("pools", min=1), "the new bounds")
    drained = panel.run_command("drain", pool="default", node=1)
    panel.until(lambda: len(panel.rows("nodes")) == 1, "one node")
    assert panel.answered(drained) == "done"
    assert panel.rows("decisions", by="user", reason="node 1 is drained")
    assert cell not in panel.idle
    go.touch()
    panel.until(lambda: cell in panel.idle, "the end of the cell")


def test_pools_are_opened_and_closed_by_commands(panel: Panel) -> None:
    wrong = panel.run_command("up", pool="second", options={"--nodes": "x"})
    new = panel.run_command("up", pool="second", options={"--nodes": "1", "--budget": ""})
    panel.until(lambda: panel.rows("pools", name="second", state="ready"), "the second pool")
    assert panel.answered(wrong) == panel.answered(new) == "heard"
    panel.run_command("down", pool="second")
    panel.until(lambda: not panel.rows("pools", name="second"), "its end")
    assert panel.rows("pools", name="default")
