"""Warm machines in the journal and at their cloud: who may take one over, and who terminates it when.

The machines are files of a cloud; nothing is started on them. `tests/cloud/test_warm_machines.py` has real ones.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import skyward as sky
from skyward.control.act.machines.guarded import guarded
from skyward.control.act.machines.offers import SourceOffer
from skyward.control.act.machines.warm import LASTS_FOR, adapted
from skyward.control.decide.machines.sources import MachineSource
from skyward.journal import Journal, PoolRecord
from skyward.pool.reaping.sweep import _known_pools
from skyward.providers import InstanceType, Offer
from skyward.specs import Spec
from tests.local.fake_cloud import FakeCloud

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("own_journal")]

ROOT = str(Path(__file__).parents[2])
LATER = 1000.0
SOURCE = MachineSource("fake", "fake", "", "on-demand", hourly_price=3600.0)


def source_of(cloud: FakeCloud) -> SourceOffer:
    offer = Offer("fake", InstanceType("fake", 1, 1), on_demand_price=3600.0)
    return SourceOffer(SOURCE, guarded(cloud), Spec(provider=cloud, allocation="on-demand"), offer, cloud)


def rest(cloud: FakeCloud, name: str, *until: float, ready: bool = True) -> list[str]:
    """Have a pool with one warm machine for each deadline, relative to now; return the ids of the machines."""
    record = PoolRecord.new(name, {}, None, 600)
    source = source_of(cloud)
    number = record.preparing("default", source)

    async def launch() -> list[str]:
        cluster = await source.provider.prepare(source.spec, source.offer, record.identity)
        cluster = replace(cluster, tags=record.identity.tags)
        record.prepared(number, cluster)
        token = record.asking(number)
        cluster, machines = await source.provider.provision(cluster, len(until))
        record.provisioned(number, token, cluster, machines)
        return [machine.id for machine in machines]

    ids = asyncio.run(launch())
    now = time.time()
    for machine, (id, seconds) in enumerate(zip(ids, until, strict=True), 1):
        record.bill(machine, id, "fake", 3600.0)
        record.keep_warm(number, id, machine, 3600.0, now + seconds)
        if ready:
            record.warm_is_ready(number, id)
    record.rest()
    return ids


def take(cloud: FakeCloud, name: str, count: int = 1) -> tuple[PoolRecord, list[str]]:
    """Have a pool take machines over; return its record and their ids."""
    record = PoolRecord.new(name, {}, None, 600)
    fits = partial(adapted, specs=[Spec(provider=cloud)], wanted=SOURCE, priced=True)
    found = record.take_warm("default", count, time.time(), time.time() + LASTS_FOR, fits)
    return record, [machine.instance.id for entry, _ in found for machine in entry.machines]


def machines_of(cloud: FakeCloud) -> set[str]:
    return {path.removeprefix("machines/") for path in cloud.left if path.startswith("machines/")}


def test_before_its_deadline_a_machine_is_listed_and_left_alone(cloud: FakeCloud) -> None:
    ids = rest(cloud, "train", LATER, LATER)
    (orphan,) = sky.orphans()
    assert (orphan.name, orphan.machines, orphan.due, orphan.attachable) == ("train", 2, False, False)
    assert orphan.per_hour == 7200.0
    assert abs(orphan.warm_until - time.time() - LATER) < 60
    assert sky.reap() == sky.reap(due=True) == []
    assert machines_of(cloud) == set(ids)
    assert orphan.id in _known_pools(()), "a sweep leaves it alone"
    with pytest.raises(sky.UsageError, match="no pool 'train' to attach to"):
        sky.attach("train")
    assert [done.error for done in sky.reap(warm=True)] == [""]
    assert cloud.left == []


def test_after_its_deadline_everything_is_terminated_and_billed_until_then(cloud: FakeCloud) -> None:
    rest(cloud, "train", -10.0, -10.0)
    assert sky.orphans()[0].due
    assert _known_pools(()) == set(), "a sweep would find what is left"
    assert [(done.orphan.machines, done.error) for done in sky.reap(due=True)] == [(2, "")]
    assert cloud.left == []
    assert sky.orphans() == []
    assert sky.reap(warm=True) == []
    with Journal() as journal:
        assert journal.pools() == []
        warm = [bill for bill in journal.bills(0) if bill.kind == "fake, kept warm"]
        assert len(warm) == 2
        assert all(bill.ended is not None for bill in journal.bills(0))


def test_machine_that_ended_itself_costs_nothing_after_its_deadline(cloud: FakeCloud) -> None:
    (id,) = rest(cloud, "train", 0.2)
    began = time.time()
    (path,) = [each for each in cloud.left if id in each]
    os.rename(f"{cloud.directory}/{path}", f"{cloud.directory}/unseen/{id}")
    while not sky.reap(due=True):
        assert time.time() < began + 30
    late = time.time()
    with Journal() as journal:
        (bill,) = [bill for bill in journal.bills(0) if bill.kind.endswith("kept warm")]
        assert bill.ended is not None
        assert bill.ended <= late
        assert bill.spent <= 0.25, "USD, at one a second"


def test_only_machines_whose_time_is_over_are_terminated(cloud: FakeCloud) -> None:
    _, late = rest(cloud, "train", -1.0, LATER)
    assert [done.error for done in sky.reap(due=True)] == [""]
    assert machines_of(cloud) == {late}
    assert any(each.startswith("shared") for each in cloud.left)
    assert [done.error for done in sky.reap(["train"])] == [""]
    assert cloud.left == []


def test_machine_that_was_not_cleaned_is_terminated_and_never_taken(cloud: FakeCloud) -> None:
    rest(cloud, "train", LATER, ready=False)
    record, taken = take(cloud, "next")
    assert taken == []
    record.end()
    assert [done.error for done in sky.reap(due=True)] == [""]
    assert cloud.left == []


def test_taken_machine_belongs_to_the_taker_and_the_rest_to_its_pool(cloud: FakeCloud) -> None:
    first, second = rest(cloud, "train", LATER, LATER)
    record, taken = take(cloud, "next")
    assert taken == [first]
    record.bill(1, "machine", "fake", 3600.0)
    assert [(orphan.name, orphan.machines) for orphan in sky.orphans()] == [("train", 1)]
    assert [done.error for done in sky.reap(["train"])] == [""], "the other one is terminated"
    assert machines_of(cloud) == {first}
    assert any(each.startswith("shared") for each in cloud.left), "the taken one needs what they share"
    assert second not in machines_of(cloud)
    record.leave()  # as after the death of its process
    assert [(done.orphan.name, done.error) for done in sky.reap()] == [("next", "")]
    assert cloud.left == []
    with Journal() as journal:
        assert journal.pools() == []
        assert all(bill.ended is not None for bill in journal.bills(0))


def test_taker_whose_process_died_leaves_the_machines_of_others_alone(cloud: FakeCloud) -> None:
    first, second = rest(cloud, "train", LATER, LATER)
    record, taken = take(cloud, "next")
    assert taken == [first]
    record.leave()
    assert [(done.orphan.name, done.error) for done in sky.reap()] == [("next", "")]
    assert machines_of(cloud) == {second}
    assert [orphan.name for orphan in sky.orphans()] == ["train"]
    sky.reap(warm=True)
    assert cloud.left == []


def test_machine_may_be_kept_warm_again_by_the_pool_that_took_it(cloud: FakeCloud) -> None:
    (machine,) = rest(cloud, "train", LATER)
    record, taken = take(cloud, "next")
    assert taken == [machine]
    with Journal() as journal:
        (entry,) = journal.clusters(record.id)
    record.keep_warm(entry.number, machine, 1, 3600.0, time.time() + LATER)
    record.warm_is_ready(entry.number, machine)
    record.rest()
    assert [(orphan.name, orphan.machines) for orphan in sky.orphans()] == [("next", 1)]
    third, taken = take(cloud, "last")
    assert taken == [machine]
    with Journal() as journal:
        (entry,) = journal.clusters(third.id)
        origin = journal.clusters(journal.pools("train")[0].id)[0].number
        assert entry.lender == origin, "the entry that has what the machine shares"
    third.leave()
    assert [(done.orphan.name, done.error) for done in sky.reap(["last"])] == [("last", "")]
    assert cloud.left == []


TAKER = """
import sys, time
from skyward.journal import PoolRecord
from tests.local.fake_cloud import FakeCloud
from tests.local.test_warm_records import die, take

directory, name, count = sys.argv[1:]
if name == "choosing":
    list(PoolRecord.new(name, {}, None, 0).take_warm("default", 1, time.time(), time.time(), die))
record, taken = take(FakeCloud(directory), name, int(count))
if name == "taking":
    die()
print(*taken)
"""


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def start_taker(cloud: FakeCloud, name: str, count: int = 1) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": ROOT}
    command = [sys.executable, "-c", TAKER, cloud.directory, name, str(count)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def test_processes_never_take_the_same_machine(cloud: FakeCloud) -> None:
    ids = rest(cloud, "train", *[LATER] * 5)
    takers = [start_taker(cloud, name, 2) for name in "abc"]
    found = [id for taker in takers for id in taker.communicate()[0].split()]
    assert len(found) == len(set(found))
    assert set(found) <= set(ids)
    assert found
    sky.reap(warm=True)
    assert cloud.left == []


@pytest.mark.parametrize("step", ["choosing", "taking"])
def test_death_while_taking_leaves_nothing_after_reaping(cloud: FakeCloud, step: str) -> None:
    (machine,) = rest(cloud, "train", LATER)
    taker = start_taker(cloud, step)
    taker.communicate()
    assert taker.returncode == -signal.SIGKILL
    assert all(not done.error for done in sky.reap())
    assert machines_of(cloud) == ({machine} if step == "choosing" else set())
    sky.reap(warm=True)
    assert cloud.left == []


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        (lambda spec: spec, True),
        (lambda spec: replace(spec, image=sky.Image(pip=["numpy"]), nodes=sky.Nodes(3), ttl=30), True),
        (lambda spec: replace(spec, allocation="spot"), False),
        (lambda spec: replace(spec, memory_gb=64), False),
        (lambda spec: replace(spec, accelerator="A100"), False),
        (lambda spec: replace(spec, region="elsewhere"), False),
        (lambda spec: replace(spec, max_hourly_cost=1.0), False),
        (lambda spec: replace(spec, provider=FakeCloud("/elsewhere")), False),
    ],
)
def test_machine_fits_pools_with_the_same_needs(cloud: FakeCloud, spec: Callable[[Spec], Spec], fits: bool) -> None:
    rest(cloud, "train", LATER)
    with Journal() as journal:
        (entry,) = journal.clusters(journal.pools()[0].id)
    found = adapted(entry, [spec(Spec(provider=cloud))], SOURCE, priced=True)
    assert (found is not None) is fits
    if found is not None:
        assert found.source.lender == entry.number
        assert found.spec.allocation == "on-demand"
    sky.reap(warm=True)
