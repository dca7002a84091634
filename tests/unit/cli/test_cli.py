"""Command `sky`: output, and errors about the command line."""

import builtins
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from skyward.cli.main import main
from skyward.cli.simulate import boot_time, group_of, node_bounds, rate
from skyward.scaling.registry import POLICIES
from skyward.simulator import Distribution
from skyward.values.needs import Needs

pytestmark = pytest.mark.unit

SMALL = ("--nodes", "0:4", "--hours", "0.5", "--task-seconds", "60")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return the exit status, and the text of both streams."""
    try:
        status = main(["simulate", *arguments])
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


def test_table_has_all_policies_and_the_bounds() -> None:
    """Runs in a separate process, since policies run in processes."""
    command = [sys.executable, "-m", "skyward.cli.main", "simulate", *SMALL, "--policy", "binpack", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows = done.stdout.splitlines()
    assert head.startswith("policy")
    names = [row.split("  ")[0] for row in rows if ": of " not in row]
    others = [name for name in POLICIES if name != "binpack"]
    assert names == ["binpack", *others, "bound, no wait", "bound, any wait"]


def test_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "skyward", "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: sky ")


def test_reader_that_has_read_enough_ends_the_command_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run([sys.executable, "-m", "skyward", "reap"], stdout=writing, stderr=PIPE, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_full_device_is_named() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "skyward", "reap"], stdout=full, stderr=PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"sky reap: No space left on device; free some space, and try again\n")


def test_only_runs_one_policy(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *SMALL, "--only", "--spot-loss", "0.5/h", "--faults", "rough", "--check")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["adaptive", "bound,", "bound,"]


def test_target_changes_what_tasks_wait_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    def figures(target: str) -> dict[str, Any]:
        status, out, _ = run(capsys, *SMALL, "--only", "--json", "--price", "3.2", "--target", target)
        assert status == 0
        return dict(json.loads(out)["policies"][0])

    fast, cheap = figures("fast"), figures("900")
    assert cheap == {**figures("cheap"), "wall_seconds": cheap["wall_seconds"]}
    assert fast["cost"] > cheap["cost"]
    assert fast["wait_p99"] < cheap["wait_p99"]


def test_json_is_deterministic_for_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    def figures(seed: str) -> dict[str, Any]:
        status, out, _ = run(capsys, *SMALL, "--only", "--json", "--seed", seed, "--price", "3.2", "--boot", "30+-5")
        assert status == 0
        said = json.loads(out)
        del said["policies"][0]["wall_seconds"]
        return dict(said)

    assert figures("1") == figures("1") != figures("2")
    assert figures("1")["policies"][0]["policy"] == "adaptive"
    assert figures("1")["lower_bound"]["no_wait"] > 0


def test_trace_is_simulated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("at,seconds,count,GPU\n0,60,3,\n10,60,2,1\n")
    pool = ("--group", "cpu=0:4,price=1", "--group", "gpu=0:2,price=9,GPU=1", "--policy", "binpack")
    status, out, _ = run(capsys, "--trace", str(trace), *pool, "--only", "--json")
    assert status == 0
    (row,) = json.loads(out)["policies"]
    assert (row["tasks"], row["finished"]) == (5, 5)


def test_plot_is_a_png(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.png"
    assert run(capsys, *SMALL, "--only", "--plot", str(path))[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib_names_the_fix(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return usual(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    status, _, err = run(capsys, *SMALL, "--only", "--plot", str(tmp_path / "run.png"))
    assert (status, err) == (2, "sky simulate: A plot needs matplotlib: install it with `pip install matplotlib`.\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "presure"], "There is no scaling policy 'presure'; did you mean 'pressure'?"),
        (
            ["--target", "soon"],
            "--target must be cheap, balanced or fast, or seconds, as in `--target 300`, but got 'soon'.",
        ),
        (["--waiting-cost", "0"], "--waiting-cost must be a number above 0, as in `--waiting-cost 3.2`, but got '0'."),
        (["--workload", "diurnl"], "There is no workload 'diurnl'; did you mean 'diurnal'?"),
        (["--faults", "huge"], "There is no set of faults 'huge'; it has calm, hostile, rough."),
        (["--nodes", "many"], "--nodes must be MIN:MAX or one number, as in `--nodes 0:1000`, but got 'many'."),
        (["--nodes", "9:3"], "--nodes has a maximum (3) below its minimum (9); write `--nodes 3:9`."),
        (["--nodes", "0"], "--nodes must allow 1 to 100,000 nodes, as in `--nodes 0:1000`, but got '0'."),
        (["--boot", "soon"], "--boot must be seconds, as in `--boot 60` or `--boot 60±20`, but got 'soon'."),
        (["--boot", "10±20"], "--boot 10±20 could be below 0 s; make what follows ± at most 10."),
        (["--price", "-3"], "--price must be a number of at least 0, as in `--price 3.2`, but got '-3'."),
        (["--spot-loss", "2%"], "--spot-loss must be a rate, as in `--spot-loss 0.02/h`, but got '2%'."),
        (["--slots", "0"], "--slots must be a whole number of at least 1, as in `--slots 4`, but got '0'."),
        (["--hours", "0"], "--hours must be a number above 0, as in `--hours 3.2`, but got '0'."),
        (["--budget", "nan"], "--budget must be a number above 0, as in `--budget 3.2`, but got 'nan'."),
        (
            ["--group", "gpu"],
            "--group must be NAME=MIN:MAX,..., as in `--group gpu=0:8,price=12,GPU=4`, but got 'gpu'.",
        ),
        (["--group", "gpu=0:8,fast"], "--group gpu has 'fast'; write NAME=VALUE, as in `GPU=4`."),
        (["--group", "a=0:1", "--group", "a=0:2"], "Two groups have the same name; give each --group another."),
        (
            ["--group", "a=0:1", "--price", "3"],
            "--price cannot be combined with --group; give it inside the group, as `--group cpu=0:100,price=3.2`.",
        ),
        (["--trace", "/nowhere/t.csv"], "The trace '/nowhere/t.csv' cannot be read (No such file or directory); give"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'; `sky simulate --help` shows every option."),
        (["--polcy", "no"], "unrecognized arguments: --polcy no"),
        (["--trace", "t", "--workload", "burst"], "argument --workload: not allowed with argument --trace"),
    ],
)
def test_invalid_arguments_raise_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    status, out, err = run(capsys, "--only", *arguments)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_unwritable_plot_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, *SMALL, "--only", "--plot", "/nowhere/run.png")
    assert status == 2
    assert err == "sky simulate: The plot cannot be written to '/nowhere/run.png' (No such file or directory); " + (
        "give another path.\n"
    )


def test_without_a_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "simulate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "spread"),
    [
        ("60", Distribution(60)),
        ("60±20", Distribution(60, 20)),
        ("60+-20", Distribution(60, 20)),
        ("1.5s +/- .5s", Distribution(1.5, 0.5)),
    ],
)
def test_boot_times_are_parsed(text: str, spread: Distribution) -> None:
    assert boot_time(text) == spread


def test_rates_and_bounds_are_parsed() -> None:
    assert [rate("0.02/h"), rate("0.5"), rate("2.4/d")] == pytest.approx([0.02, 0.5, 0.1])
    assert (node_bounds("0:1000"), node_bounds("8")) == ((0, 1000), (8, 8))


def test_group_is_parsed() -> None:
    group = group_of("gpu=1:8,slots=2,price=12.5,GPU=4,CPU=32,can=fast+Big")
    assert (group.name, group.min, group.max, group.slots, group.hourly_price) == ("gpu", 1, 8, 2, 12.5)
    assert group.can_hold(Needs({"GPU": 4}, {"fast", "big"}))
    assert not group.can_hold(Needs({"GPU": 5}))


def test_simulator_does_not_load_matplotlib() -> None:
    program = "import skyward.cli.main, skyward.simulator, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
