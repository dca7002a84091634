"""The options `console` and `logging`: output of a script on a pipe, on a terminal and in the log."""

import logging
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.reporting.log import log_path
from tests.local import tasks

pytestmark = pytest.mark.local

SCRIPT = """
import logging, sys
import skyward as sky

@sky.function
def work(seconds):
    import time
    print("from a task")
    time.sleep(seconds)
    return seconds

if __name__ == "__main__":
    with sky.Compute(nodes=2, name="p", {options}) as pool:
        print("begun, ", end="", flush=True)
        print("result", work({seconds}) >> pool, flush=True)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of the test, for its log."""
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


def piped(home: Path, options: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    script = home / "script.py"
    script.write_text(before + SCRIPT.format(options=options, seconds=0))
    done = subprocess.run([sys.executable, str(script)], cwd=home, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "result 0\n" in done.stdout
    return done


MINIMAL = re.compile(
    r"skyward: pool 'p': starting 2 nodes \(local\)\n"
    r"skyward: pool 'p': ready with [12] nodes? after \d+\.\d s\n"
    r"(?:skyward: pool 'p': node \d is ready .*\n)?"
    r"skyward: pool 'p': closed after \d+\.\d s: 1 task done\n"
)


def test_without_a_terminal_the_console_is_a_few_lines_and_the_log_has_every_event(home: Path) -> None:
    configured = "import logging; logging.basicConfig(level=logging.WARNING)\n"
    done = piped(home, before=configured)
    assert MINIMAL.fullmatch(done.stderr), done.stderr
    assert done.stdout == "begun, from a task\nresult 0\n"
    path = home / "data" / "logs" / "skyward.log"
    log = re.sub(r"\d+ skyward\.events: pool 'p': ", "", path.read_text())
    for part in ("looking for offers", "node 1 started phase 'worker'", "node 0 is ready after", "closed after"):
        assert f"INFO    {part}" in log
    assert path.stat().st_mode & 0o777 == 0o600


def test_silent_console_keeps_task_output_and_logging_false_writes_no_file(home: Path) -> None:
    done = piped(home, "console='silent', logging=False")
    assert (done.stdout, done.stderr) == ("begun, from a task\nresult 0\n", "")
    assert not (home / "data" / "logs").exists()


def test_both_options_are_read_from_the_table_of_the_pool(home: Path) -> None:
    (home / "skyward.toml").write_text('[pools.p]\nconsole = "silent"\nlogging = false\n')
    done = piped(home)
    assert (done.stdout, done.stderr) == ("begun, from a task\nresult 0\n", "")
    assert not (home / "data" / "logs").exists()


def test_console_log_uses_logging(home: Path) -> None:
    configured = (
        "import logging; logging.basicConfig(level=logging.INFO, format='%(name)s %(levelname)s %(message)s')\n"
    )
    done = piped(home, "console='log', logging=False", configured)
    assert "skyward.events INFO pool 'p': starting 2 nodes (local)\n" in done.stderr
    assert "skyward.events INFO pool 'p': closed after" in done.stderr
    assert not (home / "data" / "logs").exists()


class Terminal:
    """A terminal as far as the console uses one: its current content, and all that was ever shown."""

    def __init__(self) -> None:
        self.lines = [""]
        self.seen: set[str] = set()
        self._row = self._column = 0
        self._saved = (0, 0)

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[\d*[A-Za-z]|\x1b.|.", text, re.DOTALL):
            match part:
                case "\n" | "\x1bD":
                    self._row += 1
                    self.lines.extend([""] * (self._row + 1 - len(self.lines)))
                case "\r":
                    self._column = 0
                case "\x1b[A":
                    self._row -= 1
                case "\x1b[B":
                    self._row += 1
                case "\x1b7":
                    self._saved = self._row, self._column
                case "\x1b8":
                    self.seen.add(self.lines[self._row])
                    self._row, self._column = self._saved
                case "\x1b[2K":
                    self.lines[self._row] = ""
                case _:
                    assert part.isprintable(), repr(part)
                    line = self.lines[self._row].ljust(self._column)
                    self.lines[self._row] = line[: self._column] + part + line[self._column + 1 :]
                    self._column += 1


def on_a_terminal(script: Path) -> Terminal:
    """Return the final content of a terminal after a script."""
    controller, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen([sys.executable, str(script)], stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    terminal, written = Terminal(), b""
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:  # the other end is closed
            break
        written += data
    os.close(controller)
    assert process.wait(30) == 0
    terminal.feed(written.decode())
    return terminal


def test_status_line_on_a_terminal_is_erased_and_overwrites_nothing(home: Path) -> None:
    script = home / "script.py"
    often = "from skyward.reporting import console\nconsole.SHARE = 1.0\n"
    script.write_text(often + SCRIPT.format(options="", seconds=3))
    terminal = on_a_terminal(script)
    assert "skyward: pool 'p': 2/2 nodes ready, 1 running, 0 queued, 0 done" in terminal.seen
    text = "\n".join(terminal.lines)
    assert "begun, from a task\nresult 3\n" in text
    assert MINIMAL.fullmatch("".join(f"{line}\n" for line in terminal.lines if line.startswith("skyward: ")))
    assert "running" not in text


# In this process.


@pytest.fixture
def handlers() -> Iterator[None]:
    logger = logging.getLogger("skyward")
    before = list(logger.handlers), logger.level, list(logging.getLogger().handlers)
    yield
    assert (list(logger.handlers), logger.level, list(logging.getLogger().handlers)) == before


@pytest.mark.usefixtures("handlers")
def test_pools_share_one_handler_and_remove_it(home: Path) -> None:
    logger = logging.getLogger("skyward")
    before = len(logger.handlers)
    with sky.Compute(nodes=1, name="outer") as outer:
        there = len(logger.handlers)
        assert there > before
        with sky.Compute(nodes=1, name="inner") as inner:
            assert len(logger.handlers) == there
            assert tasks.add(1, 1) >> inner == 2
        assert tasks.add(1, 1) >> outer == 2
    lines = log_path().read_text().splitlines()
    assert sum("pool 'inner': closed" in line for line in lines) == 1
    assert sum("pool 'outer': closed" in line for line in lines) == 1


@pytest.mark.usefixtures("handlers")
def test_pool_that_fails_to_open_removes_its_handler(home: Path) -> None:
    with pytest.raises(sky.ProvisioningError):
        sky.Compute(nodes=1, provider=sky.Local(fail_rate=1)).open()


@pytest.mark.usefixtures("handlers")
def test_unwritable_log_is_reported_and_stops_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "data").mkdir()
    (home / "data" / "logs").write_text("in the way")
    with sky.Compute(nodes=1) as pool:
        assert tasks.add(1, 1) >> pool == 2
    assert "skyward.log cannot be written" in capsys.readouterr().err


def test_losses_and_decisions_are_printed_as_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with sky.Compute(nodes=(1, 2), name="p") as pool:
        stream = pool.events(sky.events.NodeReady)
        pool.resize(2)
        stream.get(30)
        os.kill(pool.start(tasks.pid(), on=1).future.result(30), signal.SIGKILL)
        stream.get(30)
    err = capsys.readouterr().err
    assert "skyward: pool 'p': 1 -> 2 nodes: resized to 2 nodes\n" in err
    assert re.search(r"skyward: pool 'p': warning: node 1 was lost: .*SIGKILL.*; replacing it\n", err)
    assert len(re.findall(r"skyward: pool 'p': node 1 is ready after .* \(2 of 2 nodes\)\n", err)) == 2


def test_option_without_an_effect_is_said_when_the_pool_opens(capsys: pytest.CaptureFixture[str]) -> None:
    with sky.Compute(nodes=1, name="p", target_wait="fast"):
        pass
    assert "Pool 'p': target_wait has no effect while the number of nodes is fixed" in capsys.readouterr().err


@pytest.mark.parametrize("console", ["silent", False, "log"])
def test_quiet_console_prints_no_loss_and_no_decision(
    console: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with sky.Compute(nodes=(1, 2), name="p", console=console) as pool:
        stream = pool.events(sky.events.NodeReady)
        pool.resize(2)
        stream.get(30)
        os.kill(pool.start(tasks.pid(), on=1).future.result(30), signal.SIGKILL)
        stream.get(30)
    assert capsys.readouterr().err == ""
    assert "pool 'p': node 1 was lost" in log_path().read_text()


def test_log_has_failed_and_retried_tasks_and_no_others(home: Path) -> None:
    with sky.Compute(nodes=1, name="p", console=False) as pool:
        assert tasks.add(1, 1) >> pool == 2
        with pytest.raises(ValueError, match="wrong"):
            tasks.fail("wrong").with_retries(1) >> pool
    lines = [line for line in log_path().read_text().splitlines() if "task" in line and "closed" not in line]
    assert len(lines) == 2, lines


def test_nodes_that_are_given_up_for_one_reason_are_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    pool = sky.Compute(name="gone", nodes=2, provider=sky.Local(fail_rate=1), provision_retry_delay=0.01)
    with pytest.raises(sky.NodeStartError):
        pool.open()
    lines = [line for line in capsys.readouterr().err.splitlines() if "could not start" in line]
    assert len(lines) == len(set(lines)), lines
    assert lines
