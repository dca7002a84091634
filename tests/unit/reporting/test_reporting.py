"""Console and log: styles, text of events, status line, and log file."""

import asyncio
import io
import logging
import sys
import typing
from dataclasses import fields
from logging.handlers import WatchedFileHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyward import events as ev
from skyward.control.observe.snapshot import PoolSnapshot
from skyward.events.bus import EventBus
from skyward.events.decisions import UNUSABLE, DecisionEvent, DecisionInputs
from skyward.reporting import log
from skyward.reporting.console import PoolConsole, opening_quietly, style_of
from skyward.reporting.event_text import LOGGED, SHOWN, line_of
from skyward.reporting.screen import Screen
from tests.terminal import Terminal
from tests.waiting import wait_for_async

pytestmark = pytest.mark.unit

DECISION = DecisionEvent(0.0, "policy", "pressure", DecisionInputs(), {"a": 1}, {"a": 3}, "2 queued")
VALUES: dict[str, Any] = {
    "left": "",
    "decision": DECISION,
    "log": ("last line",),
    "replaced": True,
    "text": "a note",
    "names": ("model", "conn"),
    "reason": "why",
    "error": "ValueError",
    "provider": "local",
    "name": "f",
    "phase": "deps",
    "group": "default",
    "kind": "local vm",
    "pool": "p",
}


def made(kind: type[ev.BaseEvent]) -> ev.BaseEvent:
    """Return an event of this class, with made-up values."""
    return kind(*(VALUES.get(field.name, 2) for field in fields(kind)))


@pytest.mark.parametrize("kind", [k for k in typing.get_args(ev.Event.__value__) if issubclass(k, (*LOGGED, *SHOWN))])
def test_every_shown_or_logged_event_has_one_line(kind: type[ev.BaseEvent]) -> None:
    text = line_of(made(kind)).text
    assert text
    assert "\n" not in text
    assert type(made(kind)).__name__ not in text, "the event has no text"


def test_pool_whose_machines_may_be_left_is_not_said_to_be_closed() -> None:
    line = line_of(ev.PoolClosed("p", 1, 0.0, 2.0, 1, 0, 0.0, "the cloud is down"))
    assert line == (logging.WARNING, "could not be closed completely, so machines may be left: the cloud is down")


def test_failures_are_warnings() -> None:
    levels = {kind: line_of(made(kind)).level for kind in (ev.NodeLost, ev.NodeFailed, ev.PoolReady, ev.TaskFailed)}
    assert levels == {
        ev.NodeLost: logging.WARNING,
        ev.NodeFailed: logging.WARNING,
        ev.PoolReady: logging.INFO,
        ev.TaskFailed: logging.INFO,
    }


@pytest.mark.parametrize(
    ("option", "terminal", "notebook", "style"),
    [
        (True, True, False, "rich"),
        (True, False, False, "minimal"),
        (True, False, True, "notebook"),
        ("rich", True, False, "rich"),
        ("rich", False, False, "minimal"),
        ("minimal", True, False, "minimal"),
        ("minimal", False, True, "minimal"),
        ("log", True, False, "none"),
        ("silent", True, False, "none"),
        (False, True, False, "none"),
    ],
)
def test_style_of_the_console_option(
    option: Any, terminal: bool, notebook: bool, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = SimpleNamespace(kernel=object() if notebook else None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    monkeypatch.setenv("TERM", "xterm")
    assert style_of(option) == style
    monkeypatch.setenv("TERM", "dumb")
    assert style_of(option) != "rich"


def shown(style: Any, *happened: ev.BaseEvent, can_be_quiet: bool = True) -> list[str]:
    lines: list[str] = []
    bus = EventBus("p")
    PoolConsole(style, lambda: None, lines.append, can_be_quiet=can_be_quiet).attach(bus)
    for event in happened:
        own = [getattr(event, field.name) for field in fields(event)][3:]
        bus.emit(type(event), *own)
    bus.end()
    return lines


def test_only_important_events_have_a_line() -> None:
    ready = ev.NodeReady("p", 1, 0.0, 0, 1, 1.0, 1, 2)
    last = ev.NodeReady("p", 1, 0.0, 1, 2, 1.0, 2, 2)
    still = DecisionEvent(0.0, "policy", "pressure", DecisionInputs(), {"a": 1}, {"a": 1}, "nothing to do")
    held = DecisionEvent(0.0, "policy", "pressure", DecisionInputs(), {"a": 1}, {"a": 0}, "idle", "it cools down")
    decisions = [ev.ScalingDecided("p", 1, 0.0, decision) for decision in (DECISION, still, held)]
    task = ev.TaskQueued("p", 1, 0.0, 1, "f")
    assert shown("minimal", ready, last, ev.PoolReady("p", 1, 0.0, 2, 1.0), ready, last, task, *decisions) == [
        "skyward: pool 'p': ready with 2 nodes after 1.0 s\n",
        "skyward: pool 'p': node 1 is ready after 1.0 s (2 of 2 nodes)\n",
        "skyward: pool 'p': 1 -> 3 nodes: 2 queued\n",
    ]
    assert shown("none", last, made(ev.PoolNote), made(ev.NodeLost)) == []


def test_failure_of_the_policy_is_shown_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: a pool whose policy failed did not scale, and only its decision log said so."""
    reason = "the policy wants 2.5 nodes of 'a', but the number must be an integer of at least 0"
    failed = DecisionEvent(0.0, "policy", "own", DecisionInputs(), {"a": 1}, {"a": 1}, reason, UNUSABLE)
    event = ev.ScalingDecided("p", 1, 0.0, failed)
    assert shown("minimal", event) == [f"skyward: pool 'p': warning: {reason}; the pool stays as it is\n"]
    assert shown("notebook", event) == []
    assert capsys.readouterr().err == f"Pool 'p': {reason}; the pool stays as it is\n"
    assert line_of(event).level == logging.WARNING


def test_pool_that_opens_quietly_shows_only_notes_and_warnings_until_it_is_open() -> None:
    start, ready = ev.PoolProvisioning("p", 1, 0.0, "local", 2), ev.PoolReady("p", 1, 0.0, 2, 1.0)
    with opening_quietly():
        lines = shown("minimal", start, made(ev.PoolNote), made(ev.NodeLost), ready, made(ev.PoolClosed))
    assert [line.rstrip().rpartition(": ")[2] for line in lines[:2]] == ["a note", "why; replacing it"]
    assert [line.split()[3] for line in lines[2:]] == ["closed"]
    assert "starting 2 nodes" in shown("minimal", start)[0]


def test_pool_that_stays_quiet_shows_no_closing_line() -> None:
    """Regression: `skyward run --quiet` printed it."""
    ready = ev.PoolReady("p", 1, 0.0, 2, 1.0)
    with opening_quietly(stays=True):
        lines = shown("minimal", ready, made(ev.NodeLost), made(ev.PoolClosed))
    assert [line.rstrip().rpartition(": ")[2] for line in lines] == ["why; replacing it"]


def test_console_that_was_asked_for_is_not_quiet() -> None:
    start = ev.PoolProvisioning("p", 1, 0.0, "local", 2)
    with opening_quietly():
        assert shown("minimal", start, can_be_quiet=False) == ["skyward: pool 'p': starting 2 nodes (local)\n"]


def test_notebook_shows_only_notes_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    stay = DecisionEvent(0.0, "reconciler", "pressure", DecisionInputs(), {"a": 1}, {"a": 2}, "node 1 keeps model")
    replacing = DecisionEvent(0.0, "reconciler", "pressure", DecisionInputs(), {"a": 1}, {"a": 1}, "replacing it")
    decisions = (ev.ScalingDecided("p", 1, 0.0, each) for each in (DECISION, replacing, stay))
    happened = (made(ev.PoolProvisioning), made(ev.PoolNote), made(ev.NodeLost), *decisions, made(ev.PoolClosed))
    assert shown("notebook", *happened) == []
    lost = "Pool 'p': node 2 was lost: why; replacing it"
    assert capsys.readouterr().err == f"a note\n{lost}\nPool 'p': 1 -> 2 nodes: node 1 keeps model\n"


def test_status_line_is_shown_while_a_caller_waits_and_erased_before_other_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("skyward.reporting.console.DRAW_EVERY", 0.001)
    monkeypatch.setattr("skyward.reporting.console.PATIENCE", 0.0)
    monkeypatch.setattr("skyward.reporting.console.SHARE", 1.0)
    screen, bus = Screen(), EventBus("p")
    pool = PoolSnapshot("p", "ready", "local", (), 3, 2, 10, 1, 1, 4, 4, per_hour=7.2, spent=0.5)
    console = PoolConsole("rich", lambda: pool, None, screen)
    console.attach(bus)

    async def wait_until(what: str) -> None:
        await wait_for_async(lambda: what in terminal.getvalue(), f"the terminal to show {what!r}")

    async def run() -> None:
        bus.emit(ev.PoolRequesting)
        with console:
            await wait_until("pool 'p': 0/4 nodes ready, 2 running, 3 queued, 10 done, 1 failed, $0.50 ($7.20/h)")
            bus.emit(ev.NodePhaseStarted, 1, 1, "deps")
            await wait_until("node 1: deps for ")
            screen.write(terminal, "output\n")
            assert terminal.getvalue().endswith("\x1b[2K\x1b8output\n")
            await wait_until("output\n\x1bD")
        assert terminal.getvalue().endswith("\x1b[2K\x1b8")
        drawn = terminal.getvalue()
        bus.end()
        await asyncio.sleep(0.02)
        assert terminal.getvalue() == drawn

    asyncio.run(run())


def test_status_line_is_clipped_and_has_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    Screen().draw("a\x1b[31m\nb" + "x" * 100)
    assert "a?[31m?bxxxxxxxxxxx\x1b8" in terminal.getvalue()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    return tmp_path / "logs"


def test_log_rotates_and_keeps_old_files(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LARGEST", 100)
    monkeypatch.setattr(log, "KEPT", 2)
    bus = EventBus("p")
    log.EventLog(file=True).attach(bus)
    for number in range(5):
        bus.emit(ev.PoolNote, f"note {number} " + "x" * 100)
    bus.end()
    texts = {path.name: path.read_text() for path in directory.iterdir()}
    assert sorted(texts) == ["skyward.lock", "skyward.log", "skyward.log.1", "skyward.log.2"]
    assert [
        number
        for name in ("skyward.log.2", "skyward.log.1", "skyward.log")
        for number in range(5)
        if f"note {number}" in texts[name]
    ] == [2, 3, 4]


def test_log_follows_a_file_that_another_process_has_moved(directory: Path) -> None:
    bus = EventBus("p")
    log.EventLog(file=True).attach(bus)
    bus.emit(ev.PoolNote, "before")
    (directory / "skyward.log").rename(directory / "moved")
    bus.emit(ev.PoolNote, "after")
    bus.end()
    assert "after" in (directory / "skyward.log").read_text()
    assert "before" in (directory / "moved").read_text()


def test_record_is_in_the_file_once_and_reaches_configured_handlers(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for level, reached in ((logging.WARNING, []), (logging.INFO, ["pool 'p': once more"])):
        bus = EventBus("p")
        log.EventLog(file=True).attach(bus)
        caplog.clear()
        with caplog.at_level(level):
            bus.emit(ev.PoolNote, "once more")
        bus.end()
        assert caplog.messages == reached
    assert (directory / "skyward.log").read_text().count("once more") == 2


def test_warnings_reach_the_screen_despite_the_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    bus = EventBus("p")
    log.EventLog(file=True).attach(bus)
    logging.getLogger("skyward.link").warning("a tunnel broke")
    logging.getLogger("skyward.link").info("nothing")
    bus.emit(ev.NodeLost, 1, 1, "killed", True)
    bus.end()
    assert capsys.readouterr().err == "a tunnel broke\n"
    assert "a tunnel broke" in (directory / "skyward.log").read_text()


def test_surrogates_and_full_disks_raise_no_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = EventBus("p")
    events_log = log.EventLog(file=True)
    events_log.attach(bus)
    bus.emit(ev.PoolNote, "odd \udc80 name")
    assert r"odd \udc80 name" in (directory / "skyward.log").read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(WatchedFileHandler, "emit", full)
    bus.emit(ev.PoolNote, "lost")
    monkeypatch.undo()
    bus.end()


def test_failure_of_a_node_before_any_phase_names_no_phase() -> None:
    failed = ev.NodeFailed("train", 1, 0.0, 0, 1, "", "exit status 3", (), False)
    assert "failed: exit status 3" in line_of(failed).text
