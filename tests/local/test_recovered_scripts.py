"""Scripts of the command line whose client was killed: the code of docs/use/machines.md takes them over."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skyward.pool.reaping.recorded_pools import RecordedPool, recorded_pools

pytestmark = [
    pytest.mark.usefixtures("own_journal"),
    pytest.mark.local,
    pytest.mark.skipif(sys.platform != "linux", reason="nodes outlive their client on Linux"),
]

_PAGE = Path(__file__).parents[2] / "docs" / "use" / "machines.md"
_SCRIPT = """
import os, sys, time
print("before", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print("after")
sys.exit(3)
"""


def skyward(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skyward", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=100)


def pool() -> RecordedPool:
    (found,) = recorded_pools("train")
    return found


def test_code_of_the_page_takes_a_script_over(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(import os\n\nimport skyward.*?)```", _PAGE.read_text(), re.DOTALL)
    (tmp_path / "beat.py").write_text(_SCRIPT)
    assert skyward("up", "train", "--detach", folder=tmp_path).returncode == 0
    try:
        running = subprocess.Popen(
            [sys.executable, "-m", "skyward", "run", "--pool", "train", "beat.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert running.stdout is not None
        assert running.stdout.readline() == b"before\n"
        running.send_signal(signal.SIGKILL)
        running.communicate()
        assert not pool().left_idle
        refused = skyward("exec", "train", "--", "true", folder=tmp_path)
        assert (refused.returncode, "tasks of its former process" in refused.stderr) == (2, True)
        (tmp_path / "go").touch()
        words = [sys.executable, "-c", code]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100, env=os.environ
        )
        assert done.stdout.endswith("after\nstatus 3\n")
        assert pool().left_idle
        assert skyward("exec", "train", "--", "echo free", folder=tmp_path).stdout == "free\n"
    finally:
        skyward("down", "train", "-y", folder=tmp_path)
