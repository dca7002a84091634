"""The command line in a real terminal, with nodes on this computer."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.fakes.storage import ACCESS_KEY, SECRET_KEY
from tests.object_store import object_store
from tests.tmux import Done, TmuxTerminal, terminal_in
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.timeout(300)]

TALKING = """
import sys
import helper
sys.stdout.buffer.write(bytes(range(256)) * 300)
sys.stdout.flush()
print(sys.argv, __name__, helper.name(), open("data.txt").read())
print("on standard error", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
MAIN = """
import dataclasses, multiprocessing, pickle, sys

@dataclasses.dataclass
class Point:
    x: int

def square(number):
    return Point(number * number)

if __name__ == "__main__":
    for method in ("spawn", "fork"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(square, range(3)))
    print(pickle.loads(pickle.dumps(Point(7))))
    print("input:", repr(sys.stdin.read()))
    for number in range(3):
        print(f"\\r{number} of 3", end="")
    print()
    raise ValueError("the last line")
"""
SLOW = """
import sys, time
print("working", flush=True)
try:
    time.sleep(1000)
except KeyboardInterrupt:
    print("stopped, saving", flush=True)
    open("saved.txt", "w").write("saved")
    sys.exit(9)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("working", flush=True)
time.sleep(1000)
"""
LASTING = '[providers.lasting]\ntype = "local"\noutlives = true\n[pools.named]\nprovider = "lasting"\nttl = 600\n'


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[TmuxTerminal]:
    (tmp_path / "skyward.toml").write_text(LASTING)
    with terminal_in(tmp_path) as opened:
        yield opened
    command = [sys.executable, "-m", "skyward", "down", "--all", "-y", "--force"]
    subprocess.run(command, env={**os.environ, "SKYWARD_DATA_DIR": str(tmp_path / "data")}, check=False, timeout=90)


def script(terminal: TmuxTerminal, name: str, source: str) -> str:
    (terminal.folder / name).write_text(source)
    return name


def status_of(terminal: TmuxTerminal, name: str = "") -> list[dict[str, object]]:
    done = terminal.run(f"skyward status {name} --json", to_files=True)
    return list(json.loads(done.text))


def test_script_is_as_it_is_without_nodes(terminal: TmuxTerminal) -> None:
    (terminal.folder / "helper.py").write_text("def name():\n    return __name__\n")
    (terminal.folder / "data.txt").write_text("some data")
    script(terminal, "talking.py", TALKING)
    here = terminal.run(f"{sys.executable} talking.py 3 --epochs 3", to_files=True)
    there = terminal.run("skyward run talking.py -- 3 --epochs 3", to_files=True)
    assert (there.status, there.out) == (here.status, here.out) == (3, here.out)
    lines = there.errors.splitlines()
    assert [line for line in lines if not line.startswith("skyward: pool ")] == ["on standard error"]
    assert status_of(terminal) == []


def test_script_is_a_real_main_module(terminal: TmuxTerminal) -> None:
    done = terminal.run(f"sky run {script(terminal, 'main.py', MAIN)}")
    screen = terminal.screen
    assert done.status == 1
    for method in ("spawn", "fork"):
        assert f"{method} [Point(x=0), Point(x=1), Point(x=4)]" in screen
    assert "Point(x=7)\ninput: ''\n2 of 3\nTraceback (most recent call last):" in screen
    assert "ValueError: the last line" in screen


@pytest.mark.parametrize(
    ("source", "status", "says"),
    [
        ("import sys; sys.exit('a text')", 1, "a text\n"),
        ("import os; os.kill(os.getpid(), 11)", 139, "skyward run: t.py was ended by SIGSEGV on node 0.\n"),
        ("import os; os._exit(7)", 7, ""),
        ("this is no Python", 1, "SyntaxError: invalid syntax\n"),
        ("import os, time\nif os.fork() == 0:\n    time.sleep(1000)\n", 0, ""),
    ],
    ids=["text", "signal", "exit", "syntax", "child"],
)
def test_exit_status_is_that_of_the_script(terminal: TmuxTerminal, source: str, status: int, says: str) -> None:
    done = terminal.run(f"skyward run {script(terminal, 't.py', source)} --quiet", to_files=True)
    assert (done.status, done.out) == (status, b"")
    assert says in done.errors
    assert "skyward: pool" not in done.errors


def test_failed_script_is_a_failed_task(terminal: TmuxTerminal) -> None:
    """Regression: the pool said that one task was done."""
    failing = script(terminal, "failing.py", "import sys\nsys.exit(3)\n")
    for options, counted in (("", "0 tasks done, 1 failed"), ("--nodes 2 --on all", "0 tasks done, 2 failed")):
        done = terminal.run(f"skyward run {failing} {options}", to_files=True)
        assert (done.status, done.errors.splitlines()[-1].rpartition(": ")[2]) == (3, counted)


def test_script_on_all_nodes_has_labelled_lines(terminal: TmuxTerminal) -> None:
    source = "import skyward as sky\ni = sky.instance_info()\nprint(i.node, 'of', i.total_nodes)\nexit(i.node * 4)\n"
    done = terminal.run(f"skyward run {script(terminal, 'all.py', source)} --nodes 2 --on all --quiet", to_files=True)
    assert done.status == 4
    assert sorted(done.text.splitlines()) == ["[node 0] 0 of 2", "[node 1] 1 of 2"]
    assert "skyward run: all.py failed on node 1 of 2.\n" in done.errors


SHARING = """
import multiprocessing, os, signal, sys
import skyward as sky

def count(number):
    with sky.lock("both", timeout=60):
        counted = sky.counter("unguarded")
        counted.reset(counted.value + number)

if __name__ == "__main__":
    nodes = sky.instance_info().total_nodes
    sky.dict("seen")[sky.instance_info().node] = sky.instance_info().node * 10
    sky.barrier("set", nodes).wait(60)
    print([sky.dict("seen")[node] for node in range(nodes)])
    for method in ("spawn", "fork"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            pool.map(count, [1, 1, 1])
    sky.barrier("counted", nodes).wait(60)
    print(sky.counter("unguarded").value)
    try:
        sky.set("seen", consistency="weak")
    except sky.SpecError as error:
        print(error)
"""
HOLDING = """
import os, signal, sys
import skyward as sky
sky.lock("held").acquire()
if sys.argv[1] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
print("acquired")
"""


def test_script_and_its_processes_use_the_collections_of_the_pool(terminal: TmuxTerminal) -> None:
    """Regression: they raised an error that named a pool, which a node does not have."""
    command = f"skyward run {script(terminal, 'sharing.py', SHARING)} --nodes 2 --on all --quiet"
    for executor in ("thread", "process"):
        done = terminal.run(f"{command} --executor {executor}", to_files=True)
        assert (done.status, done.err) == (0, b"")
        refused = 'consistency must be "strong" or "eventual", but got \'weak\'.'
        expected = [f"[node {node}] {line}" for node in (0, 1) for line in ("[0, 10]", "12", refused)]
        assert sorted(done.text.splitlines()) == sorted(expected)


def test_lock_of_a_script_that_was_killed_is_released(terminal: TmuxTerminal) -> None:
    holding = script(terminal, "holding.py", HOLDING)
    assert terminal.run("skyward up kept --detach").status == 0
    assert terminal.run(f"skyward run --pool kept {holding} -- die", to_files=True).status == 137
    done = terminal.run(f"skyward run --pool kept {holding} -- go", to_files=True)
    assert (done.status, done.text) == (0, "acquired\n")
    waiting = script(
        terminal, "waiting.py", "import skyward as sky\nprint('waits', flush=True)\nsky.queue('q').get()\n"
    )
    started = terminal.start(f"skyward run --pool kept {waiting}")
    terminal.shows("waits")
    terminal.press("C-c")
    assert started.ended().status == 130
    put = script(terminal, "put.py", "import skyward as sky\nsky.queue('q').put(7)\nprint(sky.queue('q').get())\n")
    assert terminal.run(f"skyward run --pool kept {put}", to_files=True).text == "7\n"


def test_ctrl_c_stops_the_script_and_gives_the_nodes_back(terminal: TmuxTerminal) -> None:
    started = terminal.start(f"skyward run {script(terminal, 'slow.py', SLOW)}")
    terminal.shows("working")
    workers = processes_in(terminal)
    assert workers
    terminal.press("C-c")
    assert started.ended().status == 130
    screen = terminal.screen
    assert "stopping, and giving the nodes back; Ctrl-C again ends this command and the nodes at once" in screen
    assert "stopped, saving" in screen
    assert (terminal.folder / "saved.txt").read_text() == "saved"
    assert status_of(terminal) == []
    wait_for(lambda: not any(map(psutil.pid_exists, workers)), "the end of the nodes")


def processes_in(terminal: TmuxTerminal) -> list[int]:
    """Return the processes of nodes whose client has its journal in the folder of the terminal."""
    mark = str(terminal.folder / "data")
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        try:
            is_node = any("skyward.worker" in word for word in process.info["cmdline"] or ())
            if is_node and process.environ().get("SKYWARD_DATA_DIR") == mark:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_second_ctrl_c_leaves_the_nodes_to_their_lease(terminal: TmuxTerminal) -> None:
    started = terminal.start(f"skyward run {script(terminal, 'stubborn.py', STUBBORN)} --pool named")
    terminal.shows("working")
    terminal.press("C-c")
    terminal.shows("stopping, and giving the nodes back")

    def pressed_again() -> bool:  # at once, it is the same request
        terminal.press("C-c")
        return "left to their lease" in terminal.screen

    wait_for(pressed_again, "the end of the command")
    assert started.ended().status == 130
    assert (
        "left to their lease for 10 min 0 s, and cost money meanwhile: `skyward reap named` terminates"
        in terminal.screen
    )
    (pool,) = status_of(terminal)
    assert (pool["pool"], pool["state"], pool["owner_alive"]) == ("named", "left", False)
    reaped = terminal.run("skyward reap named", to_files=True)
    assert (reaped.status, reaped.text) == (0, "named: 1 machine terminated\n")
    assert status_of(terminal) == []


def test_script_whose_node_is_lost_fails(terminal: TmuxTerminal) -> None:
    source = (
        "import os, time\nprint('working')\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
        "os.kill(os.getppid(), 9)\ntime.sleep(1000)\n"
    )
    command = f"skyward run {script(terminal, 'lost.py', source)} --executor thread --quiet"
    started = terminal.start(command, to_files=True)
    out = started.path("out")
    wait_for(lambda: out.exists() and out.read_text() == "working\n", "the output of the script")
    (terminal.folder / "go").touch()
    done = started.ended()
    assert (done.status, done.text) == (1, "working\n")
    assert "skyward run: lost.py did not finish: node 0 died: " in done.errors
    assert status_of(terminal) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["TERM", "HUP"])
def test_other_signals_stop_the_script_too(terminal: TmuxTerminal, number: int, status: int) -> None:
    started = terminal.start(f"skyward run {script(terminal, 'slow.py', SLOW)}")
    terminal.shows("working")
    (pool,) = status_beside(terminal)
    os.kill(int(str(pool["pid"])), number)
    assert started.ended().status == status
    assert (terminal.folder / "saved.txt").read_text() == "saved"
    assert status_of(terminal) == []


def status_beside(terminal: TmuxTerminal) -> list[dict[str, object]]:
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        return status_of(other)


def test_elastic_pool_grows_for_the_script(terminal: TmuxTerminal) -> None:
    hello = script(terminal, "hello.py", "print('hello')")
    done = terminal.run(f"skyward run {hello} --nodes 0:2", to_files=True)
    assert (done.status, done.text) == (0, "hello\n")


def test_timeout_has_a_status_of_its_own(terminal: TmuxTerminal) -> None:
    done = terminal.run(f"skyward run {script(terminal, 'slow.py', SLOW)} --timeout 1", to_files=True)
    assert done.status == 124
    assert done.text == "working\nstopped, saving\n"
    assert "skyward run: slow.py ran past its timeout of 1 s, and was stopped.\n" in done.errors


def test_reader_that_has_read_enough_ends_the_script(terminal: TmuxTerminal) -> None:
    endless = script(terminal, "endless.py", "while True:\n    print('y' * 1000)\n")
    done = terminal.run(f"(skyward run {endless} --quiet; echo $? >left) | head -c 3", to_files=True)
    assert (done.status, done.out, done.err) == (0, b"yyy", b"")  # not the traceback of the stopped script
    wait_for(lambda: (terminal.folder / "left").exists(), "the end of the command")
    assert (terminal.folder / "left").read_text() == "141\n"
    assert status_of(terminal) == []


def test_detached_pool_runs_scripts_and_commands(terminal: TmuxTerminal) -> None:
    up = terminal.run("skyward up kept --detach --nodes 2 --ttl 10m", to_files=True)
    assert (up.status, up.text) == (0, "Pool 'kept' is left to its lease for 10 min 0 s.\n")
    again = terminal.run("skyward up kept --detach", to_files=True)
    assert again.status == 2
    assert "There is a pool 'kept' already: `skyward status kept` shows it" in again.errors
    hello = script(terminal, "hello.py", "import sys; print('hello', sys.argv[1:])")
    done = terminal.run(f"skyward run --pool kept {hello} -- a b", to_files=True)
    assert (done.status, done.text) == (0, "hello ['a', 'b']\n")
    done = terminal.run("skyward exec kept --on all -- 'pwd; echo $((6 * 7)) >&2'", to_files=True)
    assert (done.status, sorted(done.text.splitlines())) == (0, [f"[node {n}] {terminal.folder}" for n in (0, 1)])
    assert sorted(done.errors.splitlines()) == ["[node 0] 42", "[node 1] 42"]
    done = terminal.run("skyward exec kept -- python -c 'import sys; sys.exit(5)'", to_files=True)
    assert done.status == 5
    for command in (f"run --pool kept {hello}", "exec kept"):
        for on, says in (("7", "Pool 'kept' has no node 7; its nodes are 0, 1."), ("gpu", "it has no groups.")):
            refused = terminal.run(f"skyward {command} --on {on} -- true", to_files=True)
            assert (refused.status, refused.text, says in refused.errors) == (2, "", True)
    refused = terminal.run(f"skyward run --pool kept {hello} --file nothing.csv", to_files=True)
    assert (refused.status, refused.errors.startswith("skyward run: --file nothing.csv: no such file")) == (2, True)
    done = terminal.run("skyward exec kept -- no-such-program --flag", to_files=True)
    assert (done.status, "no-such-program cannot be started on node" in done.errors) == (127, True)
    (pool,) = status_of(terminal, "kept")
    assert (pool["state"], len(pool["machines"]), pool["lease"]) == ("left", 2, 600.0)  # type: ignore[arg-type]
    assert 0 < float(str(pool["lease_left"])) <= 600
    logs = terminal.run("skyward logs kept", to_files=True)
    assert logs.status == 0
    assert re.search(r"\[pool\] \S+ \S+ ready with 2 nodes after ", logs.text)
    assert re.search(r"\[node \d\] --- \S+ \S+ hello.py\n\[node \d\] hello \['a', 'b'\]\n", logs.text)
    only = terminal.run("skyward logs kept --node 1 --json", to_files=True)
    assert {json.loads(line)["node"] for line in only.text.splitlines()} == {1}
    down = terminal.run("skyward down kept", to_files=True)
    assert (down.status, "There is no terminal to ask on: give -y" in down.errors) == (2, True)
    started = terminal.start("skyward down kept")
    terminal.shows("Terminate 2 machines of kept? [y/N]")
    terminal.type("y").press("ENTER")
    assert started.ended().status == 0
    assert "kept: 2 machines terminated" in terminal.screen
    gone = terminal.run("skyward logs kept", to_files=True)
    assert (gone.status, "ready with 2 nodes" in gone.text) == (0, True)


def test_commands_that_are_refused_fail_or_are_interrupted_leave_the_pool(terminal: TmuxTerminal) -> None:
    """Regression: one of them locked the pool, since it was said to have unfinished tasks."""
    assert terminal.run("skyward up kept --detach", to_files=True).status == 0
    hello = script(terminal, "hello.py", "print('hello')")
    slow = script(terminal, "slow.py", SLOW)
    outside = terminal.folder.parent / "outside.txt"
    outside.write_text("")
    refused = {
        f"run --pool kept --on 7 {hello}": "Pool 'kept' has no node 7; its only node is 0.",
        f"run --pool kept --file ../outside.txt {hello}": "it is outside the working folder",
        f"run --pool kept --nodes 2 {hello}": "leave the options of a new pool out, except --budget",
        f"run --wait {hello}": "give its name with --pool",
        "exec kept --on 7 -- true": "Pool 'kept' has no node 7",
    }
    for command, says in refused.items():
        done = terminal.run(f"skyward {command}", to_files=True)
        assert (done.status, says in done.errors) == (2, True), (command, done.errors)
        assert terminal.run(f"skyward run --pool kept {hello}", to_files=True).text == "hello\n", command
    assert terminal.run("skyward exec kept -- false", to_files=True).status == 1
    assert terminal.run("skyward exec kept --timeout 1 -- sleep 60", to_files=True).status == 124
    started = terminal.start(f"skyward run --pool kept {slow}")
    terminal.shows("working")
    terminal.press("C-c")
    assert started.ended().status == 130
    assert "stopping; pool 'kept' stays; Ctrl-C again ends this command at once" in terminal.screen
    assert terminal.run(f"skyward run --pool kept {hello}", to_files=True).text == "hello\n"
    (pool,) = status_of(terminal, "kept")
    assert (pool["state"], len(pool["machines"])) == ("left", 1)  # type: ignore[arg-type]


def killed_node(terminal: TmuxTerminal, pool: str, rank: int) -> Done:
    """Kill the worker of a node of a pool that was left, by a script, and return the end of that command."""
    source = (
        "import os, psutil\nfor each in psutil.Process().parents():\n"
        "    if 'skyward.worker' in ' '.join(each.cmdline()): each.kill()\n"
    )
    killing = script(terminal, "killing.py", source)
    done = terminal.run(f"skyward run --pool {pool} --on {rank} {killing}", to_files=True)
    assert done.status == 1
    return done


def test_script_on_all_nodes_waits_for_those_that_are_replaced(terminal: TmuxTerminal) -> None:
    """Regression: it ran on the others only, without a line."""
    assert terminal.run("skyward up kept --detach --nodes 2", to_files=True).status == 0
    killed_node(terminal, "kept", 0)
    done = terminal.run("skyward exec kept --on all -- echo hello", to_files=True)
    assert (done.status, sorted(done.text.splitlines())) == (0, ["[node 0] hello", "[node 1] hello"])
    assert "skyward exec: waiting for node 0 of pool 'kept', which is not ready yet.\n" in done.errors


def test_pool_whose_only_node_is_lost_is_left_with_another_one(terminal: TmuxTerminal) -> None:
    """Regression: it was left without a node, and nothing said so."""
    assert terminal.run("skyward up kept --detach", to_files=True).status == 0
    lost = killed_node(terminal, "kept", 0)
    assert "skyward run: pool 'kept' has no node any more: waiting for its replacement." in lost.errors
    (pool,) = status_of(terminal, "kept")
    assert (pool["state"], [each["node"] for each in pool["machines"]]) == ("left", [0])  # type: ignore[attr-defined]
    assert terminal.run("skyward exec kept -- echo hello", to_files=True).text == "hello\n"


SAVING = """
import os, time
print("working", flush=True)
try:
    time.sleep(1000)
except KeyboardInterrupt:
    print("stopped", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.01)
    print("saved", flush=True)
"""


def test_second_ctrl_c_on_a_pool_that_stays_says_what_becomes_of_the_script(terminal: TmuxTerminal) -> None:
    """Regression: it said that the script goes on, which was killed; what the script printed then was in no log."""
    assert terminal.run("skyward up kept --detach", to_files=True).status == 0
    started = terminal.start(f"skyward run --pool kept {script(terminal, 'saving.py', SAVING)}")
    terminal.shows("working")
    terminal.press("C-c")
    terminal.shows("\nstopped")

    def pressed_again() -> bool:  # at once, it is the same request
        terminal.press("C-c")
        return "what this command runs there is being stopped: it is killed within 10 s" in terminal.screen

    wait_for(pressed_again, "the end of the command")
    (terminal.folder / "go").touch()
    assert started.ended().status == 130
    logs = [sys.executable, "-m", "skyward", "logs", "kept"]
    env = {**os.environ, "SKYWARD_DATA_DIR": str(terminal.folder / "data")}
    printed = ["[node 0] working", "[node 0] stopped", "[node 0] saved"]

    def lines() -> list[str]:
        done = subprocess.run(logs, env=env, capture_output=True, text=True, check=True, timeout=60)
        return [line for line in done.stdout.splitlines() if line in printed]

    wait_for(lambda: lines() == printed, "what the script printed at its end")


def test_command_waits_until_a_pool_is_free(terminal: TmuxTerminal) -> None:
    assert terminal.run("skyward up kept --detach", to_files=True).status == 0
    waiting = "import os, time\nprint('working', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    started = terminal.start(f"skyward run --pool kept {script(terminal, 'waiting.py', waiting)}")
    terminal.shows("working")
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        refused = other.run("skyward exec kept -- echo free", to_files=True)
        assert refused.status == 2
        assert re.search(
            r"^skyward exec: Pool 'kept' is used by process \d+ on \S+ \(`skyward run --pool kept waiting\.py`, "
            r"since [\d:]+\), and by one process at a time: give --wait to wait until it is free\.$",
            refused.errors.strip(),
        )
        patient = other.start("skyward exec kept --wait -- echo free", to_files=True)
        errors = patient.path("err")
        wait_for(lambda: errors.exists() and "waiting until pool 'kept' is free" in errors.read_text(), "its wait")
        (terminal.folder / "go").touch()
        assert started.ended().status == 0
        done = patient.ended()
        assert (done.status, done.text) == (0, "free\n")
        assert done.errors.count("waiting until") == 1


def test_budget_limits_the_lease_of_a_pool_that_stays(terminal: TmuxTerminal) -> None:
    """Regression: the pool cost more than its budget, and `[providers.local]` was not used for it."""
    (terminal.folder / "skyward.toml").write_text("[providers.local]\nhourly_price = 3.6\n")
    shown = terminal.run("skyward config kept", to_files=True)
    assert re.search(r"--provider +local +\S*skyward\.toml", shown.text)
    up = terminal.run("skyward up kept --detach --budget 0.2", to_files=True)
    assert up.status == 0
    assert re.match(r"Pool 'kept' is left for .*: the rest of its budget of \$0\.20 covers no more\.", up.text)
    (pool,) = status_of(terminal, "kept")
    assert (pool["budget"], pool["per_hour"]) == (0.2, 3.6)
    assert float(str(pool["spent"])) + float(str(pool["lease"])) * 0.001 <= 0.2
    done = terminal.run("skyward exec kept --budget 20 -- true", to_files=True)
    assert done.status == 0
    (pool,) = status_of(terminal, "kept")
    assert (pool["budget"], pool["lease"]) == (20.0, 600.0)


def test_nodes_of_a_killed_command_are_shown_as_gone(terminal: TmuxTerminal) -> None:
    """Regression: they were shown as running under their lease, and each command said something else of the pool."""
    started = terminal.start(f"skyward run {script(terminal, 'slow.py', SLOW)}")
    terminal.shows("working")
    (pool,) = status_beside(terminal)
    os.kill(int(str(pool["pid"])), signal.SIGKILL)
    assert started.ended().status == 137
    (pool,) = status_of(terminal)
    assert (pool["state"], pool["lease_left"], [each["ended"] for each in pool["machines"]]) == ("ended", 0.0, [True])  # type: ignore[attr-defined]
    assert "its nodes have ended" in terminal.run("skyward status", to_files=True).text
    says = (
        "The nodes of pool 'run-slow' have ended: `skyward down run-slow -y` clears it, and then `skyward up run-slow "
        "--detach` opens it anew.\n"
    )
    for command, rest in (("exec run-slow", "-- true"), ("run", "--pool run-slow slow.py"), ("up run-slow", "")):
        refused = terminal.run(f"skyward {command} {rest}", to_files=True)
        assert (refused.status, refused.errors) == (2, f"skyward {command.split()[0]}: {says}")
    assert terminal.run("skyward down run-slow -y", to_files=True).status == 0
    assert status_of(terminal) == []


def test_logs_are_followed_until_ctrl_c(terminal: TmuxTerminal) -> None:
    assert terminal.run("skyward up kept --detach").status == 0
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        started = other.start("skyward logs kept --follow")
        other.shows("ready with 1 node after")
        assert terminal.run("skyward exec kept -- 'echo one; echo two'").status == 0
        other.shows("[node 0] two")
        other.press("C-c")
        assert started.ended().status == 130


def folder_beside(terminal: TmuxTerminal) -> Path:
    folder = terminal.folder.with_name(f"{terminal.folder.name}-other")
    folder.mkdir()
    return folder


def test_shell_on_a_node(terminal: TmuxTerminal) -> None:
    assert terminal.run("skyward up kept --detach").status == 0
    started = terminal.start("skyward ssh kept 0")
    wait_for(lambda: terminal.screen.rstrip().endswith(("$", "#")), "the prompt of the shell")
    terminal.type("echo in $(basename $PWD)").press("ENTER")
    terminal.shows("in machine-1")
    terminal.type("exit 3").press("ENTER")
    assert started.ended().status == 3
    wrong = terminal.run("skyward ssh kept 7", to_files=True)
    assert (wrong.status, wrong.errors) == (2, "skyward ssh: Pool 'kept' has no node 7; it has 0.\n")
    none = terminal.run("skyward ssh nothing", to_files=True)
    assert none.status == 2
    assert none.errors == "skyward ssh: There is no pool 'nothing'; `skyward status` lists all pools.\n"


def test_pool_in_the_foreground_is_shown_and_given_back(terminal: TmuxTerminal) -> None:
    started = terminal.start("skyward up shown --nodes 2")
    terminal.shows("Pool shown: 2 nodes active; Ctrl-C gives the nodes back")
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        (pool,) = status_of(other, "shown")
        assert (pool["state"], pool["owner_alive"], pool["lease_left"]) == ("owned", True, None)
        refused = other.run("skyward down shown -y", to_files=True)
        assert refused.status == 1
        assert "which still runs: close it there, or give --force to ask that process." in refused.errors
        refused = other.run("skyward exec shown -- true", to_files=True)
        assert (refused.status, "is used by process" in refused.errors) == (2, True)
        for command in ("logs shown --node 1", "ssh shown"):
            refused = other.run(f"skyward {command}", to_files=True)
            assert refused.status == 1
            assert re.search(
                r"belong to process \d+ on \S+, and end with it: no other process can read", refused.errors
            )
        assert other.run("skyward logs shown", to_files=True).status == 0
    terminal.press("C-c")
    assert started.ended().status == 0
    lines = [line.split() for line in terminal.screen.splitlines()]  # the frame is whole: it was torn by the sentence
    head = next(index for index, words in enumerate(lines) if words[:2] == ["Pool", "shown:"])
    frame = lines[head : head + 5]
    assert [words[0] for words in frame] == ["Pool", "node", "0", "1", "skyward"]
    assert frame[-1][:3] == ["skyward", "up:", "stopping,"]
    assert not any(words[:2] == ["Pool", "shown:"] for words in lines[head + 1 :])
    assert status_of(terminal) == []


def test_owner_closes_its_pool_when_it_is_asked(terminal: TmuxTerminal) -> None:
    started = terminal.start("skyward up asked")
    terminal.shows("Pool asked: 1 node active")
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        down = other.run("skyward down asked --force -y", to_files=True)
        assert down.status == 0
        assert re.fullmatch(r"asked: closed by process \d+ on \S+\n", down.text)
        assert re.search(r"waiting for process \d+ on \S+ to close pool 'asked'\.$", down.errors.strip())
    assert started.ended().status == 0
    terminal.shows("closing: another process of this user asked for it.")


def test_owner_that_is_suspended_is_named(terminal: TmuxTerminal) -> None:
    """Regression: the command waited for 2 minutes, and said nothing."""
    terminal.start("skyward up named")
    terminal.shows("Pool named: 1 node active")
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        (pool,) = status_of(other, "named")
        owner = psutil.Process(int(str(pool["pid"])))
        owner.suspend()
        down = other.run("skyward down named --force -y", to_files=True)
        assert (down.status, down.text) == (1, "")
        assert re.search(
            rf"process {owner.pid} on \S+ has not answered within 10 s\. If it is suspended, `kill -CONT {owner.pid}` "
            rf"lets it go on; `kill -9 {owner.pid}` ends it, and then `skyward down named` terminates the machines\.$",
            down.errors.strip(),
        )
        owner.kill()
        wait_for(lambda: other.run("skyward down named -y", to_files=True).status == 0, "the end of its machines")


@pytest.mark.parametrize("stays", [False, True], ids=["own", "left"])
def test_script_whose_pool_another_process_closes_fails(terminal: TmuxTerminal, stays: bool) -> None:
    """Regression: it was said to be a wrong command, with status 2."""
    if stays:
        assert terminal.run("skyward up named --detach", to_files=True).status == 0
    started = terminal.start(f"skyward run {script(terminal, 'slow.py', SLOW)} --pool named", to_files=True)
    out = started.path("out")
    wait_for(lambda: out.exists() and out.read_text() == "working\n", "the output of the script")
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        assert other.run("skyward down named --force -y", to_files=True).status == 0
    done = started.ended()
    assert (done.status, done.text.startswith("working\n")) == (1, True)
    assert (
        "skyward run: pool 'named' was closed by another process, as by `skyward down --force`, and slow.py was "
        "stopped.\n" in done.errors
    )
    assert "send it again" not in done.errors


def test_owner_that_is_killed_is_gone(terminal: TmuxTerminal) -> None:
    started = terminal.start("skyward up named")
    terminal.shows("Pool named: 1 node active")
    with terminal_in(folder_beside(terminal), SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        (pool,) = status_of(other, "named")
        os.kill(int(str(pool["pid"])), signal.SIGKILL)
        assert started.ended().status == 128 + signal.SIGKILL
        (pool,) = status_of(other, "named")
        assert (pool["state"], pool["owner_alive"], pool["attachable"]) == ("left", False, True)
        done = other.run("skyward exec named -- echo usable", to_files=True)
        assert (done.status, done.text) == (0, "usable\n"), "no task of its former process can be lost"
        logs = other.run("skyward logs named", to_files=True)
        assert (logs.status, "ready with 1 node" in logs.text) == (0, True)
        found = other.run("skyward doctor --json", to_files=True)
        assert any(row.get("about") == "journal" and row["level"] == "ok" for row in json.loads(found.text))
        down = other.run("skyward down named -y", to_files=True)
        assert (down.status, down.text) == (0, "named: 1 machine terminated\n")


def test_pool_with_unfinished_tasks_is_not_attached_to_in_passing(terminal: TmuxTerminal) -> None:
    """A command that attaches and leaves again would receive their results, and drop them."""
    write = script(
        terminal,
        "leave.py",
        "import skyward as sky, time\n"
        "pool = sky.Compute(provider=sky.Local(outlives=True), name='busy', ttl=600).open()\n"
        "@sky.function\ndef work():\n    import os, time\n"
        f"    while not os.path.exists({str(terminal.folder / 'go')!r}): time.sleep(0.01)\n    return 42\n"
        "task = work() > pool\n"
        "while not pool.snapshot().running: time.sleep(0.01)\n"
        "pool.leave()\n",
    )
    assert terminal.run(f"{sys.executable} {write}", to_files=True).status == 0
    refused = terminal.run("skyward exec busy -- true", to_files=True)
    assert refused.status == 2
    assert "Pool 'busy' may have tasks of its former process, whose results this command would lose" in refused.errors
    (terminal.folder / "go").touch()
    code = "import skyward as sky; pool = sky.attach('busy'); print(pool.recovered[0].result()); pool.close()"
    done = terminal.run(f'{sys.executable} -c "{code}"', to_files=True)
    assert (done.status, done.text) == (0, "42\n")


LISTINGS = ("status", "reap", "config", "offers --provider local", "providers", "plugins", "costs", "image list")


@pytest.mark.parametrize("command", LISTINGS)
def test_listing_is_drawn_on_a_terminal_and_plain_in_a_file(terminal: TmuxTerminal, command: str) -> None:
    plain = terminal.run(f"skyward {command}", to_files=True)
    assert (plain.status, plain.err) == (0, b"")
    assert b"\x1b" not in plain.out
    rows = terminal.run(f"skyward {command} --json", to_files=True)
    assert isinstance(json.loads(rows.text), list)
    assert terminal.run(f"skyward {command}").status == 0
    first = plain.text.splitlines()[0].split()[0]
    terminal.shows(first)


def test_no_color_is_heeded(terminal: TmuxTerminal) -> None:
    """The same command writes control sequences to a terminal, unless that variable is set."""
    for variable, colours in (("", True), ("NO_COLOR=1 ", False)):
        command = f"{variable}skyward plugins"
        inside = f"script -qec {json.dumps(command)} typed >/dev/null"
        assert terminal.run(inside).status == 0
        assert (b"\x1b[1m" in (terminal.folder / "typed").read_bytes()) == colours or not colours


def test_doctor_names_the_fix_of_a_problem(terminal: TmuxTerminal) -> None:
    (terminal.folder / "skyward.toml").write_text("[pools.x]\nnodez = 3\n")
    done = terminal.run("skyward doctor", to_files=True)
    assert done.status == 1
    assert "  ok: Python: " in done.text
    assert "PROBLEM: skyward.toml: " in done.text
    assert "; correct the file\n" in done.text


def test_simulation_and_version(terminal: TmuxTerminal) -> None:
    done = terminal.run("skyward simulate --nodes 0:4 --hours 0.5 --task-seconds 60 --json", to_files=True)
    assert (done.status, "policies" in json.loads(done.text)) == (0, True)
    assert terminal.run("sky --version", to_files=True).text == terminal.run("skyward --version", to_files=True).text


def test_objects_of_a_bucket_are_listed_and_copied(terminal: TmuxTerminal) -> None:
    with object_store() as bucket:
        table = f'[storages.mine]\nendpoint = "{bucket.store.url}"\npath_style = true\n'
        keys = f'access_key = "{ACCESS_KEY}"\nsecret_key = "{SECRET_KEY}"\n'
        (terminal.folder / "skyward.toml").write_text(table + keys)
        (terminal.folder / "images").mkdir()
        (terminal.folder / "images" / "a.bin").write_bytes(bytes(range(256)))
        (terminal.folder / "images" / "b.txt").write_text("b")
        done = terminal.run(f"skyward volume put images mine://{bucket.name}/train", to_files=True)
        assert (done.status, done.errors) == (
            0,
            f"skyward volume: 2 objects written to mine://{bucket.name}/train.\n",
        )
        assert bucket.keys() == ["train/a.bin", "train/b.txt"]
        rows = json.loads(terminal.run(f"skyward volume ls mine://{bucket.name}/train --json", to_files=True).text)
        assert [(row["key"], row["size"]) for row in rows] == [("train/a.bin", 256), ("train/b.txt", 1)]
        plain = terminal.run(f"skyward volume ls mine://{bucket.name}", to_files=True)
        assert plain.text.splitlines()[0].split() == ["size", "modified", "key"]
        assert terminal.run(f"skyward volume get mine://{bucket.name}/train copy", to_files=True).status == 0
        assert (terminal.folder / "copy" / "a.bin").read_bytes() == bytes(range(256))
        refused = terminal.run(f"skyward volume rm mine://{bucket.name}/train/a.bin", to_files=True)
        assert (refused.status, bucket.keys()) == (2, ["train/a.bin", "train/b.txt"])
        done = terminal.run(f"skyward volume rm mine://{bucket.name}/train -r -y", to_files=True)
        assert (done.status, bucket.keys()) == (0, [])
        unnamed = terminal.run(f"AWS_EC2_METADATA_DISABLED=true skyward volume ls {bucket.name}", to_files=True)
        assert f"write mine://{bucket.name} for a table of skyward.toml" in unnamed.errors
        missing = terminal.run(f"skyward volume get mine://{bucket.name}/nothing", to_files=True)
        assert missing.status == 1
        assert SECRET_KEY not in terminal.screen + missing.errors + done.errors


SHELLS = {
    "bash": (("bash", "--norc", "-i"), "source"),
    "zsh": (("zsh", "-f", "-i"), "source"),
    "fish": (("fish", "--no-config", "-i"), "source"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_words_are_completed_after_tab(tmp_path: Path, shell: str) -> None:
    (tmp_path / "skyward.toml").write_text("[pools.trained]\nnodes = 2\n")
    (tmp_path / "script_of_mine.py").touch()
    words, source = SHELLS[shell]
    with terminal_in(tmp_path, words) as terminal:
        terminal.type(f"skyward completion {shell} >completion; {source} ./completion; echo ready").press("ENTER")
        wait_for(lambda: "\nready" in terminal.screen, "the completion script")
        for typed, completed in (
            ("skyward stat", "skyward status"),
            ("sky image bu", "sky image build"),
            ("skyward down tra", "skyward down trained"),
            ("skyward run --provid", "skyward run --provider"),
            ("skyward run --arch ar", "skyward run --arch arm64"),
            ("skyward run script_o", "skyward run script_of_mine.py"),
        ):
            terminal.type(typed).press("TAB")
            terminal.shows(completed)
            terminal.press("C-u")
