"""Command `sky`: output, and errors about the command line."""

import builtins
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil
import pytest

from skyward.cli.main import main
from skyward.cli.simulate import boot_time, group_of, node_bounds, rate
from skyward.cli.simulation import all_options, scenario_of
from skyward.commands.table.every_command import OF_COMMAND_LINE
from skyward.commands.words import parse
from skyward.control.decide.settings import PlaneSettings
from skyward.scaling.registry import POLICIES
from skyward.simulator import Distribution, Scenario, one_group
from skyward.specs.options import Options
from skyward.values.needs import Needs
from tests.terminal import Terminal
from tests.waiting import wait_for

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


def test_comparison_has_all_policies_and_the_bounds() -> None:
    """Runs in a separate process, since policies run in processes."""
    command = [sys.executable, "-m", "skyward.cli.main", "simulate", *SMALL, "--policy", "binpack", "--compare"]
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
    assert done.stdout.startswith("usage: skyward COMMAND ")


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
    assert (done.returncode, done.stderr) == (
        1,
        b"skyward reap: standard output cannot be written: No space left on device; free some space, and try again.\n",
    )


@pytest.mark.parametrize("words", ["--help", "status", "reap --json"])
def test_command_without_standard_output_is_no_error(words: str) -> None:
    command = f"exec {sys.executable} -m skyward {words} >&-"
    done = subprocess.run(command, shell=True, stderr=PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_only_the_chosen_policy_runs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *SMALL, "--spot-loss", "0.5/h", "--faults", "rough", "--check")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [POLICIES[0], "bound,", "bound,"]


def test_target_changes_what_tasks_wait_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    def figures(target: str) -> dict[str, Any]:
        status, out, _ = run(capsys, *SMALL, "--json", "--price", "3.2", "--target", target)
        assert status == 0
        return dict(json.loads(out)["policies"][0])

    fast, cheap = figures("fast"), figures("15m")
    assert cheap == {**figures("cheap"), "wall_seconds": cheap["wall_seconds"]}
    assert fast["cost"] > cheap["cost"]
    assert fast["wait_p99"] < cheap["wait_p99"]


def test_json_is_deterministic_for_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    def figures(seed: str) -> dict[str, Any]:
        status, out, _ = run(capsys, *SMALL, "--json", "--seed", seed, "--price", "3.2", "--boot", "30+-5")
        assert status == 0
        said = json.loads(out)
        del said["policies"][0]["wall_seconds"]
        return dict(said)

    assert figures("1") == figures("1") != figures("2")
    assert figures("1")["policies"][0]["policy"] == POLICIES[0]
    assert figures("1")["lower_bound"]["no_wait"] > 0


def test_trace_is_simulated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("at,seconds,count,GPU\n0,60,3,\n10,60,2,1\n")
    pool = ("--group", "cpu=0:4,price=1", "--group", "gpu=0:2,price=9,GPU=1", "--policy", "binpack")
    status, out, _ = run(capsys, "--trace", str(trace), *pool, "--json")
    assert status == 0
    (row,) = json.loads(out)["policies"]
    assert (row["tasks"], row["finished"]) == (5, 5)


@pytest.mark.parametrize(
    ("text", "groups", "sentence"),
    [
        (
            "at,seconds,foo\n0,5,3\n",
            [],
            "1 task of t.csv needs 3 foo, but no node has 'foo', and each column but at, seconds, count and "
            "capabilities is a resource of the nodes: add a group that has it, as in `--group more=0:100,foo=3`.",
        ),
        (
            "at,seconds,count,GPU\n0,5,2,\n0,5,3,1\n",
            ["--group", "a=0:2,gpu=1,mem=4"],
            "3 tasks of t.csv need 1 GPU, but no node has 'GPU' (its nodes have gpu and mem), and each column but at, ",
        ),
        (
            "at,seconds,capabilities,GPU\n0,5,fast big,2\n",
            ["--group", "a=0:2,GPU=4,can=big"],
            "but no node has the capability 'fast': add a group that has it, as in `--group more=0:100,GPU=2,can=big+f",
        ),
        (
            "at,seconds,capabilities,GPU\n0,5,fast,2\n",
            ["--group", "a=0:2,GPU=4", "--group", "b=0:2,GPU=1,can=fast"],
            "1 task of t.csv needs 2 GPU and capability 'fast', but no node has as much, or all of it together: add",
        ),
        (
            '{"at": 0, "seconds": 5, "resources": {"foo": 3}}\n',
            [],
            "1 task of t.csv needs 3 foo, but no node has 'foo'",
        ),
    ],
    ids=["resource", "name", "capability", "together", "JSON lines"],
)
def test_trace_that_no_group_can_run_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, groups: list[str], sentence: str
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(text)
    status, out, err = run(capsys, "--trace", str(trace), *groups)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_unfinished_task_is_counted_in_the_singular(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("at,seconds\n0,5\n")
    _, out, _ = run(capsys, "--trace", str(tmp_path / "t.csv"), "--nodes", "0:1", "--boot", "700")
    assert "adaptive: of 1 task, 1 " in out


def test_plot_is_a_png(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.png"
    assert run(capsys, *SMALL, "--plot", str(path))[0] == 0
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
    status, _, err = run(capsys, *SMALL, "--plot", str(tmp_path / "run.png"))
    assert (status, err) == (
        2,
        "skyward simulate: A plot needs matplotlib: install it with `pip install matplotlib`.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--policy", "presure"], "There is no scaling policy 'presure'; did you mean 'pressure'?"),
        (
            ["--target", "soon"],
            "--target must be cheap, balanced or fast, or a duration of at least 0, as in `--target 300` or `--target "
            "5m`, but got 'soon'.",
        ),
        (
            ["--consolidate-within", "-1"],
            "--consolidate-within must be a duration of at least 0, as in `--consolidate-within 300` or "
            "`--consolidate-within 5m`, but got '-1'.",
        ),
        (
            ["--waiting-cost", "-1"],
            "--waiting-cost must be a number of at least 0, as in `--waiting-cost 3.2`, but got '-1'.",
        ),
        (
            ["--nodes", "4:8", "--max-nodes", "3"],
            "--max-nodes 3 is below the 4 nodes that the pool keeps at least: write `--max-nodes 4` or more, or a "
            "lower minimum in --nodes or --group.",
        ),
        (
            ["--group", "a=1:2", "--group", "b=2:4", "--max-nodes", "2"],
            "--max-nodes 2 is below the 3 nodes that the pool keeps at least",
        ),
        (["--retries", "x"], "--retries must be a whole number of at least 0, as in `--retries 4`, but got 'x'."),
        (["--max-nodes", "0"], "--max-nodes must be a whole number of at least 1, as in `--max-nodes 4`, but got '0'."),
        (["--tick", "0"], "--tick must be a duration above 0, as in `--tick 300` or `--tick 5m`, but got '0'."),
        (
            ["--group", "gpu=many"],
            "--group gpu must be MIN:MAX or one number, as in `--group gpu=0:1000`, but got 'many'.",
        ),
        (["--group", "gpu=4:2"], "--group gpu has a maximum (2) below its minimum (4); write `--group gpu=2:4`."),
        (
            ["--group", "gpu=0:8,slots=x"],
            "slots of --group gpu must be a whole number of at least 1, as in `--group gpu=0:8,slots=4`, but got 'x'.",
        ),
        (
            ["--group", "gpu=0:8,price=x"],
            "price of --group gpu must be a number of at least 0, as in `--group gpu=0:8,price=3.2`, but got 'x'.",
        ),
        (
            ["--group", "gpu=0:8,GPU=0"],
            "GPU of --group gpu must be a number above 0, as in `--group gpu=0:8,GPU=4`, but got '0'.",
        ),
        (
            ["--group", "gpu=0:8,can="],
            "can of --group gpu must be names, as in `--group gpu=0:8,can=fast+big`, but got ''.",
        ),
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
        (["--group", "gpu=0:8,fast"], "--group gpu has 'fast'; write NAME=VALUE, as in `--group gpu=0:8,GPU=4`."),
        (["--group", "a=0:1", "--group", "a=0:2"], "Two groups have the same name; give each --group another."),
        (
            ["--group", "a=0:1", "--price", "3"],
            "--price cannot be combined with --group; give it inside the group, as `--group cpu=0:100,price=3.2`.",
        ),
        (["--trace", "/nowhere/t.csv"], "The trace '/nowhere/t.csv' cannot be read (No such file or directory); give"),
        (["--seed", "x"], "--seed takes a whole number, such as 1, but got 'x'."),
        (["--polcy", "no"], "has no option --polcy; did you mean --policy?"),
        (["--zzzz"], "has no option --zzzz; `skyward simulate --help` lists them."),
        (["--trace"], "--trace needs a value: the path of a file."),
        (["--trace", "t", "--workload", "burst"], "--workload cannot be combined with --trace: give one of them."),
    ],
)
def test_invalid_arguments_raise_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_unwritable_plot_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, *SMALL, "--plot", "/nowhere/run.png")
    assert status == 2
    assert err == "skyward simulate: The plot cannot be written to '/nowhere/run.png' (No such file or directory); " + (
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


def test_help_has_the_defaults_of_pools(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    text = " ".join(out.split())
    options, settings = Options(), PlaneSettings((), {})
    assert f"the policy ({options.policy})" in text
    assert f"cooldown of the autoscaler ({options.autoscale_cooldown:g})" in text
    assert f"that new tasks trigger ({settings.evaluation_gap:g})" in text


def test_defaults_of_a_scenario_are_those_of_a_pool() -> None:
    options, settings = Options(), Scenario((), one_group(0, 1)).settings()
    usual = PlaneSettings(settings.groups, settings.sources)
    assert settings == usual
    assert (settings.retries, settings.cooldown) == (options.retry_on_interruption, options.autoscale_cooldown)
    assert (settings.idle_timeout, settings.tick) == (options.autoscale_idle_timeout, options.reconcile_tick_interval)
    assert settings.limits.concurrent_launches == options.max_concurrent_launches
    assert settings.limits.upscaling_speed == options.upscaling_speed
    assert (settings.budget, settings.max_nodes) == (options.budget, options.max_nodes)


@pytest.mark.parametrize(
    ("option", "value", "field", "expected"),
    [
        ("--look-gap", "1.5", "evaluation_gap", 1.5),
        ("--tick", "3", "tick", 3.0),
        ("--retries", "0", "retries", 0),
        ("--retries", "7", "retries", 7),
        ("--cooldown", "0", "cooldown", 0.0),
        ("--idle-timeout", "5", "idle_timeout", 5.0),
        ("--idle-timeout", "0", "idle_timeout", 0.0),
        ("--waiting-cost", "0", "waiting_cost", 0.0),
        ("--max-nodes", "3", "max_nodes", 3),
        ("--budget", "2.5", "budget", 2.5),
        ("--boot-limit", "700", "limits.boot", 700.0),
        ("--launch-attempts", "5", "limits.launches", 5),
        ("--launches", "12", "limits.concurrent_launches", 12),
        ("--upscaling-speed", "0.5", "limits.upscaling_speed", 0.5),
    ],
)
def test_settings_of_the_pool_are_options(option: str, value: str, field: str, expected: float) -> None:
    given = parse(OF_COMMAND_LINE["simulate"], [option, value], "skyward")
    settings = scenario_of(all_options(given)).settings()
    assert attrgetter(field)(settings) == expected


def test_bound_at_the_same_wait_is_beside_the_cost(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *SMALL, "--boot", "30", "--json")
    (row,) = json.loads(out)["policies"]
    lower = json.loads(out)["lower_bound"]
    assert status == 0
    assert lower["any_wait"] <= row["bound_at_p99"] <= row["cost"]
    head, first, *_ = run(capsys, *SMALL, "--boot", "30")[1].splitlines()
    assert head.split()[3:6] == ["cost", "bound", "/bound"]
    assert f"{row['cost'] / row['bound_at_p99']:.2f}x" in first


def test_bound_without_waiting_shows_the_waits_for_the_maximum(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Three tasks of 100 s on one node."""
    (tmp_path / "trace.csv").write_text("at,seconds,count\n0,100,3\n")
    _, out, _ = run(capsys, "--trace", str(tmp_path / "trace.csv"), "--nodes", "0:1")
    (line,) = (line for line in out.splitlines() if line.startswith("bound, no wait"))
    assert re.split(r"  +", line)[6:8] == ["1 min 40 s", "3 min 20 s"]


@pytest.mark.parametrize(
    ("boot", "says"),
    [
        (
            "700",
            "The boot time of 700 s is over the boot limit of 600 s: a machine that is no node by then",
        ),
        ("590±20", "The boot time of 590±20 s can be over the boot limit of 600 s"),
        ("580±20", ""),
    ],
)
def test_boot_over_the_limit_is_pointed_out(capsys: pytest.CaptureFixture[str], boot: str, says: str) -> None:
    status, out, err = run(capsys, "--nodes", "0:2", "--hours", "0.1", "--boot", boot)
    assert (status, err) == (0, "")
    assert says in out
    assert ("boot limit" in out) == bool(says)
    if boot == "700":
        assert "1.00x" not in out.splitlines()[1]  # no task was done, so there is no bound
        assert "`--boot-limit 700`" in out
        _, raised, _ = run(capsys, "--nodes", "0:2", "--hours", "0.1", "--boot", boot, "--boot-limit", "700")
        assert "boot limit" not in raised


def test_replay_of_a_simulated_log_says_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    assert run(capsys, *SMALL, "--policy", "binpack", "--decision-log", log)[0] == 0
    status, out, err = run(capsys, "--replay", log)
    assert (status, err) == (0, "")
    assert re.fullmatch(
        r"The same decisions: [\d,]+ evaluations of 'binpack' in 1 pool, of which \d+ changed the number .*\n",
        out,
    )
    assert json.loads(run(capsys, "--replay", log, "--json")[1])["differences"] == []


@pytest.mark.parametrize("policy", [(), ("--policy", "pressure")])
def test_replay_of_a_log_without_evaluations_fails(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: tuple[str, ...]
) -> None:
    """Regression: it said that the decisions were the same."""
    log = tmp_path / "log"
    run(capsys, *SMALL, "--policy", "binpack", "--decision-log", str(log))
    log.write_text(log.read_text().splitlines()[0] + "\n")
    said = f"Nothing was compared: '{log}' has no evaluation of a policy, only the settings of 1 pool.\n"
    assert run(capsys, "--replay", str(log), *policy) == (1, said, "")


def test_replay_prints_the_first_difference_and_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    run(capsys, *SMALL, "--policy", "binpack", "--decision-log", str(log))
    log.write_text(
        log.read_text().replace('"parameters":{"interval":5.0}', '"parameters":{}').replace(" wait ", " WAIT ")
    )
    status, out, _ = run(capsys, "--replay", str(log))
    lines = out.splitlines()
    assert status == 1
    assert re.match(r"\d+ of \d+ evaluations of 'binpack' differ from the log. The first:", lines[0])
    assert re.match(r"line \d+, .* after the first evaluation of pool 'simulated'", lines[1])
    assert [line.split()[0] for line in lines[2:]] == ["input:", "recorded:", "now:"]
    assert "WAIT" in lines[3]
    assert "wait" in lines[4]


def test_replay_shows_the_decisions_of_another_policy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    run(capsys, *SMALL, "--policy", "binpack", "--decision-log", log)
    status, out, _ = run(capsys, "--replay", log, "--policy", "no")
    first, head, *rows = out.splitlines()
    assert status == 0
    assert re.match(r"At \d+ of \d+ evaluations, 'no' requests other nodes than 'binpack' did.", first)
    assert head.split() == ["line", "after", "queued", "nodes", "recorded", "no", "reason"]
    assert rows


def test_replay_under_the_recorded_policy_says_what_was_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The pool did follow these decisions."""
    log = tmp_path / "log"
    run(capsys, *SMALL, "--policy", "vanilla", "--decision-log", str(log))
    for name in ("vanilla", "allocate=even_load; scaling=vanilla"):
        status, out, _ = run(capsys, "--replay", str(log), "--policy", name)
        assert status == 0
        assert re.fullmatch(
            rf"'{name}' was compared with the log of a policy of the same name and parameters: the numbers of nodes "
            r"differ at 0 of \d+ evaluations. Without --policy, reasons and limits are compared too.\n",
            out,
        )
    header, rest = log.read_text().split("\n", 1)
    others = {**json.loads(header), "parameters": {"upper": 1000.0}}
    log.write_text(json.dumps(others) + "\n" + rest)
    out = run(capsys, "--replay", str(log), "--policy", "vanilla")[1]
    assert out.startswith("'vanilla' was compared with the log of a policy of the same name, but with other parameters")
    assert "which did not follow its decisions" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--boot", "60"],
            "--boot cannot be combined with --replay, which takes everything but --policy",
        ),
        (["--decision-log", "x"], "--decision-log cannot be combined with --replay"),
        (["--policy", "nope"], "There is no scaling policy 'nope'"),
    ],
)
def test_replay_takes_only_a_policy(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    log = str(tmp_path / "log")
    run(capsys, *SMALL, "--decision-log", log)
    status, out, err = run(capsys, "--replay", log, *arguments)
    assert (status, out) == (2, "")
    assert sentence in err


def is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_interrupt_ends_every_process_quietly(tmp_path: Path) -> None:
    """The whole group gets the signal, as from Ctrl-C in a terminal."""
    command = [sys.executable, "-m", "skyward", "simulate", "--compare", "--nodes", "0:1000", "--hours", "48"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as running:
        group = psutil.Process(running.pid)
        wait_for(lambda: len(group.children()) > 1, "the processes of the policies")
        children = group.children(recursive=True)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=30)
    assert (running.returncode, out, err) == (130, "", "skyward simulate: interrupted\n")
    wait_for(lambda: not any(map(is_running, children)), "the processes to end, also that of `multiprocessing` itself")


def test_progress_is_shown_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["simulate", *SMALL, "--policy", "binpack"]) == 0
    assert "binpack" in terminal.getvalue()
    assert "100%" in terminal.getvalue()
    assert capsys.readouterr().out.startswith("policy")


def test_simulator_does_not_load_matplotlib() -> None:
    program = "import skyward.cli.main, skyward.simulator, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
