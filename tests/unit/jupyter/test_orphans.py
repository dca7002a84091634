"""Notices of a kernel about the pools that an ended process left, and about those that keep machines warm."""

import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from skyward.errors import UsageError
from skyward.journal import PoolRecord, WorkerEntry
from skyward.providers import Access, Cluster, ExecAccess, Instance, LocalAccess
from skyward_kernel.orphans import orphan_notes, warm_notes
from skyward_kernel.pools import PoolManager
from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit

NOTE = (
    "Pool 'gpu' of an ended process is still there (2 machines, $0.35 per hour): `%sky attach gpu` returns to it, "
    "`%sky reap gpu` ends it."
)


@pytest.fixture(autouse=True)
def own_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))


POD = ExecAccess(("kubectl", "exec"), "a pod")


def leave(name: str, *, worker: bool = True, price: float = 0.175, access: Access = POD, requests: int = 0) -> None:
    """Leave a pool of two machines, and `requests` without an answer, as a killed process does."""
    record = PoolRecord.new(name, {}, None, 600)
    number = record.preparing("default", None)
    token = record.asking(number)
    machines = [Instance(f"pod-{each}", "running", access, hourly_price=price) for each in "ab"]
    cluster = Cluster("c", record.id, cast("Any", SimpleNamespace()), cast("Any", SimpleNamespace()))
    record.provisioned(number, token, cluster, machines)
    if worker:
        for machine in machines:
            record.installed(number, machine, WorkerEntry(0, "node", "127.0.0.1:1", "127.0.0.1:2", "/nowhere"))
    for _ in range(requests):
        record.asking(number)
    record.leave()


def keep_warm(name: str) -> None:
    """Leave a closed pool with one warm machine."""
    record = PoolRecord.new(name, {}, None, 600)
    number = record.preparing("default", None)
    machine = Instance("pod-w", "running", LocalAccess("127.0.0.1", "/nowhere"), hourly_price=0.35)
    cluster = Cluster("c", record.id, cast("Any", SimpleNamespace()), cast("Any", SimpleNamespace()))
    record.provisioned(number, record.asking(number), cluster, [machine])
    record.bill(1, machine.id, "runpod", 0.35)
    record.keep_warm(number, machine.id, 1, 0.35, time.time() + 600)
    record.warm_is_ready(number, machine.id)
    record.rest()


def test_opening_a_pool_of_an_orphans_name_says_so_once(pools: PoolManager, capsys: pytest.CaptureFixture[str]) -> None:
    leave("gpu")
    pools.get_or_open("other")
    assert capsys.readouterr().err == ""
    pools.get_or_open("gpu")
    assert capsys.readouterr().err == f"{NOTE}\n"
    pools.get_or_open("gpu")
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match="another pool 'gpu': close it first with `%sky down gpu`, and then run"):
        pools.attach("gpu")
    with pytest.raises(UsageError, match="has pool 'other' already: use it, there is nothing to attach to.$"):
        pools.attach("other")


def test_status_and_pools_list_orphans(notebook: Notebook, compute: type[FakeCompute]) -> None:
    leave("gpu")
    none = "There are no pools. A cell with %%sky opens one.\n"
    assert notebook("%sky status").out == notebook("%sky pools").out == f"{none}{NOTE}\n"
    assert notebook("%sky down gpu").shown_error.endswith(f"open it with `%sky up gpu`. {NOTE}")
    notebook("%sky up train")
    for command in ("status", "pools"):
        lines = notebook(f"%sky {command}").out.splitlines()
        assert lines[0] == NOTE
        assert lines[1].startswith("pool ")


def test_pools_of_which_nothing_is_left_are_not_mentioned() -> None:
    leave("local", access=LocalAccess("127.0.0.1", "/nowhere"))
    leave("free", worker=False, price=0.0)
    assert orphan_notes() == []
    leave("paid", worker=False)
    assert orphan_notes() == [
        "Pool 'paid' of an ended process is still there (2 machines, $0.35 per hour): `%sky reap paid` ends it."
    ]


def test_down_status_and_pools_tell_of_warm_machines(notebook: Notebook, compute: type[FakeCompute]) -> None:
    notebook("%sky up gpu")
    keep_warm("gpu")
    (note,) = warm_notes()
    told = r"gpu: 1 machine kept warm until \d\d:\d\d:\d\d, at \$0.35 per hour; `%sky reap gpu` ends that."
    assert re.fullmatch(told, note)
    assert notebook("%sky down gpu").out == f"Pool 'gpu' is closed.\n{note}\n"
    none = "There are no pools. A cell with %%sky opens one.\n"
    assert notebook("%sky status").out == notebook("%sky pools").out == f"{none}{note}\n"
    notebook("%sky up other")
    assert notebook("%sky down --all").out == "Closed: other.\n"


def test_request_without_an_answer_is_told_although_the_local_nodes_of_the_pool_have_ended() -> None:
    """Regression: it was kept back, although the request may have launched a machine."""
    ended = LocalAccess("127.0.0.1", "/nowhere")
    leave("local", access=ended, price=0.0)
    leave("both", access=ended, price=0.0, requests=1)
    (note,) = orphan_notes()
    assert note.startswith("Pool 'both' of an ended process is still there (2 machines, 1 request unanswered)")
