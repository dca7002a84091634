"""An internal error, or an error in a callback, ends one task: other and later tasks continue."""

import logging
import sys
import threading
from concurrent.futures import Future
from typing import Any

import pytest

import skyward as sky
from skyward.control.act import pool_tasks
from skyward.control.act.nodes import node as node_module
from skyward.control.act.tasks.task import Work
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local


@sky.function
def doomed() -> int:
    return 1


class Broken(Exception):
    """An injected internal error."""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "settle",
            r"^doomed\(\) ended, but its result was lost, because of an error in Skyward itself: Broken: oops\.$",
        ),
        ("submit", r"^doomed\(\) was not sent, because of an error in Skyward itself: Broken: oops\.$"),
    ],
)
def test_failing_effect_ends_only_its_task(
    one_slot: sky.Compute, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    place: Any = pool_tasks if name == "settle" else node_module.Node
    original = getattr(place, name)
    failed: list[Work] = []

    def fails_once(*args: Any) -> Any:
        work = next(each for each in args if isinstance(each, Work))
        if work.code.name == "doomed" and not failed:
            failed.append(work)
            raise Broken("oops")
        return original(*args)

    monkeypatch.setattr(place, name, fails_once)
    futures = [doomed() > one_slot, *(tasks.add(number, 1) > one_slot for number in range(5))]
    assert [future.result(30) for future in futures[1:]] == [1, 2, 3, 4, 5]
    with pytest.raises(sky.RemoteError, match=message) as lost:
        futures[0].result(30)
    assert lost.value.subject == "doomed()", "a cell replaces it"
    wait_for(lambda: not one_slot.snapshot().running, "the node to be free")
    assert doomed() >> one_slot == 1


def test_exit_in_a_callback_ends_only_the_callback(one_slot: sky.Compute, caplog: pytest.LogCaptureFixture) -> None:
    number: Any = Future()  # so that the task ends after the callback is added
    future = tasks.add(1, number) > one_slot
    called = threading.Event()

    def leave(_: object) -> None:
        called.set()
        sys.exit(3)

    future.add_done_callback(leave)
    number.set_result(1)
    behind = [tasks.add(number, 1) > one_slot for number in range(3)]
    with caplog.at_level(logging.ERROR):
        assert [each.result(30) for each in behind] == [1, 2, 3]
        assert called.wait(30)
        wait_for(lambda: "a callback of the future of add() raised" in caplog.text, "the report of the callback")
    wait_for(lambda: one_slot.snapshot().running == 0, "the node to be free")
    with pytest.raises(SystemExit):
        future.add_done_callback(leave)  # on this thread it is not special
