"""The first process of a worker: it starts the worker as its child, and ends every process that the worker leaves.

`python -m skyward.worker.supervisor` forks before anything large is imported. The child becomes the worker
(`skyward.worker.__main__`). The parent stays small, and waits. On Linux it is a "child subreaper": whatever a task
starts, in a session of its own or forked twice, stays among its descendants. It ends all of them when the worker has
ended, when whoever started it is gone, and at SIGTERM; then it ends with the status of the worker. Nothing but its own
descendants is ever signalled.

There are two of them, one the child of the other, so that the death of either is noticed too: the processes that it
leaves are inherited by the outer one, or ended by the inner one.

A worker that is busy in C code with the GIL held cannot end itself. So the supervisor watches what the worker watches,
its standard input or its lease, and ends a worker that is still there a little later than it should be.

On other systems than Linux there is no subreaper: the process groups that are known to be of the worker are ended.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import FrameType

from skyward.wire.transport.secrets import PASS_VARIABLE, take

__all__ = ["BEAT", "Supervisor", "main"]

BEAT = "SKYWARD_BEAT"
"""The variable with the descriptor on which a worker with a lease says that it keeps it."""

GRACE = 4.0
"""Seconds that a worker has to end by itself once whoever started it is gone; its own limit is 2."""

SILENT = 660.0
"""Seconds beyond its lease without a sign of a worker that keeps one: it has 600 to finish its tasks."""

_LOOK = 30.0
"""Seconds between looks at the time, at most."""

_ENDS_WITHIN = 5.0
"""Seconds that the supervisor waits for processes that it has killed; one may be stuck in the kernel."""

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_SUBREAPER = 36
_PARENT_DEATH = 1


class Supervisor:
    """The parent's side of a worker.

    Args:
        worker: its process id.
        lifeline: a descriptor that ends with whoever started the worker; None for a worker with a lease.
        beat: a descriptor that is written to for as long as the lease of the worker is renewed; or None.
        lease: seconds of that lease.
    """

    def __init__(self, worker: int, lifeline: int | None, beat: int | None, lease: float) -> None:
        self._worker = worker
        self._lifeline = lifeline
        self._beat = beat
        self._limit = inf if beat is None else lease + SILENT
        self._status: int | None = None
        self._told_to_end = False

    def run(self, woken: int) -> int:
        """Wait until the worker has ended, or has to end; then end what is left of it.

        Args:
            woken: a descriptor that is readable after a signal.

        Returns:
            The wait status of the worker.
        """
        watched = select.poll()
        for descriptor in (woken, self._lifeline, self._beat):
            if descriptor is not None:
                watched.register(descriptor, select.POLLIN)
        left = self._limit  # counted in time that this process ran, as the lease is
        self._reap()
        while self._status is None and not self._told_to_end and left > 0:
            pause, before = min(left, _LOOK), time.monotonic()
            for descriptor, _ in watched.poll(pause * 1000 + 1):
                heard = os.read(descriptor, 4096)
                if not heard:
                    watched.unregister(descriptor)
                if descriptor == self._beat and heard:
                    left = self._limit
                elif descriptor == self._lifeline and not heard:
                    left = GRACE
            left -= min(pause, time.monotonic() - before)
            self._reap()
        self._end_all()
        return self._status if self._status is not None else signal.SIGKILL

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """Note that the worker has to end. SIGCHLD does no more than wake `run`."""
        self._told_to_end = self._told_to_end or number != signal.SIGCHLD

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
        """Kill the worker and its descendants. The children of a killed process become ours, until none is left."""
        deadline = time.monotonic() + _ENDS_WITHIN
        while self._reap() and time.monotonic() < deadline:
            for child in _children() or ([self._worker] if self._status is None else []):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.001)


def _children() -> list[int]:
    """Return the children of this process; nothing on a system without `/proc`."""
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
    """Be the parent, to the end of this process, which is like that of the worker."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in (*_SIGNALS, signal.SIGCHLD):
        signal.signal(number, supervisor.on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # only the worker writes there, so its end is the end of what is written
    os.close(nothing)
    _show_as(f"skyward: supervisor of process {worker}")
    status = supervisor.run(woken)
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


def _show_as(words: str) -> None:
    """Show `words` as the command line of this process, so that nobody takes it for the worker (Linux)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        ctypes.memmove(start, words.encode()[: end - start - 1].ljust(end - start, b"\0"), end - start)


def _prctl(option: int, value: int) -> bool:
    """Set an attribute of this process. Return whether that was possible."""
    if sys.platform != "linux":
        return False
    call: Callable[..., int] = ctypes.CDLL(None).prctl
    return call(option, ctypes.c_ulong(value), 0, 0, 0) == 0


def main() -> None:
    """Fork twice. The outer and the inner supervisor never return; their child returns, to become the worker."""
    secret = take(PASS_VARIABLE)  # `/proc/PID/environ` of the supervisors must not show it to tasks
    lease = float(os.environ["SKYWARD_LEASE"]) if "SKYWARD_LEASE" in os.environ else None
    if lease is not None:
        os.setsid()  # it stays when whoever started it goes
    hears, beats = os.pipe() if lease is not None else (None, None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # one that comes now waits until it can be acted on
    _fork_from(lambda child: Supervisor(child, None, None, 0.0), signal.SIGTERM)
    _fork_from(
        lambda child: Supervisor(child, 0, None, 0.0) if lease is None else Supervisor(child, None, hears, lease),
        signal.SIGKILL,
        *(() if beats is None else (beats,)),
    )
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if hears is not None and beats is not None:
        os.close(hears)
        os.environ[BEAT] = str(beats)
    os.environ[PASS_VARIABLE] = secret


def _fork_from(supervisor: Callable[[int], Supervisor], at_its_death: int, *unwanted: int) -> None:
    """Fork. The parent becomes the supervisor of its child, which returns, and gets a signal when the parent dies.

    The parent closes the descriptors that are `unwanted` there.
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
    _prctl(_PARENT_DEATH, at_its_death)
    if os.getppid() != parent:
        os._exit(1)  # it was killed before the line above


if __name__ == "__main__":
    main()
    from skyward.worker.__main__ import run  # circular: the worker's child only; the supervisor stays small

    run()
