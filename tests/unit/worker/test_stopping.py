"""Stopped tasks: interrupts, partial results, and forced ends."""

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from skyward.wire.payloads.code import prepare_code
from skyward.wire.payloads.payload import decode, encode_call
from skyward.wire.protocol.messages import (
    NO_PARTIAL_RESULT,
    PACKING_TIMEOUT,
    Code,
    Finished,
    Output,
    PartialResultPending,
    Payload,
    Submit,
    WorkerEvent,
    Yielded,
)
from skyward.worker.events.context import current_task
from skyward.worker.tasks import executor
from skyward.worker.tasks.execute import Functions, execute
from skyward.worker.tasks.executor import _LAST, PATIENCE, TaskExecutor
from skyward.worker.tasks.guard import Interrupted, Reason
from skyward.worker.tasks.jobs import Job

pytestmark = pytest.mark.unit

GRACE = 5.0


class Port:
    """Records the events of a task."""

    def __init__(self) -> None:
        self.events: list[WorkerEvent] = []

    def emit(self, event: WorkerEvent) -> None:
        self.events.append(event)

    def keep(self, views: list[memoryview]) -> list[bytes]:
        raise MemoryError("no room")


@dataclass
class Guard:
    """Guard that never interrupts."""

    reason: Reason | None = None

    def run[T](self, call: Callable[[], T]) -> T:
        return call()

    def cancelling(self, cancel: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()


def job_of(function: Callable[..., Any], *, grace: float = GRACE, stream: bool = False) -> Job:
    code = prepare_code(function)
    submit = Submit(7, 0, code.digest, encode_call((), {}, "f").payload, stream=stream, grace=grace)
    return Job(submit, Code(code.digest, code.outgoing.payload, "f"))


def run(job: Job, reason: Reason | None = "cancelled") -> tuple[Finished, Port]:
    port = Port()
    job.run_here()
    finished = execute(job, port, Functions(unreachable), unreachable, 0, Guard(reason))
    return finished, port


def unreachable(_: object) -> memoryview:
    pytest.fail("nothing is large here")


def left_by(finished: Finished) -> Any:
    return decode(finished.payload, unreachable)


def stopped_with(left: Callable[[], Any] | None) -> Interrupted:
    stop = Interrupted()
    stop.left = left
    return stop


def leaves() -> None:
    raise stopped_with(lambda: {"loss": 0.25})


def leaves_nothing() -> None:
    raise Interrupted


def has_begun() -> None:
    task = current_task()
    assert task is not None
    task.leaves = True
    raise Interrupted


def leaves_too_much() -> None:
    raise stopped_with(lambda: bytes(1 << 20))


def leaves_with_error() -> None:
    raise stopped_with(lambda: 1 / 0)


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
def test_stopped_task_announces_and_sends_its_partial_result(reason: Reason) -> None:
    job = job_of(leaves)
    finished, port = run(job, reason)
    assert (finished.outcome, left_by(finished)) == (reason, {"loss": 0.25})
    assert port.events == [PartialResultPending(7)]
    assert job.leaving


def test_task_stopped_before_its_start_reports_nothing_lost() -> None:
    finished, port = run(job_of(leaves_nothing))
    assert (finished.payload, port.events) == (NO_PARTIAL_RESULT, [])
    assert run(job_of(has_begun))[0].payload == Payload(b"")


@pytest.mark.parametrize(
    ("task", "why"),
    [(leaves_too_much, "MemoryError: no room"), (leaves_with_error, "ZeroDivisionError: division")],
)
def test_failure_to_send_partial_result_is_reported_and_the_task_stopped(task: Callable[[], None], why: str) -> None:
    finished, port = run(job_of(task))
    assert (finished.outcome, finished.payload) == ("cancelled", Payload(b""))
    _, said = port.events
    assert isinstance(said, Output)
    assert said.text.startswith(f"Variables assigned by the cell cannot be sent from node 0: {why}")


def say(text: str) -> None:
    task = current_task()
    assert task is not None
    task.port.emit(Output(7, "stdout", text))


def leaves_where_it_yields() -> Iterator[int]:
    try:
        yield 1
    except Interrupted as stop:
        stop.left = lambda: "left"
        raise
    finally:
        say("finally")


def ends_by_itself() -> Generator[Any, None, str]:
    try:
        yield 1
    except KeyboardInterrupt:
        say("caught")
    yield "discarded"
    return "returned"


def is_a_plain_generator() -> Generator[int]:
    try:
        yield 1
    except GeneratorExit:
        say("closed")
        raise


@pytest.mark.parametrize(
    ("task", "grace", "left", "said"),
    [
        (leaves_where_it_yields, GRACE, "left", "finally"),
        (ends_by_itself, GRACE, "returned", "caught"),
        (is_a_plain_generator, 0.0, None, "closed"),
    ],
)
def test_generator_is_stopped_at_its_yield(
    task: Callable[[], Iterator[Any]], grace: float, left: Any, said: str
) -> None:
    job = job_of(task, grace=grace, stream=True)
    job.stop("cancelled")
    finished, port = run(job, None)
    assert (finished.outcome, left_by(finished)) == ("cancelled", left)
    assert [event.text for event in port.events if isinstance(event, Output)] == [said]
    assert not any(isinstance(event, Yielded) for event in port.events)


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@dataclass
class Slot:
    """Slot that runs a job until it is released, and records interrupts and forced ends."""

    clock: Clock
    begun: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    interrupts: list[float] = field(default_factory=list)
    given_up: list[float] = field(default_factory=list)

    def get_ready(self) -> None:
        """Do nothing."""

    def run(self, job: Job) -> Finished:
        self.begun.set()
        assert self.go.wait(10)
        return Finished(7, "cancelled", NO_PARTIAL_RESULT, 0.0)

    def interrupt(self, reason: Reason) -> None:
        self.interrupts.append(self.clock.now - 100.0)

    def give_up(self) -> bool:
        self.given_up.append(self.clock.now - 100.0)
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(executor, "clock", clock)
    return clock


@pytest.fixture
def running(clock: Clock) -> Iterator[Callable[[Job], tuple[TaskExecutor, Slot]]]:
    """Return a function that runs a job on an executor, on a thread that ends with the test."""
    slots: list[Slot] = []
    threads: list[threading.Thread] = []
    executors: list[TaskExecutor] = []

    def start(job: Job) -> tuple[TaskExecutor, Slot]:
        run = TaskExecutor(nothing, nothing, as_it_is, nothing, nothing, lambda _: False)
        slot = Slot(clock)
        threads.append(threading.Thread(target=run.serve, args=(slot,)))
        threads[-1].start()
        slots.append(slot)
        executors.append(run)
        run.submit(job)
        assert slot.begun.wait(10)
        return run, slot

    yield start
    for run, slot, thread in zip(executors, slots, threads, strict=True):
        slot.go.set()
        run.shutdown(1)
        thread.join(10)


def nothing(*_: object) -> None:
    """Do nothing."""


def as_it_is(finished: Finished) -> Finished:
    """Return the end of a task as it is."""
    return finished


def tick_until(run: TaskExecutor, clock: Clock, seconds: float) -> None:
    for tenths in range(round(10 * (clock.now - 100)) + 1, round(10 * seconds) + 1):
        clock.now = 100 + tenths / 10
        run.tick()


type Start = Callable[[Job], tuple[TaskExecutor, Slot]]


def test_task_with_grace_is_interrupted_again_only_shortly_before_its_end(running: Start, clock: Clock) -> None:
    run, slot = running(job_of(leaves))
    run.cancel(7, recall=False)
    tick_until(run, clock, GRACE + 0.1)
    first, *others = slot.interrupts
    assert first == 0.0
    assert min(others) == pytest.approx(GRACE - _LAST, abs=0.11)
    assert slot.given_up[0] == pytest.approx(GRACE, abs=0.15)


def test_task_without_grace_has_the_usual_patience(running: Start, clock: Clock) -> None:
    run, slot = running(job_of(leaves, grace=0.0))
    run.cancel(7, recall=False)
    tick_until(run, clock, PATIENCE + 0.1)
    assert slot.interrupts[:2] == [0.0, pytest.approx(0.3, abs=0.15)]
    assert slot.given_up[0] == pytest.approx(PATIENCE, abs=0.15)


def test_task_packing_its_partial_result_gets_more_time(running: Start, clock: Clock) -> None:
    job = job_of(leaves)
    run, slot = running(job)
    run.cancel(7, recall=False)
    job.leaving = True
    tick_until(run, clock, GRACE + PACKING_TIMEOUT - 1)
    assert (slot.interrupts, slot.given_up) == ([0.0], [])
    tick_until(run, clock, GRACE + PACKING_TIMEOUT + 0.2)
    assert slot.given_up


def test_shutdown_does_not_wait_for_partial_results(running: Start, clock: Clock) -> None:
    job = job_of(leaves)
    run, slot = running(job)
    run.cancel(7, recall=False)
    job.leaving = True
    run.shutdown(0)
    tick_until(run, clock, PATIENCE + 0.1)
    assert slot.given_up
