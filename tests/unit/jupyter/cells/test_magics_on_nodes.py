"""Magics inside a cell, run on a node."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skyward.errors import UsageError
from skyward.worker.code.magics import timeit_duration
from tests.unit.jupyter.cells.conftest import CellHarness

pytestmark = pytest.mark.unit

TIMES = re.compile(r"CPU times: user [\d.e-]+ \S+, sys: [\d.e-]+ \S+, total: [\d.e-]+ \S+\nWall time: [\d.e-]+ \S+\n")
LOOPS = re.compile(r"[\d.]+ \S+ ± [\d.]+ \S+ per loop \(mean ± std. dev. of 2 runs, 10 loops each\)\n")


@pytest.fixture(autouse=True)
def _same_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.pop("SKYWARD_TESTED", None)


def test_time_binds_names_returns_the_value_and_prints_the_duration(
    notebook: CellHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.local("def f(n): return n + 1\nn = 1")
    notebook.sky("%time x = f(n)")
    assert notebook["x"] == 2
    assert TIMES.fullmatch(capsys.readouterr().out)
    notebook.sky("y = %time f(n + 1)")
    assert notebook["y"] == 3
    notebook.sky("%time f(10)")
    assert notebook.value == 11


def test_cell_time_binds_names_and_displays_the_last_expression(
    notebook: CellHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.local("d = {}; same = d")
    notebook.sky("%%time\nd['a'] = 1\nz = [i for i in range(3)]\nlen(z)")
    assert notebook["same"] == {"a": 1}
    assert notebook["z"] == [0, 1, 2]
    assert notebook.value == 3
    assert TIMES.match(capsys.readouterr().out)


def test_time_prints_the_duration_until_an_error_and_keeps_bindings(
    notebook: CellHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError):
        notebook.sky("%%time\nz = 1\n1 / 0")
    assert notebook["z"] == 1
    assert TIMES.fullmatch(capsys.readouterr().out)


def test_timeit_binds_nothing(notebook: CellHarness, capsys: pytest.CaptureFixture[str]) -> None:
    notebook.local("def f(n): return n\nn = 1")
    notebook.sky("%timeit -n 10 -r2 x = f(n)")
    assert LOOPS.fullmatch(capsys.readouterr().out)
    assert "x" not in notebook
    notebook.sky("%%timeit -n 10 -r 2 k = f(n)\nk + 1")
    assert LOOPS.fullmatch(capsys.readouterr().out)
    notebook.sky("%timeit -n 1 -q f(n)")
    assert capsys.readouterr().out == ""


def test_bash_runs_a_script_with_its_arguments(notebook: CellHarness, capsys: pytest.CaptureFixture[str]) -> None:
    notebook.local("who = 'me'")
    notebook.sky("%%bash -s {who} b\nfor i in 1 2; do echo $i $1 $2; done\necho late >&2")
    assert capsys.readouterr() == ("1 me b\n2 me b\n", "late\n")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        notebook.sky("%%sh\nexit 3")
    assert (caught.value.returncode, caught.value.cmd) == (3, b"exit 3\n")


def test_command_writes_errors_to_stdout(notebook: CellHarness, capsys: pytest.CaptureFixture[str]) -> None:
    notebook.sky("!echo a; echo b >&2")
    assert capsys.readouterr() == ("a\nb\n", "")


def test_writefile_writes_and_appends(
    notebook: CellHarness, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    notebook.local("name = 'a'")
    notebook.sky("%%writefile {name}.txt\none {name}")
    notebook.sky("%%writefile -a a.txt\ntwo")
    assert (tmp_path / "a.txt").read_text() == "one {name}\ntwo\n"
    notebook.sky("%%writefile a.txt\nthree")
    assert (tmp_path / "a.txt").read_text() == "three\n"
    assert capsys.readouterr().out == "Writing a.txt\nAppending to a.txt\nOverwriting a.txt\n"
    with pytest.raises(UsageError, match=r"^%%writefile takes the path of one file"):
        notebook.sky("%%writefile a b\nx")


def test_cd_and_env_change_the_node(notebook: CellHarness, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    notebook.local("value = 5")
    notebook.sky("%cd sub\nhere = %pwd")
    assert notebook["here"] == str(tmp_path / "sub")
    notebook.sky("%env SKYWARD_TESTED={value}\nfound = %env SKYWARD_TESTED\nall = %env")
    assert notebook["found"] == "5"
    assert notebook["all"]["SKYWARD_TESTED"] == "5"
    assert capsys.readouterr().out == f"{tmp_path / 'sub'}\nenv: SKYWARD_TESTED=5\n"
    with pytest.raises(UsageError, match=r"^The node has no environment variable SKYWARD_NONE"):
        notebook.sky("%env SKYWARD_NONE")


def test_display_magics_are_ignored_below_time(notebook: CellHarness) -> None:
    notebook.sky("%%time\n%matplotlib inline\nx = 1")
    assert notebook["x"] == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ns"),
        (2e-9, "2 ns"),
        (9.999999e-7, "1 μs"),
        (12.34e-6, "12.3 μs"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (65.4, "1min 5s"),
        (3600.0, "1h"),
        (90061.0, "1d 1h 1min 1s"),
    ],
)
def test_durations_are_human_readable(seconds: float, text: str) -> None:
    assert timeit_duration(seconds) == text
