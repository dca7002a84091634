"""`!command` on a node."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from skyward.errors import UsageError
from skyward.worker.code.shell import Lines, NodeShell, _start, expand_command, names_in_command
from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit


def test_output_is_printed_and_exit_code_bound(notebook: CellHarness, capsys: pytest.CaptureFixture[str]) -> None:
    notebook.local("who = 'you'")
    notebook.sky("!echo hi {who.upper()} $who; echo oops >&2; exit 3")
    assert capsys.readouterr().out == "hi YOU you\noops\n"
    assert notebook["_exit_code"] == 3


def test_output_can_be_assigned(notebook: CellHarness) -> None:
    notebook.sky("x = !printf 'a\\nb\\n'\ny = x[0] + x.n + x.s")
    assert notebook["x"] == Lines(["a", "b"])
    assert notebook["y"] == "aa\nba b"


def test_multibyte_character_is_not_split(capsys: pytest.CaptureFixture[str]) -> None:
    NodeShell({}).system(r"printf '\303'; sleep 0.1; printf '\251'")
    assert capsys.readouterr().out == "é"


def test_getoutput_can_return_one_string() -> None:
    assert NodeShell({}).getoutput("printf 'a\\nb'", split=False) == "a\nb"


def test_interrupt_kills_the_process_group_of_the_command(tmp_path: Path) -> None:
    fifo = tmp_path / "alive"
    os.mkfifo(fifo)
    left: list[str] = []

    def interrupt() -> None:
        with fifo.open() as alive:
            alive.readline()  # the grandchild runs
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            left.append(alive.read())  # ends when all writers have closed it

    reader = threading.Thread(target=interrupt, daemon=True)  # would block for ever after a failure
    reader.start()
    with pytest.raises(KeyboardInterrupt):
        NodeShell({}).system(f"(exec 3>{fifo}; echo go >&3; sleep 1000) & wait")
    reader.join(10)
    assert left == [""]


def test_interrupt_during_the_start_kills_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    interrupted = threading.Event()

    def start(command: str, errors: int | None) -> subprocess.Popen[bytes]:
        processes.append(_start(command, errors))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        interrupted.wait(10)
        return processes[0]

    monkeypatch.setattr("skyward.worker.code.shell._start", start)
    with pytest.raises(KeyboardInterrupt):
        NodeShell({}).system("sleep 1000")
    interrupted.set()
    try:
        assert processes[0].wait(10) == -signal.SIGKILL
    finally:
        processes[0].kill()


def test_interrupt_kills_a_command_that_has_closed_its_output(tmp_path: Path) -> None:
    fifo = tmp_path / "closed"
    os.mkfifo(fifo)
    left: list[str] = []

    def interrupt() -> None:
        with fifo.open() as alive:
            alive.readline()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            left.append(alive.read())

    reader = threading.Thread(target=interrupt, daemon=True)
    reader.start()
    with pytest.raises(KeyboardInterrupt):
        NodeShell({}).system(f"exec 3>{fifo} >&- 2>&-; echo go >&3; sleep 1000")
    reader.join(10)
    assert left == [""]


def test_failure_to_start_a_command_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(command: str, errors: int | None) -> subprocess.Popen[bytes]:
        raise OSError("too many processes")

    monkeypatch.setattr("skyward.worker.code.shell._start", start)
    with pytest.raises(OSError, match=r"^too many processes$"):
        NodeShell({}).getoutput("true")


@pytest.mark.parametrize(
    ("command", "expanded"),
    [
        ("echo $a {b + 1}", "echo 1 3"),
        ("echo $$HOME {{x}}", "echo $HOME {x}"),
        ("echo $HOME ${HOME} {nothing} {1 +}", "echo $HOME ${HOME} {nothing} {1 +}"),
        ("awk '{print $1}'", "awk '{print $1}'"),
    ],
)
def test_placeholders_in_commands_are_replaced(command: str, expanded: str) -> None:
    assert expand_command(command, {"a": 1, "b": 2}) == expanded


def test_names_in_placeholders_are_found() -> None:
    assert list(names_in_command("echo $a {b.c + d[0]} $$e {{f}} {1 +}")) == ["a", "b", "d"]


def test_unsupported_magics_and_attributes_are_refused(notebook: CellHarness) -> None:
    with pytest.raises(UsageError, match=r"^%x is not available on nodes; run it in a cell"):
        NodeShell({}).run_line_magic("x", "")
    with pytest.raises(AttributeError) as caught:
        notebook.sky("get_ipython().kernel")
    assert str(caught.value) == (
        "get_ipython().kernel is not available on a node; only !commands and a few magics are. "
        "Use it in a cell without %%sky."
    )
