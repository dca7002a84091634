"""Output of a worker process: no failure of one piece of it is silent, or stops the rest."""

import io
import os
from collections.abc import Buffer, Iterator

import pytest

from skyward.wire.protocol.messages import Output
from skyward.worker.events.context import TaskContext, running
from skyward.worker.events.output import Pump
from skyward.worker.events.streams import TaskStream
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


def test_output_that_cannot_be_sent_is_reported_and_later_output_is_sent() -> None:
    sent: list[Output] = []

    def emit(output: Output) -> None:
        if output.text == "lost":
            raise TypeError("no such text")
        sent.append(output)

    pump = Pump(emit, lambda: 7)
    out = os.dup(pump.writers[0])
    pump.start()
    try:
        os.write(out, b"lost")
        wait_for(lambda: sent, "the report")
        os.write(out, b"later")
        wait_for(lambda: len(sent) > 1, "the later output")
    finally:
        os.close(out)
    assert sent == [
        Output(7, "stderr", "\n[Skyward could not send 4 characters of output: TypeError: no such text]\n"),
        Output(7, "stdout", "later"),
    ]


def test_pipes_are_read_although_nothing_can_be_sent() -> None:
    tried: list[str] = []

    def emit(output: Output) -> None:
        tried.append(output.text)
        raise OSError("the connection is closed")

    pump = Pump(emit, int)
    out = os.dup(pump.writers[0])
    pump.start()
    try:
        written = sum(os.write(out, bytes(65536)) for _ in range(20))  # more than a pipe holds
        wait_for(lambda: sum(len(text) for text in tried if not text.startswith("\n")) == written, "all to be read")
    finally:
        os.close(out)


class File(io.RawIOBase):
    """A file on a disk that may be full."""

    is_full = True

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return memoryview(data).nbytes


@pytest.fixture
def in_task() -> Iterator[int]:
    port: object = None
    token = running.set(TaskContext(3, 0, port))  # type: ignore[arg-type]  # sends nothing itself
    yield 3
    running.reset(token)


def stream_of(sent: list[Output]) -> TaskStream:
    return TaskStream("stdout", sent.append, lambda: 0, lambda: None)


def test_unwritable_text_of_replaced_stream_is_reported_at_task_end(in_task: int) -> None:
    sent: list[Output] = []
    stream = stream_of(sent)
    file = File()
    stream.current = replacement = io.TextIOWrapper(io.BufferedWriter(file))
    replacement.write("a result")
    stream.end_task(in_task)
    assert sent == [
        Output(3, "stdout", "Exception ignored on flushing sys.stdout:\nOSError: [Errno 28] No space left on device\n")
    ]
    file.is_full = False  # for the finalizer of the stream


def test_replaced_stream_that_is_closed_is_not_reported(in_task: int) -> None:
    sent: list[Output] = []
    stream = stream_of(sent)
    stream.current = replacement = io.TextIOWrapper(io.BytesIO())
    replacement.close()
    stream.end_task(in_task)
    assert sent == []
    assert stream.current is stream
