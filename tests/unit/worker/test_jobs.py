"""The credit of a job whose stream has no room at the client."""

import threading
from queue import SimpleQueue

import pytest

from skyward.wire.protocol.flow import WINDOW
from skyward.wire.protocol.messages import Code, Credit, Payload, Submit
from skyward.worker.tasks.jobs import Job, Stopped

pytestmark = pytest.mark.unit


def _fail(credited: int) -> None:
    pytest.fail(f"waited although there was room, with {credited} units granted")


@pytest.fixture
def job() -> Job:
    submit = Submit(1, 0, b"", Payload(b""), stream=True, credit=WINDOW)
    job = Job(submit, Code(b"", Payload(b"")))
    job.run_here()
    return job


def test_wait_for_credit_is_reported_once_for_each_insufficient_credit(job: Job) -> None:
    reported: SimpleQueue[int] = SimpleQueue()
    job.take_credit(WINDOW - 10, reported.put)
    assert reported.empty(), "waited although there was room"
    waiting = threading.Thread(target=job.take_credit, args=(100, reported.put))
    waiting.start()
    assert reported.get(timeout=10) == WINDOW
    job.deliver(Credit(1, 20))
    assert reported.get(timeout=10) == WINDOW + 20
    job.deliver(Credit(1, 70))
    waiting.join(10)
    assert not waiting.is_alive()
    assert reported.empty()


def test_credit_granted_during_the_report_ends_the_wait(job: Job) -> None:
    job.take_credit(WINDOW, _fail)
    reported: list[int] = []

    def pause(credited: int) -> None:
        reported.append(credited)
        job.deliver(Credit(1, 1))

    job.take_credit(2, pause)
    assert reported == [WINDOW, WINDOW + 1]


def test_stopped_job_does_not_wait_for_credit(job: Job) -> None:
    job.take_credit(WINDOW, _fail)
    with pytest.raises(Stopped):
        job.take_credit(1, lambda _: job.stop("cancelled"))
