"""The first process of a worker: starts the worker as its child, and ends every process that the worker leaves behind.

`python -m skyward.worker.supervisor` forks before anything large is imported. The child becomes the worker
(`skyward.worker.__main__`). The parent stays small, and waits. On Linux it is a "child subreaper": every process that a
task starts, in a session of its own or forked twice, stays among its descendants. The supervisor ends all of them when
the worker has ended, when the process that started it is gone, and at SIGTERM; then it exits with the status of the
worker. It signals null but its own descendants.

There are two supervisors, one the child of the other, so that the death of either is noticed: orphans of the inner one
are inherited by the outer one, and orphans of the outer one are ended by the inner one.

A worker that is busy in C code with the GIL held cannot end itself. So the supervisor watches the same signs, standard
input or the lease, and ends a worker that is still alive shortly after its deadline.

Other systems than Linux have no subreaper: there, the known process groups of the worker are ended.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import FrameType

from skyward.wire.transport.secrets import SECRETS_VARIABLE, take
from skyward.worker.volumes.spaces import SPACE, spaces_folder

__all__ = ["BEAT", "Supervisor", "beat", "main"]

BEAT = "SKYWARD_BEAT"
"""Variable with the descriptor on which a worker with a lease reports that the lease was renewed."""

GRACE = 4.0
"""Seconds that a worker has to end by itself once the process that started it is gone; its own limit is 2."""

FINISHES_WITHIN = 600.0
"""Seconds past its lease that a worker has to finish its tasks, unless a heartbeat says otherwise."""

SILENT = 420.0
"""Seconds after that without a heartbeat before a worker with a lease is ended: it has 300 to upload what its tasks
have written to volumes."""

_BEAT = struct.Struct("<I")
"""A heartbeat: the number of seconds from then on for which the worker may have tasks."""

_CHECK_EVERY = 30.0
"""Longest time between checks of the clock, in seconds."""

_ENDS_WITHIN = 5.0
"""Seconds that the supervisor waits for processes that it has killed; one may hang in the kernel."""

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_SUBREAPER = 36
_PARENT_DEATH = 1


class Supervisor:
    """Parent process of a worker.

    Args:
        worker: process id of the worker.
        lifeline: a descriptor that ends with the process that started the worker; None for a worker with a lease.
        beat: a descriptor on which a heartbeat arrives at each renewal of the lease; or None.
        lease: seconds of the lease.
    """

    def __init__(self, worker: int, lifeline: int | None, beat: int | None, lease: float) -> None:
        self._worker = worker
        self._lifeline = lifeline
        self._beat = beat
        self._limit = inf if beat is None else lease + FINISHES_WITHIN + SILENT
        self._status: int | None = None
        self._must_end = False

    def run(self, wakeup: int) -> int:
        """Wait until the worker has ended, or has to end; then end its remaining processes.

        Args:
            wakeup: a descriptor that is readable after a signal.

        Returns:
            The wait status of the worker.
        """
        watched = select.poll()
        for descriptor in (wakeup, self._lifeline, self._beat):
            if descriptor is not None:
                watched.register(descriptor, select.POLLIN)
        left = self._limit  # counted in running time of this process, as the lease is
        self._reap()
        while self._status is None and not self._must_end and left > 0:
            pause, before = min(left, _CHECK_EVERY), time.monotonic()
            for descriptor, _ in watched.poll(pause * 1000 + 1):
                data = os.read(descriptor, 4096)
                if not data:
                    watched.unregister(descriptor)
                if descriptor == self._beat and data:
                    self._limit = _BEAT.unpack(data[-_BEAT.size :])[0] + SILENT
                    left = self._limit
                elif descriptor == self._lifeline and not data:
                    left = GRACE
            left -= min(pause, time.monotonic() - before)
            self._reap()
        self._end_all()
        _clear_volumes()
        return self._status if self._status is not None else signal.SIGKILL

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """Note that the worker has to end. SIGCHLD only wakeup_writer `run`."""
        self._must_end = self._must_end or number != signal.SIGCHLD

    def _reap(self) -> bool:
        """Collect the children that have ended. Return whether any are left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if not process:
                    return True
                if process == self._worker:
                    self._status = status
        return False

    def _end_all(self) -> None:
        """Kill the worker and its descendants. Children of a killed process are inherited, until none is left."""
        deadline = time.monotonic() + _ENDS_WITHIN
        while self._reap() and time.monotonic() < deadline:
            for child in _children() or ([self._worker] if self._status is None else []):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.001)


def beat(longest: float) -> bytes:
    """Return a heartbeat of a worker that may have tasks for this many seconds from now on."""
    return _BEAT.pack(min(int(longest), 2**32 - 1))


def _clear_volumes() -> None:
    """Remove the mounts that a killed worker has left. Nothing in them is deleted."""
    folder = Path(spaces_folder(), os.environ[SPACE])
    if folder.is_dir():
        from skyward.worker.volumes.places import clear_space  # few workers have volumes

        clear_space(folder)


def _children() -> list[int]:
    """Return the children of this process; an empty list on a system without `/proc`."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path("/proc/thread-self/children").read_text().split()]
    me = str(os.getpid()).encode()
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if (entry / "stat").read_bytes().rpartition(b")")[2].split()[1] == me:
                        found.append(int(entry.name))
    return found


def _supervise(supervisor: Supervisor, worker: int) -> None:
    """Run the supervisor until the worker ends, then exit with the status of the worker."""
    wakeup, wakeup_writer = os.pipe()
    os.set_blocking(wakeup_writer, False)
    signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
    for number in (*_SIGNALS, signal.SIGCHLD):
        signal.signal(number, supervisor.on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # only the worker holds the real output, so that its end is the end of file
    os.close(null)
    _set_command_line(f"skyward: supervisor of process {worker}")
    status = supervisor.run(wakeup)
    if sys.platform != "linux":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        killed_by = os.WTERMSIG(status)
        if killed_by != signal.SIGKILL:
            signal.signal(killed_by, signal.SIG_DFL)
        os.kill(os.getpid(), killed_by)
    os._exit(os.waitstatus_to_exitcode(status))


def _set_command_line(words: str) -> None:
    """Show `words` as the command line of this process, to tell it from the worker in process lists (Linux only)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        ctypes.memmove(start, words.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)


def _prctl(option: int, value: int) -> bool:
    """Set an attribute of this process. Return whether that succeeded."""
    if sys.platform != "linux":
        return False
    call: Callable[..., int] = ctypes.CDLL(None).prctl
    return call(option, ctypes.c_ulong(value), 0, 0, 0) == 0


def main() -> None:
    """Fork twice. The outer and the inner supervisor never return; their child returns and becomes the worker."""
    os.environ[SPACE] = os.urandom(6).hex()
    secret = take(SECRETS_VARIABLE)  # `/proc/PID/environ` of the supervisors must not show it to tasks
    lease = float(os.environ["SKYWARD_LEASE"]) if "SKYWARD_LEASE" in os.environ else None
    if lease is not None:
        os.setsid()  # a worker with a lease outlives the process that started it
    beat_reader, beat_writer = os.pipe() if lease is not None else (None, None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # keep signals pending until the handlers are set
    _fork_from(lambda child: Supervisor(child, None, None, 0.0), signal.SIGTERM)
    _fork_from(
        lambda child: Supervisor(child, 0, None, 0.0) if lease is None else Supervisor(child, None, beat_reader, lease),
        signal.SIGKILL,
        *(() if beat_writer is None else (beat_writer,)),
    )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if beat_reader is not None and beat_writer is not None:
        os.close(beat_reader)
        os.environ[BEAT] = str(beat_writer)
    os.environ[SECRETS_VARIABLE] = secret


def _fork_from(supervisor: Callable[[int], Supervisor], death_signal: int, *unwanted: int) -> None:
    """Fork. The parent becomes the supervisor of its child. The child returns, and gets a signal when the parent dies.

    The parent closes the descriptors in `unwanted`.
    """
    _prctl(_SUBREAPER, 1)
    parent = os.getpid()
    child = os.fork()
    if child:
        for descriptor in unwanted:
            os.close(descriptor)
        _supervise(supervisor(child), child)
    if sys.platform != "linux":
        os.setpgid(0, 0)
    _prctl(_PARENT_DEATH, death_signal)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before the line above


if __name__ == "__main__":
    main()
    from skyward.worker.__main__ import run  # circular: the worker's child only; the supervisor stays small

    run()
