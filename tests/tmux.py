"""A real terminal: a shell in tmux, whose keys are pressed, and whose screen is read."""

import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.required import leave_out_for
from tests.waiting import wait_for

__all__ = ["PYTHONPATH", "Done", "TmuxTerminal", "commands_on_path", "terminal_in"]

ROOT = Path(__file__).parents[1]
PYTHONPATH = os.pathsep.join(map(str, (ROOT, ROOT / "kernel_bridge", ROOT / "providers")))
"""Import path of this checkout."""

_PATIENCE = 90.0
_KEYS = {"C-c": "C-c", "C-u": "C-u", "TAB": "Tab", "ENTER": "Enter"}


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended: its exit status, and its standard output and error if these went to files."""

    status: int
    out: bytes = b""
    err: bytes = b""

    @property
    def text(self) -> str:
        """Its standard output as text."""
        return self.out.decode()

    @property
    def errors(self) -> str:
        """Its standard error as text."""
        return self.err.decode()


class TmuxTerminal:
    """A terminal with a shell, in a folder.

    Args:
        folder: its working folder, which also has the socket of tmux and the files of the commands.
        shell: words of the shell.
        variables: environment variables.
    """

    def __init__(self, folder: Path, shell: Sequence[str], variables: Mapping[str, str]) -> None:
        self.folder = folder
        self._socket = folder / "tmux"
        self._numbers = itertools.count(1)
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), *shell]
        self._tmux(
            "-f", "/dev/null", "new-session", "-d", "-x", "140", "-y", "50", "-c", str(folder), shlex.join(words)
        )

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *words], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout

    @property
    def screen(self) -> str:
        """All that the terminal shows, also what has left its screen."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-2000")

    def type(self, text: str) -> Self:
        """Type a text."""
        self._tmux("send-keys", "-l", "--", text)
        return self

    def press(self, key: str) -> Self:
        """Press a key: C-c, C-u, TAB or ENTER."""
        self._tmux("send-keys", _KEYS[key])
        return self

    def shows(self, text: str) -> None:
        """Wait until the screen has a text."""
        wait_for(lambda: text in self.screen, f"{text!r} on the screen", _PATIENCE)

    def start(self, command: str, *, to_files: bool = False) -> "Started":
        """Start a command; with `to_files`, its standard output and error go to files."""
        started = Started(self, next(self._numbers), to_files=to_files)
        where = f" >{started.path('out')} 2>{started.path('err')}" if to_files else ""
        self.type(f"{command}{where}; echo $? >{started.path('status')}").press("ENTER")
        return started

    def run(self, command: str, *, to_files: bool = False) -> Done:
        """Run a command to its end."""
        return self.start(command, to_files=to_files).ended()

    def close(self) -> None:
        """End the terminal, and what runs in it."""
        subprocess.run(["tmux", "-S", str(self._socket), "kill-server"], capture_output=True, check=False, timeout=30)


class Started:
    """A command that was started in a terminal."""

    def __init__(self, terminal: TmuxTerminal, number: int, *, to_files: bool) -> None:
        self._terminal = terminal
        self._number = number
        self._to_files = to_files

    def path(self, kind: str) -> Path:
        """Return the path of a file of the command."""
        return self._terminal.folder / f"{kind}.{self._number}"

    def ended(self) -> Done:
        """Wait for its end."""
        status = self.path("status")

        def has_ended() -> bool:
            return status.exists() and status.read_text().endswith("\n")

        wait_for(has_ended, f"the end of command {self._number}; the screen is:\n{self._terminal.screen}", _PATIENCE)
        files = [self.path(kind).read_bytes() if self._to_files else b"" for kind in ("out", "err")]
        return Done(int(status.read_text()), *files)


def commands_on_path(folder: Path) -> str:
    """Make the commands `skyward` and `sky` in a folder; return a PATH that begins with it."""
    folder.mkdir(exist_ok=True)
    for name in ("skyward", "sky"):
        program = folder / name
        program.write_text(f"#!{sys.executable}\nimport sys\nfrom skyward.cli.main import main\nsys.exit(main())\n")
        program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@contextmanager
def terminal_in(folder: Path, shell: Sequence[str] = ("sh",), **variables: str) -> Iterator[TmuxTerminal]:
    """Open a terminal with the commands of this checkout; without tmux or the shell, the test is skipped."""
    missing = [name for name in ("tmux", shell[0]) if shutil.which(name) is None]
    leave_out_for(f"{missing[0]} is not installed" if missing else "", "SKYWARD_TERMINAL")
    usual = {
        "PATH": commands_on_path(folder / "bin"),
        "PYTHONPATH": PYTHONPATH,
        "SKYWARD_DATA_DIR": str(folder / "data"),
        "SKYWARD_DEFAULTS": "",
        "HOME": str(folder),
        "TERM": "xterm",
        "PS1": "$ ",
        "LC_ALL": "C.UTF-8",
    }
    opened = TmuxTerminal(folder, shell, {**usual, **variables})
    try:
        yield opened
    finally:
        opened.close()
