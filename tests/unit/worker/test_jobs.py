"""The credit of a job whose stream has no room at the client."""

import threading
from queue import SimpleQueue

import pytest

from skyward.wire.protocol.flow import WINDOW
from skyward.wire.protocol.messages import Code, Credit, Payload, Submit
from skyward.worker.tasks.jobs import Job, Stopped

pytestmark = pytest.mark.unit


def _fail(credited: int) -> None:
    pytest.fail(f"there was room, with {credited} units given")


@pytest.fixture
def job() -> Job:
    submit = Submit(1, 0, b"", Payload(b""), stream=True, credit=WINDOW)
    job = Job(submit, Code(b"", Payload(b"")))
    job.run_here()
    return job


def test_wait_for_credit_is_told_once_for_each_credit_that_does_not_do(job: Job) -> None:
    told: SimpleQueue[int] = SimpleQueue()
    job.take_credit(WINDOW - 10, told.put)
    assert told.empty(), "there was room"
    waiting = threading.Thread(target=job.take_credit, args=(100, told.put))
    waiting.start()
    assert told.get(timeout=10) == WINDOW
    job.deliver(Credit(1, 20))
    assert told.get(timeout=10) == WINDOW + 20
    job.deliver(Credit(1, 70))
    waiting.join(10)
    assert not waiting.is_alive()
    assert told.empty()


def test_credit_that_comes_while_the_wait_is_told_ends_it(job: Job) -> None:
    job.take_credit(WINDOW, _fail)
    told: list[int] = []

    def pause(credited: int) -> None:
        told.append(credited)
        job.deliver(Credit(1, 1))

    job.take_credit(2, pause)
    assert told == [WINDOW, WINDOW + 1]


def test_stopped_job_waits_for_no_credit(job: Job) -> None:
    job.take_credit(WINDOW, _fail)
    with pytest.raises(Stopped):
        job.take_credit(1, lambda _: job.stop("cancelled"))
