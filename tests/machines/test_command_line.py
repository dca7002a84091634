"""The command line in a real terminal, with nodes on machines that share no files with this computer."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.machine import Network
from tests.tmux import PYTHONPATH, TmuxTerminal, terminal_in
from tests.waiting import wait_for

pytestmark = [pytest.mark.machines, pytest.mark.timeout(300)]

SCRIPT = """
import os, sys
from package import part
import helper
print(sys.argv, __name__, helper.NAME, part.NAME, open("data.txt").read())
os.makedirs("out", exist_ok=True)
open("out/result.txt", "w").write("result of " + sys.argv[1])
print(os.path.basename(os.getcwd()) == "%s", file=sys.stderr)
sys.exit(3)
"""
SLOW = """
import sys, time
print("working", flush=True)
try:
    time.sleep(1000)
except KeyboardInterrupt:
    open("out.txt", "w").write("saved")
    sys.exit(9)
"""


@pytest.fixture
def terminal(shared_network: Network, tmp_path: Path) -> Iterator[TmuxTerminal]:
    network = shared_network
    settings = {
        "type": "ssh",
        "hosts": [machine.address for machine in network.machines],
        "username": "root",
        "client_keys": str(network.key),
        "known_hosts": str(network.known_hosts(*network.machines)),
        "config": "none",
        "python": sys.executable,
    }
    table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    home = tmp_path / "home"
    home.mkdir()
    ours = f"[defaults]\nprovider = 'mine'\nimage.env = {{PYTHONPATH = {json.dumps(PYTHONPATH)}}}\n"
    (home / "skyward.toml").write_text(f"[providers.mine]\n{table}\n{ours}")
    with terminal_in(home) as opened:
        yield opened
        opened.press("C-u")
        opened.run("skyward down --all -y --force", to_files=True)


def write(terminal: TmuxTerminal, **files: str) -> None:
    for name, text in files.items():
        path = terminal.folder / name.replace("__", "/").replace("_py", ".py").replace("_txt", ".txt")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_script_gets_its_modules_and_files_and_returns_files(terminal: TmuxTerminal) -> None:
    write(
        terminal,
        train_py=SCRIPT % terminal.folder.name,
        helper_py="NAME = 'helper'\n",
        package__part_py="from helper import NAME as NAME2\nNAME = 'part of ' + NAME2\n",
        data_txt="some data",
    )
    (terminal.folder / "package" / "__init__.py").touch()
    here = terminal.run(f"{sys.executable} train.py first --epochs 3", to_files=True)
    (terminal.folder / "out" / "result.txt").unlink()
    there = terminal.run("skyward run train.py --file data.txt --fetch 'out/*.txt' -- first --epochs 3", to_files=True)
    assert (there.status, there.text) == (here.status, here.text)
    assert (terminal.folder / "out" / "result.txt").read_text() == "result of first"
    assert json.loads(terminal.run("skyward status --json", to_files=True).text) == []
    above = terminal.folder.parent / "other.py"
    above.write_text("print(1)")
    refused = terminal.run("skyward run ../other.py", to_files=True)
    assert refused.status == 2
    says = f"../other.py is outside of {terminal.folder}, whose files are sent to the node: run the command in a folder"
    assert refused.errors == f"skyward run: {says} above the script, such as {terminal.folder.parent}.\n"


def test_missing_module_is_named_by_the_script_itself(terminal: TmuxTerminal) -> None:
    write(terminal, t_py="import a_module_that_is_nowhere\n")
    done = terminal.run("skyward run t.py --quiet", to_files=True)
    assert done.status == 1
    assert "ModuleNotFoundError: No module named 'a_module_that_is_nowhere'" in done.errors


def test_ctrl_c_brings_the_files_back(terminal: TmuxTerminal) -> None:
    write(terminal, slow_py=SLOW)
    started = terminal.start("skyward run slow.py --fetch out.txt")
    terminal.shows("working")
    terminal.press("C-c")
    assert started.ended().status == 130
    assert (terminal.folder / "out.txt").read_text() == "saved"


def test_pool_that_stays_is_used_by_each_command(terminal: TmuxTerminal) -> None:
    up = terminal.run("skyward up train --nodes 2 --ttl 10m --detach", to_files=True)
    assert (up.status, up.text) == (0, "Pool 'train' is left to its lease for 10 min 0 s.\n")
    write(terminal, t_py="import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)")
    done = terminal.run("skyward run --pool train t.py", to_files=True)
    assert (done.status, done.out) == (0, bytes(range(256)) * 1000)
    hosts = terminal.run(
        "skyward exec train --on all -- 'cat /proc/net/fib_trie | wc -l >/dev/null; pwd'", to_files=True
    )
    assert (hosts.status, len(hosts.text.splitlines())) == (0, 2)
    assert str(terminal.folder) not in hosts.text, "it is a folder of the node"
    (pool,) = json.loads(terminal.run("skyward status train --json", to_files=True).text)
    assert {machine["node"] for machine in pool["machines"]} == {0, 1}
    logs = terminal.run("skyward logs train", to_files=True)
    assert logs.status == 0
    assert re.search(r"^\[node \d\] --- \S+ \S+ t.py$", logs.out.decode(errors="replace"), re.MULTILINE)
    started = terminal.start("skyward ssh train 1")
    wait_for(lambda: terminal.screen.rstrip().endswith(("$", "#")), "the prompt of the shell on the node")
    terminal.type("echo shell of $(id -un) $((40 + 2)); exit 4").press("ENTER")
    terminal.shows("shell of root 42")
    assert started.ended().status == 4
    down = terminal.run("skyward down train -y", to_files=True)
    assert (down.status, down.text) == (0, "train: 2 machines terminated\n")


def test_pool_of_a_killed_owner_can_be_looked_at_and_ended(terminal: TmuxTerminal) -> None:
    started = terminal.start("skyward up doomed --ttl 10m")
    terminal.shows("Pool doomed: 1 node active")
    folder = terminal.folder.with_name("other")
    folder.mkdir()
    with terminal_in(folder, SKYWARD_DATA_DIR=str(terminal.folder / "data")) as other:
        (pool,) = json.loads(other.run("skyward status --json", to_files=True).text)
        assert pool["owner_alive"]
        os.kill(pool["pid"], signal.SIGKILL)
        assert started.ended().status == 128 + signal.SIGKILL
        (pool,) = json.loads(other.run("skyward status --json", to_files=True).text)
        assert (pool["owner_alive"], pool["state"], pool["attachable"]) == (False, "left", True)
        assert 0 < pool["lease_left"] <= 600
        assert other.run("skyward logs doomed --node 0", to_files=True).status == 0
        found = other.run("skyward reap doomed", to_files=True)
        assert (found.status, found.text) == (0, "doomed: 1 machine terminated\n")
