"""Costs of tasks on real workers with a price."""

import re
import time
from pathlib import Path

import pytest

import skyward as sky
from skyward.commands.table.pool_options import POOL_LABELS
from skyward.config.pools import configured_values
from skyward.control.observe.origin import Origin, current_origin
from skyward.pool.compute import Compute
from skyward_kernel.pools import PoolManager
from tests.notebook import new_notebook

pytestmark = pytest.mark.local

A_CENT = 36.0
"""USD per hour of a machine that costs a cent per second."""


@sky.function
def busy(seconds: float) -> float:
    started = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - started


def test_tasks_and_their_cell_share_the_price_of_the_machine() -> None:
    cell = Origin(7, "id", "busy(0.2)")
    worker = sky.Worker(concurrency=2)
    with Compute(provider=sky.Local(hourly_price=A_CENT), worker=worker) as pool:
        scope = current_origin.set(cell)
        try:
            run = pool.start(busy(0.2))
            took = [run.future.result(), *(busy(0.2) @ pool)]
        finally:
            current_origin.reset(scope)
        report = pool.report()
        assert run.cost == report.tasks[0].cost
        for task, seconds in zip(report.tasks, took, strict=True):
            assert task.seconds is not None
            assert task.cost == pytest.approx(task.seconds * 0.005)
            assert task.cost >= seconds * 0.005
        (account,) = report.cells
        assert (account.origin, account.tasks) == (cell, 2)
        assert account.cost == pytest.approx(sum(task.cost for task in report.tasks))
        assert account.cost <= report.snapshot.spent


def test_machine_without_a_price_costs_nothing() -> None:
    with Compute() as pool:
        run = pool.start(busy(0.0))
        run.future.result()
        assert (run.cost, run.hardware, pool.report().tasks[0].cost) == (0.0, ["local"], 0.0)


def test_cell_on_a_configured_pool_shows_its_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "skyward.toml").write_text(
        "[pools.dear]\nprovider = 'priced'\nnodes = 2\naccelerator = 'T4'\n"
        f"[providers.priced]\ntype = 'local'\nhourly_price = {A_CENT}\n"
    )
    monkeypatch.chdir(tmp_path)
    pools = PoolManager(labels=POOL_LABELS, defaults=configured_values)
    with new_notebook(pools) as notebook:
        notebook.magics.footer = True
        try:
            one = notebook("%%sky --pool dear\nimport time\ntime.sleep(0.2)").displays
            both = notebook("%%sky --pool dear --on all\nimport time\ntime.sleep(0.2)").displays
            tasks = notebook("%sky tasks dear").out
        finally:
            pools.close_all()
    assert tasks.splitlines()[0].split() == ["task", "state", "node", "cell", "cost", "code"]
    assert len(re.findall(r"\$0\.\d+", tasks)) == 3, tasks
    assert re.fullmatch(r"node \d, [^,]+, \d+\.\d s, \$0\.\d+", one[-1]), one
    assert re.fullmatch(r"2 nodes, [^,]+, \d+\.\d s, \$0\.\d+", both[-1]), both


def test_pool_that_cost_money_says_how_much_when_it_is_closed(capsys: pytest.CaptureFixture[str]) -> None:
    with Compute(name="free", options=sky.Options(logging=False, console="minimal")):
        pass
    assert "cost" not in capsys.readouterr().err
    paid = sky.Local(hourly_price=A_CENT)
    with Compute(name="paid", provider=paid, nodes=2, options=sky.Options(logging=False, console="minimal")):
        pass
    shown = capsys.readouterr().err
    assert re.search(r"^Pool 'paid' cost \$0\.\d+: 2 machines of local.*, [\d.]+ s together, \$0\.\d+\.$", shown, re.M)


def test_every_line_about_a_closed_pool_has_the_same_cost(capsys: pytest.CaptureFixture[str]) -> None:
    paid = sky.Local(hourly_price=36_000.0)  # ten dollars per second
    pool = Compute(name="dear", provider=paid, nodes=2, options=sky.Options(logging=False, console="minimal"))
    with pool:
        busy(0.0) >> pool
    shown = capsys.readouterr().err
    (bill,) = re.findall(r"^Pool 'dear' cost (\$[\d.]+): ", shown, re.M)
    (closed,) = re.findall(r"closed after .*: 1 task done, (\$[\d.]+)$", shown, re.M)
    assert bill == closed == f"${pool.snapshot().spent:.2f}"
