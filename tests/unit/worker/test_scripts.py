"""Processes of scripts: their output, their end, what they leave behind, and their log."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from skyward.worker.scripts import log
from skyward.worker.scripts.log import ScriptLog
from skyward.worker.scripts.modules import place_modules
from skyward.worker.scripts.process import ScriptProcess
from skyward.worker.tasks import folder as folders
from skyward.worker.tasks.folder import Directories
from tests.waiting import wait_for

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folders, "_found", Directories(str(tmp_path), str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(source: str) -> tuple[int, bytes, bytes]:
    """Run a script to its end; return its status, and what it wrote."""
    process = ScriptProcess([sys.executable, "-c", source], dict(os.environ))
    written = {1: b"", 2: b""}
    try:
        while (piece := process.read()) is not None:
            written[piece[0]] += piece[1]
    finally:
        process.close()
    return process.status, written[1], written[2]


def test_output_is_bytes_of_both_streams() -> None:
    source = "import os; os.write(1, bytes(range(256)) * 5000); os.write(2, b'\\xff error'); raise SystemExit(3)"
    assert ran(source) == (3, bytes(range(256)) * 5000, b"\xff error")


def test_status_is_negative_for_a_signal() -> None:
    assert ran("import os; os.kill(os.getpid(), 9)") == (-signal.SIGKILL, b"", b"")


def test_script_that_closes_its_output_is_waited_for() -> None:
    assert ran("import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(4)")[0] == 4


def test_process_that_a_script_leaves_does_not_keep_it_and_is_killed() -> None:
    """It holds the pipes, and writes without an end."""
    source = (
        "import os\npid = os.fork()\nif pid == 0:\n    while True: os.write(1, b'x' * 1000)\nprint(pid, flush=True)\n"
    )
    status, out, _ = ran(source)
    assert status == 0
    left = int(out.replace(b"x", b"").split()[0])
    wait_for(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == "zombie", "the end of the child")


def test_program_that_is_not_there_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        ScriptProcess(["no-such-program"], dict(os.environ))


def test_stopped_script_gets_the_usual_interrupt_first() -> None:
    source = (
        "import time\ntry:\n    print('up', flush=True); time.sleep(1000)\n"
        "except KeyboardInterrupt:\n    print('saved'); exit(7)\n"
    )
    process = ScriptProcess([sys.executable, "-c", source], dict(os.environ))
    piece = process.read()
    while piece is not None and not piece[1]:
        piece = process.read()
    assert piece is not None
    process.unread(piece)
    logged: list[bytes] = []
    process.stop(logged.append)
    process.close()
    assert (process.has_ended, process.status) == (True, 7)
    assert b"".join(logged) == b"saved\n", "what was read before is logged already"


def test_log_has_no_arguments_and_is_private(own: Path) -> None:
    with ScriptLog("train.py") as kept:
        kept.write(b"some output\n")
    path = own / log.SCRIPT_LOG
    first, second = path.read_text().splitlines()
    assert first.startswith("--- ")
    assert first.endswith(" train.py")
    assert second == "some output"
    assert path.stat().st_mode & 0o077 == 0


def test_log_is_bounded(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_LARGEST", 1000)
    with ScriptLog("t.py") as kept:
        for number in range(100):
            kept.write(b"%03d " % number * 25)
    sizes = [path.stat().st_size for path in own.glob(f"{log.SCRIPT_LOG}*")]
    assert len(sizes) == 2
    assert sum(sizes) < 2500
    assert (own / log.SCRIPT_LOG).read_bytes().endswith(b"099 ")


def test_modules_are_written_once_for_each_content(own: Path) -> None:
    first = place_modules({"a/__init__.py": b"", "a/b.py": b"x = 1\n"})
    assert (Path(first) / "a" / "b.py").read_bytes() == b"x = 1\n"
    assert place_modules({"a/__init__.py": b"", "a/b.py": b"x = 1\n"}) == first
    assert place_modules({"a/b.py": b"x = 2\n"}) != first
