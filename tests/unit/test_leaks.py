"""Leak check of tests/conftest.py: it names what a test leaks, and ignores everything else."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.free_port import free_port

pytestmark = pytest.mark.unit

CONFTEST = Path(__file__).parents[1] / "conftest.py"
LEAKING = """
import socket, subprocess, sys, tempfile, threading

kept = []

def test_clean():
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()

def test_leaking():
    kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]))
    kept.append(socket.create_server(("127.0.0.1", 0)))
    kept.append(tempfile.mkdtemp(prefix="skyward-"))
    threading.Thread(target=kept[0].wait, name="waits-for-it").start()

def test_after():
    kept[0].wait()
"""


def test_leaks_are_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(re.sub(r"_PATIENCE = .*", "_PATIENCE = 0.2", CONFTEST.read_text()))
    folder = tmp_path / "unit"
    folder.mkdir()
    (folder / "test_leaking.py").write_text(LEAKING)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        "-W",
        "ignore",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # those of the outer run
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50, env=own)
    assert done.returncode == 1, done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("3 passed, 1 error"), done.stdout
    left = r"""test_leaking left behind, 0 s after its end:
  thread waits-for-it
  process \d+: .*time.sleep\(1000\)
  listening port 127\.0\.0\.1:\d+
  file .*skyward-\w+
"""
    assert re.search(left, done.stdout), done.stdout


def test_no_port_is_given_to_two_servers() -> None:
    given = [free_port() for _ in range(100)]
    assert len(set(given)) == 100
