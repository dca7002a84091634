"""A machine with stand-ins for commands that plugins run, which record their calls and have their state in files."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyward.specs.plugin import PluginStep

__all__ = ["Machine", "is_alive"]

_RECORD = 'printf "%s\\n" "${0##*/} $*" >>"$STAND_INS/calls"\n'

_MPS = f"""\
pid=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
if [ "${{1-}}" = -d ]; then
  if [ -f "$STAND_INS/refusal" ]; then
    cat "$STAND_INS/refusal"
    exit 1
  fi
  if [ -f "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; then
    echo "An instance of this daemon is already running"
    exit 1
  fi
  # As the daemon of NVIDIA, it keeps the output that it inherits.
  {sys.executable} -ISc 'import os, time; os.setsid(); time.sleep(600)' &
  until grep -aq 'time.sleep(600)' "/proc/$!/cmdline"; do sleep 0.01; done # until then it is a copy of this script
  echo $! >"$pid"
  echo $! >>"$STAND_INS/daemons"
  printenv | sort >"$STAND_INS/environment"
else
  read -r word
  echo "$word of $CUDA_MPS_PIPE_DIRECTORY" >>"$STAND_INS/calls"
  while [ -f "$STAND_INS/clients" ]; do sleep 0.02; done # as the daemon of NVIDIA waits for them
  kill "$(cat "$pid")"
fi
"""

_HF = """\
echo "with token ${HF_TOKEN-none} in ${HF_HOME-nowhere}" >>"$STAND_INS/calls"
if [ -f "$STAND_INS/refusal" ]; then
  cat "$STAND_INS/refusal" >&2
  exit 1
fi
for name in "$@"; do :; done
mkdir -p "$HF_HOME/hub/$name"
printf 'Fetching 2 files:  50%%\\rFetching 2 files: 100%%\\n' >&2
echo "$HF_HOME/hub/$name"
"""

_COMMANDS = {
    "nvidia-smi": f'exec {sys.executable} -I {Path(__file__).with_name("nvidia_smi.py")} "$@"\n',
    "nvidia-cuda-mps-control": _MPS,
    "hf": _HF,
}


@dataclass(frozen=True)
class Machine:
    """A folder with a home, and with stand-ins in `bin`, which come first on `PATH`."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, *commands: str) -> "Machine":
        """Return a machine that has some of the commands."""
        for name in ("bin", "home"):
            (folder / name).mkdir()
        machine = cls(folder)
        for name in commands:
            machine.add(name, _COMMANDS[name])
        machine.set_gpus()
        return machine

    def add(self, name: str, text: str) -> None:
        """Add a command, in the language of the shell."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{_RECORD}{text}")
        path.chmod(0o755)

    @property
    def search_path(self) -> str:
        """`PATH` of the machine."""
        return f"{self.folder / 'bin'}:/usr/bin:/bin"

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment of its processes."""
        return {"PATH": self.search_path, "HOME": str(self.folder / "home"), "STAND_INS": str(self.folder)}

    def set_gpus(self, *gpus: Mapping[str, Any]) -> None:
        """Set the GPUs: their MIG "mode" and "instances", and what they do: "used", "refuses"."""
        made = [{"mode": "Disabled", "instances": [], **gpu} for gpu in gpus]
        (self.folder / "gpus.json").write_text(json.dumps({"gpus": made}))

    def instances(self) -> list[list[str]]:
        """Return the profiles of the instances that can be used, for each GPU."""
        gpus = json.loads((self.folder / "gpus.json").read_text())["gpus"]
        return [[each["profile"] for each in gpu["instances"] if each["computes"]] for gpu in gpus]

    def refuse(self, text: str) -> None:
        """Make `hf` and the daemon of MPS fail with a text."""
        (self.folder / "refusal").write_text(text)

    @property
    def calls(self) -> list[str]:
        """The calls of commands so far."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def daemons(self) -> list[int]:
        """Process ids of the daemons that were started."""
        path = self.folder / "daemons"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def run(self, step: PluginStep) -> tuple[int, str]:
        """Run a step; return its status, and the last line of its output."""
        done = subprocess.run(
            ["sh", "-eu", "-c", step.commands],
            env=self.variables,
            cwd=self.folder / "home",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        lines = done.stdout.splitlines()
        return done.returncode, lines[-1] if lines else ""

    def without(self, *names: str) -> list[str]:
        """Return the calls that have none of these words: those that change something, without those that ask."""
        return [call for call in self.calls if not {*names} & {*call.split()}]


def is_alive(daemon: int) -> bool:
    """Return whether a daemon runs, and not another process that has got its number."""
    try:
        return b"time.sleep(600)" in Path(f"/proc/{daemon}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
