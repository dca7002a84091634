"""`skyward logs`: the events of a pool that this computer has logged, and what its nodes keep."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Literal

from skyward.cli.pools.access import nodes_of_pool, reading, unreachable
from skyward.cli.terminal.answers import say, write_json_line
from skyward.errors import SpecError, UsageError
from skyward.worker.scripts.log import SCRIPT_LOG

if TYPE_CHECKING:
    from skyward.pool.reaping.recorded_pools import RecordedPool

__all__ = ["logs"]

type _Source = Literal["events", "worker", "scripts"]

_EVENT = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ +\w+ +\d+ skyward\.events: pool '(?P<pool>[^']*)': (?P<text>.*)"
)
_FILES: dict[_Source, tuple[str, ...]] = {"worker": ("log", "worker.log"), "scripts": (f"{SCRIPT_LOG}.1", SCRIPT_LOG)}
"""Files in the directory of a worker, by source: one of the first, each of the second."""

_LOOK_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class _Line:
    source: _Source
    node: int | None
    text: str


def logs(*, pool: str, follow: bool = False, node: int | None = None, json: bool = False) -> int:
    """Print the logs; return the exit status: 1 if a node could not be reached."""
    from skyward.pool.reaping.recorded_pools import recorded_pools

    found = [each for each in recorded_pools() if pool in (each.name, each.id) and not each.warm_until]
    recorded = found[-1] if found else None
    name = pool if recorded is None else recorded.name
    since = 0.0 if recorded is None else recorded.opened - 1
    if recorded is None and node is not None:
        raise UsageError(f"Pool {pool!r} is closed, and its nodes are gone; without --node, its events are shown.")
    printed = 0
    if node is None:
        for line in _events(name, since, follow=False):
            _write(line, json=json)
            printed += 1
    if recorded is None:
        if not printed:
            raise SpecError(f"There is no pool {pool!r}, and no log of one; `skyward status` lists all pools.")
        return 0
    return _of_nodes(recorded, node, follow=follow, json=json)


def _write(line: _Line, *, json: bool) -> None:
    if json:
        write_json_line({"source": line.source, "node": line.node, "text": line.text})
        return
    label = "pool" if line.node is None else f"node {line.node}"
    sys.stdout.write(f"[{label}] {line.text}\n")
    sys.stdout.flush()


def _events(name: str, since: float, *, follow: bool) -> Iterator[_Line]:
    """Yield the logged events of a pool since a Unix time; with `follow`, those that come."""
    from skyward.reporting.log import log_path

    path = log_path()
    files = [path] if follow else [Path(f"{path}.1"), path]
    for file in files:
        if not follow and not file.exists():
            continue
        with file.open(encoding="utf-8", errors="replace") as lines:
            if follow:
                lines.seek(0, 2)
            while True:
                for line in lines:
                    match = _EVENT.match(line)
                    if match and match["pool"] == name and _time_of(match["at"]) >= since:
                        yield _Line("events", None, f"{match['at']} {match['text']}")
                if not follow:
                    break
                time.sleep(_LOOK_EVERY)


def _time_of(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


def _of_nodes(pool: "RecordedPool", rank: int | None, *, follow: bool, json: bool) -> int:
    """Print what the nodes keep: of one after the other, or as it comes."""
    if not any(each.rank is not None for each in pool.machines) and rank is None:
        say(unreachable(pool) or f"Pool {pool.name!r} has no node yet.")
        return 0
    lines: SimpleQueue[_Line | None] = SimpleQueue()
    failed: list[int] = []
    nodes = nodes_of_pool(pool, rank)
    with ExitStack() as stack:
        threads = 0
        for machine in nodes:
            for source in _FILES:
                process = stack.enter_context(_Reading(reading(machine, _script(source, follow=follow))))
                if not follow:
                    for text in process.lines():
                        _write(_Line(source, machine.rank, text), json=json)
                    if process.status():
                        failed.append(machine.rank or 0)
                    continue
                Thread(target=_pass_on, args=(process, source, machine.rank, lines), daemon=True).start()
                threads += 1
        if follow and rank is None:
            Thread(target=_pass_events, args=(pool.name, lines), daemon=True).start()
        while threads:
            if (line := lines.get()) is None:
                threads -= 1
            else:
                _write(line, json=json)
    for each in dict.fromkeys(failed):
        say(f"node {each} of pool {pool.name!r} could not be read.")
    return int(bool(failed))


def _pass_on(process: "_Reading", source: _Source, rank: int | None, lines: "SimpleQueue[_Line | None]") -> None:
    for text in process.lines():
        lines.put(_Line(source, rank, text))
    lines.put(None)


def _pass_events(name: str, lines: "SimpleQueue[_Line | None]") -> None:
    for line in _events(name, 0.0, follow=True):
        lines.put(line)


def _script(source: _Source, *, follow: bool) -> str:
    """Return a script of `sh` that prints the files of a source; one that follows ends with its standard input."""
    names = " ".join(f'"$node/{name}"' for name in _FILES[source])
    if not follow:
        return f'for file in {names}; do if [ -e "$file" ]; then cat "$file"; fi; done'
    last = _FILES[source][-1]
    pick = f'for file in {names}; do if [ -e "$file" ]; then last=$file; fi; done'
    return f'last="$node/{last}"\n{pick}\n: >>"$last"\ntail -n +1 -F "$last" 2>/dev/null &\ncat >/dev/null\nkill $!'


class _Reading:
    """A process whose standard output is read, and which ends with the context."""

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
        )
        self._ending = Lock()

    def __enter__(self) -> "_Reading":
        return self

    def lines(self) -> Iterator[str]:
        """Yield the lines of its output."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield line.rstrip("\n")

    def status(self) -> int:
        """Return its exit status."""
        return self._process.wait()

    def __exit__(self, *_: object) -> None:
        with self._ending:
            if self._process.stdin is not None:
                self._process.stdin.close()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
