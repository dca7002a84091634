"""The log of a pool: every piece at its offset, over any connection; bounded, with a count of what was dropped."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skyward.control.observe.log import _OVERHEAD, Log
from skyward.errors import UsageError
from skyward.events.output import WAITING, LogEntry, Logs, OutputFilter
from skyward.link.channel import Channel
from skyward.wire.protocol.messages import UNKNOWN_OFFSET, Output, WorkerEvent
from tests.unit.link.lossy_link import NO_CREDENTIALS, Link, run

pytestmark = pytest.mark.unit

EVERYTHING = OutputFilter()


def said(text: str, offset: int = UNKNOWN_OFFSET, task: int = 1, stream: Any = "stdout") -> Output:
    return Output(task, stream, text, offset)


def filled(*outputs: Output, kept: int = 1 << 20, node: int = 0, source: int = 1) -> Log:
    log = Log(kept)
    for number, output in enumerate(outputs):
        log.add(node, source, output, float(number))
    return log


def streams(entries: Iterable[LogEntry]) -> dict[tuple[int, int, str], str]:
    """Return the text of each stream, complete and without duplicates."""
    texts: dict[tuple[int, int, str], str] = defaultdict(str)
    for entry in entries:
        key = entry.task, 0 if entry.task else entry.node, entry.stream
        assert entry.offset == len(texts[key]), f"{entry} should begin at the end of its stream"
        texts[key] += entry.text
    return dict(texts)


# Offsets.


def test_entries_have_writer_stream_and_time() -> None:
    log = filled(said("a\n", 0, 7), said("b\n", 2, 7), said("c\n", 0, 7, "stderr"), said("d\n", 0, 0), node=3)
    assert list(log.read(EVERYTHING)) == [
        LogEntry(0.0, 3, 7, "stdout", 0, "a\n"),
        LogEntry(1.0, 3, 7, "stdout", 2, "b\n"),
        LogEntry(2.0, 3, 7, "stderr", 0, "c\n"),
        LogEntry(3.0, 3, 0, "stdout", 0, "d\n"),
    ]


def test_line_in_pieces_is_one_entry() -> None:
    log = filled(said("one "), said("x", task=2), said("line"), said("\n"), said("y\n", task=2), said("next\n"))
    assert [(entry.task, entry.text) for entry in log.read(EVERYTHING)] == [
        (1, "one line\n"),
        (2, "xy\n"),
        (1, "next\n"),
    ]


def test_line_continued_after_output_on_the_other_stream_keeps_its_offset() -> None:
    log = filled(said("\r 88%", stream="stderr"), said("x", task=2), said("end\n"), said("\r100%\n", stream="stderr"))
    assert log.read(OutputFilter(task=1)).text == "\r 88%end\n\r100%\n"
    streams(log.read(EVERYTHING))


def test_endless_line_is_split() -> None:
    log = filled(*(said(f"\r{percent:4} %" * 100) for percent in range(50)))
    assert 1 < len(log.read(EVERYTHING)) < 50
    streams(log.read(EVERYTHING))


def test_duplicate_output_is_kept_once() -> None:
    log = filled(said("abc", 0), said("abc", 0), said("bcde", 1), said("f", 5), said("cd", 2))
    assert log.read(EVERYTHING).text == "abcdef"


def test_missing_output_leaves_a_visible_gap() -> None:
    log = filled(said("abc\n", 0), said("x\n", 10), said("y\n", 12))
    assert [(entry.offset, entry.end) for entry in log.read(EVERYTHING)] == [(0, 4), (10, 12), (12, 14)]


def test_late_client_takes_the_offset_of_the_worker() -> None:
    assert [entry.offset for entry in filled(said("x", 500)).read(EVERYTHING)] == [500]


def test_output_without_an_offset_is_appended() -> None:
    assert [entry.offset for entry in filled(said("abc\n", 0), said("d\n")).read(EVERYTHING)] == [0, 4]


def test_next_attempt_of_a_task_continues_its_stream() -> None:
    log = Log()
    log.add(0, 1, said("first\n", 0), 0.0)
    log.add(2, 5, said("second\n", 0), 1.0)
    log.add(0, 1, said("late\n", 6), 2.0)
    log.add(2, 5, said("third\n", 7), 3.0)
    assert [(e.node, e.offset, e.text) for e in log.read(EVERYTHING)] == [
        (0, 0, "first\n"),
        (2, 6, "second\n"),
        (0, 13, "late\n"),
        (2, 18, "third\n"),
    ]


def test_stream_of_a_node_continues_on_its_next_machine() -> None:
    log = Log()
    log.add(1, 1, said("old\n", 0, 0), 0.0)
    log.add(0, 2, said("other\n", 0, 0), 1.0)
    log.add(1, 9, said("new\n", 0, 0), 2.0)
    assert [(e.node, e.offset) for e in log.read(EVERYTHING)] == [(1, 0), (0, 0), (1, 4)]


@given(st.data())
@settings(max_examples=200)
def test_streams_are_complete_for_any_resending(data: st.DataObject) -> None:
    """Workers write to a few streams; each resends its output in pieces, from anywhere, in any sizes."""
    keys = [(source, task, stream) for source in (1, 2) for task in (0, 1, 2) for stream in ("stdout", "stderr")]
    written: dict[tuple[int, int, str], str] = defaultdict(str)
    received: dict[tuple[int, int, str], int] = defaultdict(int)
    log = Log()
    for _ in range(data.draw(st.integers(1, 40))):
        source, task, stream = key = data.draw(st.sampled_from(keys))
        written[key] += data.draw(st.text("ab\n", min_size=1, max_size=6))
        start = data.draw(st.integers(0, received[key]))
        end = data.draw(st.integers(start + 1, len(written[key]))) if start < len(written[key]) else start
        log.add(source, source, said(written[key][start:end], start, task, stream), 0.0)
        received[key] = max(received[key], end)
    for key, text in streams(log.read(EVERYTHING)).items():
        task, node, stream = key
        parts = [written[s, task, stream][: received[s, task, stream]] for s in (1, 2) if task or s == node]
        assert sorted(text) == sorted("".join(parts))
        assert len(parts) > 1 or text == parts[0]


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.2, 0.4]),
    twice=st.sampled_from([0.0, 0.3]),
    delay=st.sampled_from([0.0, 0.01, 0.5]),
    broken=st.sampled_from([0.0, 0.1]),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_streams_are_complete_over_an_unreliable_link(
    monkeypatch: pytest.MonkeyPatch, seed: int, loss: float, twice: float, delay: float, broken: float
) -> None:
    written: dict[tuple[int, int, str], str] = defaultdict(str)
    log = Log()

    def hear(event: WorkerEvent) -> None:
        assert isinstance(event, Output)
        assert event.offset != UNKNOWN_OFFSET
        log.add(0, 1, event, 0.0)

    async def scenario(link: Link) -> None:
        channel = Channel("node:1", NO_CREDENTIALS, 10_000.0, hear, lambda why: pytest.fail(why))
        await channel.connect()
        link.far.replies.beat()
        link.random.seed(seed)
        link.loss, link.twice, link.delay, link.broken = loss, twice, delay, broken
        for number in range(60):
            link.up = link.random.random() < 0.9
            task, stream = link.random.choice((0, 1, 2)), link.random.choice(("stdout", "stderr"))
            written[task, 0, stream] += (text := f"{number}\n" * link.random.choice((1, 3)))
            link.far.emit_output(said(text, task=task, stream=stream))
            await asyncio.sleep(link.random.choice((0.0, 0.01, 0.3, 2.0)))
        link.up = True
        async with asyncio.timeout(1000):
            while streams(log.read(EVERYTHING)) != written:  # noqa: ASYNC110  # in virtual time
                await asyncio.sleep(0.1)
        await asyncio.sleep(10)  # late duplicates must not be added
        assert streams(log.read(EVERYTHING)) == written
        await channel.close()

    run(monkeypatch, scenario)


# Bounds.


def test_log_is_bounded_and_counts_dropped_characters() -> None:
    line = "x" * 99 + "\n"
    log = filled(*(said(line, number * 100) for number in range(1000)), kept=50 * (100 + _OVERHEAD))
    logs = log.read(EVERYTHING)
    assert (len(logs), logs.dropped, logs[0].offset) == (50, 95_000, 95_000)
    assert str(logs).startswith("(95,000 characters before this are no longer kept)\n[node 0, task 1] xxx")


def test_entry_larger_than_the_log_is_kept_alone() -> None:
    log = filled(said("a\n"), said("x" * 5000), kept=1000)
    assert [len(entry.text) for entry in log.read(EVERYTHING)] == [5000]
    assert log.read(EVERYTHING).dropped == 2


def test_line_with_a_dropped_beginning_continues_at_its_offset() -> None:
    log = filled(said("begun "), *(said("x" * 99 + "\n", task=2) for _ in range(20)), said("ended\n"), kept=2000)
    (entry,) = log.read(OutputFilter(task=1))
    assert (entry.offset, entry.text) == (6, "ended\n")


# Reading.


@pytest.fixture
def log() -> Log:
    log = Log()
    for node in (0, 1):
        log.add(node, node, said("by itself\n", 0, 0), 0.0)
        log.add(node, node, said("one\ntwo\n", 0, 10 + node), 0.0)
        log.add(node, node, said("oops\n", 0, 10 + node, "stderr"), 0.0)
    return log


@pytest.mark.parametrize(
    ("wanted", "texts"),
    [
        (OutputFilter(task=10), ["one\ntwo\n", "oops\n"]),
        (OutputFilter(task=10, stream="stdout"), ["one\ntwo\n"]),
        (OutputFilter(task=10, stream="stdout", since=4), ["two\n"]),
        (OutputFilter(task=10, stream="stdout", since=8), []),
        (OutputFilter(task=10, node=1), []),
        (OutputFilter(task=0), ["by itself\n", "by itself\n"]),
        (OutputFilter(node=1, stream="stderr"), ["oops\n"]),
    ],
)
def test_read_filters_entries(log: Log, wanted: OutputFilter, texts: list[str]) -> None:
    assert [entry.text for entry in log.read(wanted)] == texts


def test_tail_counts_matching_entries(log: Log) -> None:
    assert [entry.task for entry in log.read(EVERYTHING, 2)] == [11, 11]
    assert [entry.text for entry in log.read(OutputFilter(task=10), 1)] == ["oops\n"]
    assert len(log.read(EVERYTHING, 0)) == 0


def test_logs_show_the_writer_of_each_line(log: Log) -> None:
    assert str(log.read(OutputFilter(node=0))).splitlines() == [
        "[node 0] by itself",
        "[node 0, task 10] one",
        "[node 0, task 10] two",
        "[node 0, task 10] oops",
    ]


def test_logs_are_a_sequence(log: Log) -> None:
    logs = log.read(EVERYTHING)
    assert (logs[0], logs[-1], logs[:2]) == (logs.entries[0], logs.entries[5], logs.entries[:2])
    assert list(logs) == list(logs.entries)
    assert (len(Logs()), str(Logs())) == (0, "")


@pytest.mark.parametrize(
    ("task", "node", "stream"), [(None, None, "stdout"), (1, None, None), (0, None, "stdout"), (None, 1, "stdout")]
)
def test_since_requires_one_stream(task: int | None, node: int | None, stream: Any) -> None:
    with pytest.raises(UsageError, match=r"^since= is an offset in one stream: name it, `task=N, stream='stdout'`"):
        OutputFilter.checked(task, node, stream, 5)
    assert OutputFilter.checked(1, None, "stdout", 5) == OutputFilter(1, None, "stdout", 5)
    assert OutputFilter.checked(0, 2, "stdout", 5) == OutputFilter(0, 2, "stdout", 5)


# Following.


def test_follower_gets_existing_and_new_entries(log: Log) -> None:
    follower = log.follow(OutputFilter(task=10, stream="stdout", since=4), None, ended=False)
    log.add(0, 0, said("thr", 8, 10), 1.0)
    log.add(0, 0, said("ee\n", 11, 10), 1.0)
    log.add(1, 1, said("not this\n", 8, 11), 1.0)
    log.task_ended(11)
    log.task_ended(10)
    assert [(entry.offset, entry.text) for entry in follower] == [(4, "two\n"), (8, "thr"), (11, "ee\n")]


def test_follower_of_an_ended_log_ends_at_once(log: Log) -> None:
    assert len(list(log.follow(OutputFilter(task=10), None, ended=True))) == 2


def test_all_followers_end_with_the_pool(log: Log) -> None:
    followers = [log.follow(EVERYTHING, 0, ended=False) for _ in range(3)]
    log.close()
    assert [list(follower) for follower in followers] == [[], [], []]


def test_follower_waits_for_the_next_piece(log: Log) -> None:
    follower = log.follow(EVERYTHING, 0, ended=False)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.extend(entry.text for entry in follower), daemon=True)
    reader.start()
    log.add(0, 0, said("now\n", 10, 0), 1.0)
    log.close()
    reader.join(20)
    assert got == ["now\n"]


def test_closed_follower_gets_nothing_more(log: Log) -> None:
    with log.follow(EVERYTHING, 0, ended=False) as follower:
        pass
    follower.close()
    log.add(0, 0, said("x\n", 10, 0), 1.0)
    assert list(follower) == []


def test_slow_follower_misses_the_oldest_and_counts_them() -> None:
    log = Log()
    follower = log.follow(EVERYTHING, None, ended=False)
    for number in range(9):
        log.add(0, 0, said("x" * (WAITING // 4), number * (WAITING // 4)), 0.0)
    log.close()
    entries = list(follower)
    assert [entry.offset // (WAITING // 4) for entry in entries] == [5, 6, 7, 8]
    assert follower.dropped == entries[0].offset
