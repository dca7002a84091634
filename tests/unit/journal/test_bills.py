"""Bills of machines in the journal."""

import time
from pathlib import Path

import pytest

from skyward.journal import Claim, Journal, PoolRecord
from skyward.journal.costs import summed

pytestmark = pytest.mark.unit

HOUR = 3600.0


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    PoolRecord.new("train", {}, None, 600).leave()
    return Journal()


def pool_of(journal: Journal) -> str:
    return journal.pools()[0].id


def test_machine_costs_its_price_until_it_is_terminated(journal: Journal) -> None:
    pool = pool_of(journal)
    journal.bill(pool, 1, "i-1", "aws p4d spot", 10.0, 0.0)
    (running,) = journal.bills(-1)
    assert running.until(0.5 * HOUR) == 5.0
    journal.end_bill(pool, 1, 2 * HOUR)
    (ended,) = journal.bills(0)
    assert ended.until(9 * HOUR) == ended.spent == 20.0
    journal.close()


def test_price_that_changes_counts_from_then_on(journal: Journal) -> None:
    pool = pool_of(journal)
    journal.bill(pool, 1, "i-1", "aws p4d spot", 10.0, 0.0)
    journal.set_price(pool, 1, 4.0, HOUR)
    journal.end_bill(pool, 1, 3 * HOUR)
    assert journal.bills(0)[0].spent == 18.0
    journal.close()


def test_bills_outlive_their_pool_and_end_with_it(journal: Journal) -> None:
    pool = pool_of(journal)
    journal.bill(pool, 1, "i-1", "runpod a100 spot", 1.0, 0.0)
    journal.end_bills(pool, HOUR)
    journal.forget_pool(pool)
    (bill,) = journal.bills(0)
    assert (bill.name, bill.spent, bill.ended) == ("train", 1.0, HOUR)
    assert journal.bills(2 * HOUR) == []
    journal.close()


def test_bills_are_summed_by_pool_and_kind(journal: Journal) -> None:
    pool = pool_of(journal)
    journal.bill(pool, 1, "i-1", "runpod a100 spot", 2.0, 0.0)
    journal.bill(pool, 2, "i-2", "runpod a100 spot", 2.0, HOUR)
    journal.bill(pool, 3, "i-3", "aws p4d spot", 10.0, HOUR)
    journal.end_bill(pool, 1, HOUR)
    found = {one.kind: one for one in summed(journal.bills(0), 2 * HOUR)}
    pods = found["runpod a100 spot"]
    assert (pods.machines, pods.running, pods.hours, pods.spent) == (2, 1, 2.0, 4.0)
    assert found["aws p4d spot"].spent == 10.0
    journal.close()


def test_hours_before_the_asked_time_are_left_out(journal: Journal) -> None:
    pool = pool_of(journal)
    journal.bill(pool, 1, "i-1", "runpod a100 spot", 2.0, 0.0)
    journal.bill(pool, 2, "i-2", "aws p4d spot", 10.0, 8 * HOUR)
    journal.end_bill(pool, 2, 9 * HOUR)
    found = {one.kind: one for one in summed(journal.bills(7 * HOUR), 10 * HOUR, 7 * HOUR)}
    pods, machine = found["runpod a100 spot"], found["aws p4d spot"]
    assert (pods.machines, pods.running, pods.hours, pods.began) == (1, 1, 3.0, 0.0)
    assert pods.spent == pytest.approx(6.0)
    assert (machine.hours, machine.spent) == (1.0, 10.0)
    journal.close()


def test_machine_of_an_attached_pool_is_counted_once(journal: Journal) -> None:
    pool = pool_of(journal)
    for machine in (1, 2):
        journal.bill(pool, machine, f"i-{machine}", "runpod a100 spot", 2.0, 0.0)
    claim = Claim.take(pool)
    assert claim is not None
    record = PoolRecord.taken_over(pool, journal, claim)
    for machine, instance in ((1, "i-2"), (2, "i-1")):
        record.bill(machine, instance, "runpod a100 spot", 2.0)
    (pods,) = summed(journal.bills(-1), time.time())
    assert (pods.machines, pods.running) == (2, 2)
    assert pods.spent == pytest.approx(2 * 2.0 * time.time() / HOUR)
    record.end()


def test_pool_whose_attach_failed_goes_on_costing_money(journal: Journal) -> None:
    pool = pool_of(journal)
    journal.bill(pool, 1, "i-1", "runpod a100 spot", 2.0, 0.0)
    claim = Claim.take(pool)
    assert claim is not None
    PoolRecord.taken_over(pool, journal, claim).leave()
    with Journal() as again:
        (bill,) = again.bills(0)
    assert (bill.ended, bill.until(HOUR)) == (None, 2.0)


def test_machine_that_is_gone_when_its_pool_is_attached_to_costs_nothing_from_then_on(journal: Journal) -> None:
    pool = pool_of(journal)
    number = journal.add_cluster(pool, "default", b"")
    journal.bill(pool, 1, "i-1", "runpod a100 spot", 2.0, 0.0)
    journal.bill(pool, 2, "i-2", "runpod a100 spot", 2.0, 0.0)
    journal.gone(number, "i-1", HOUR)
    assert [(bill.instance, bill.ended) for bill in journal.bills(0)] == [("i-1", HOUR), ("i-2", None)]
    journal.close()


def test_machines_of_a_request_without_an_answer_are_billed_once(journal: Journal) -> None:
    pool = pool_of(journal)
    journal.bill(pool, 1, "i-1", "aws p4d spot", 10.0, 0.0)
    for _ in range(2):
        journal.bill_found(pool, ["i-1", "i-2", "i-3"], "aws p4d spot", 10.0, HOUR, 2 * HOUR)
    bills = {bill.instance: (bill.began, bill.ended, bill.spent) for bill in journal.bills(-1) if bill.machine < 0}
    assert bills == {"i-2": (HOUR, 2 * HOUR, 10.0), "i-3": (HOUR, 2 * HOUR, 10.0)}
    journal.close()
