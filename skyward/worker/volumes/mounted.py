"""A volume that a program mounts, and its watch: a mount whose program ends is made again."""

import contextlib
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Thread  # tasks may replace the attributes of the module

from skyward.errors import StorageError
from skyward.events.volumes import VolumeState, VolumeStatus
from skyward.process.clock import clock
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.open_files import open_for_writing
from skyward.worker.volumes.places import Space, mounts_below
from skyward.worker.volumes.tools import MountTool
from skyward.worker.volumes.volume import AttachError, OnChange, Unsaved

__all__ = ["MountedVolume"]

ANSWER_WITHIN = 30.0
"""Seconds for a mount to show the content of its prefix."""

_LOOK_EVERY = 0.05
_PAUSES = (0.1, 0.5, 2.0, 5.0)
"""Seconds between attempts to mount a bucket again; the last one is repeated."""

_END_WITHIN = 5.0

_PROGRESS = 256 * 1024
"""Bytes that a program must write to be making progress with a large file."""

_LOG_LINES = 40
_INFORMATION = re.compile(r"\[INF\]|DEBUG *:|INFO *:")
_ERROR = re.compile(r"error|fail|denied|\bnot? |unable|unknown|invalid", re.IGNORECASE)
"""Lines of the programs' logs that are no reason, and those that probably are."""


class MountedVolume:
    """A bucket that a program mounts.

    Args:
        volume: the volume.
        tool: the program.
        space: the mounts of this worker.
        state: folder for the files that wait for their upload.
        show: shows a folder at the path of the volume.
        changed: called after changes of the state.
    """

    def __init__(
        self,
        volume: NodeVolume,
        tool: MountTool,
        space: Space,
        state: Path,
        show: Callable[[Path], Path],
        changed: OnChange,
    ) -> None:
        self._volume = volume
        self._tool = tool
        self._space = space
        self._state_folder = state
        self._show = show
        self._changed = changed
        self._process: subprocess.Popen[str] | None = None
        self._folder = Path()
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._reading: Thread | None = None
        self._control = ""
        self._closing = ThreadEvent()
        self._state = VolumeState(
            volume.mount, volume.location.describe, "mount", volume.read_only, "", "attaching", tool=tool.name
        )

    @property
    def state(self) -> VolumeState:
        """Its current state."""
        left = self._tool.unflushed(self._volume, self._state_folder) if not self._volume.read_only else []
        return replace(self._state, unflushed=len(left), unflushed_bytes=sum(each.nbytes for each in left))

    @property
    def contents(self) -> str:
        """No digest: objects may change while they are mounted."""
        return ""

    def attach(self) -> Path:
        """Mount the bucket, wait until its prefix answers, and keep it mounted.

        Raises:
            AttachError: the program could not mount it, or the prefix did not answer.
        """
        path = self._mount()
        Thread(target=self._keep, name="skyward-volume", daemon=True).start()
        return path

    def _mount(self) -> Path:
        self._state_folder.mkdir(parents=True, exist_ok=True)
        folder = self._space.new_folder()
        self._control = ""
        process = subprocess.Popen(
            self._tool.command(self._volume, folder, self._state_folder),
            env=self._tool.environment(self._volume),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # an interrupt of a task's process group is not for it
        )
        self._reading = Thread(target=self._read_log, args=(process,), name="skyward-volume-log", daemon=True)
        self._reading.start()
        try:
            self._wait_mounted(process, folder)
            self._wait_answer(process, folder)
            path = self._show(folder)
        except BaseException:
            process.kill()
            self._space.remove_folder(folder)
            raise
        former, self._process, self._folder = self._folder, process, folder
        if former != Path():
            self._space.remove_folder(former)
        self._set("ready", path=str(path))
        return path

    def _wait_mounted(self, process: subprocess.Popen[str], folder: Path) -> None:
        deadline = clock.monotonic() + ANSWER_WITHIN
        controlled = self._tool.has_control(self._volume)
        while folder not in mounts_below(folder) or (controlled and not self._control):
            if process.poll() is not None:
                self._reading_ended()
                raise AttachError(f"{self._tool.name} could not mount it: {self._reason()}")
            if clock.monotonic() > deadline or self._closing.is_set():
                raise AttachError(f"{self._tool.name} did not mount it within {ANSWER_WITHIN:g} s: {self._reason()}")
            clock.sleep(_LOOK_EVERY)

    def _wait_answer(self, process: subprocess.Popen[str], folder: Path) -> None:
        """Wait until the first page of the prefix is listed: a thread asks, since a store that is away blocks."""
        answers: list[OSError | None] = []

        def look() -> None:
            try:
                with os.scandir(folder) as entries:
                    next(entries, None)
                answers.append(None)
            except OSError as error:
                answers.append(error)

        asking = Thread(target=look, name="skyward-volume-look", daemon=True)
        asking.start()
        asking.join(ANSWER_WITHIN)
        if not answers:
            process.kill()
            self._reading_ended()
            raise AttachError(f"the store did not answer within {ANSWER_WITHIN:g} s: {self._reason()}")
        if answers[0] is not None:
            raise AttachError(f"its prefix cannot be listed: {answers[0].strerror}; {self._reason()}")

    def _read_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError), process.stdout as stream:
            for line in stream:
                if address := self._tool.control_address(line):
                    self._control = address
                else:
                    self._lines.append(line.rstrip())

    def _reading_ended(self) -> None:
        """Wait for the last line of a program that has ended; not for long, since what it started may go on writing."""
        if self._reading is not None:
            self._reading.join(_END_WITHIN)

    def _reason(self) -> str:
        """Return what the program said last, without times and levels."""
        said = [_without_time(line) for line in self._lines if line.strip() and not _INFORMATION.search(line)]
        errors = [line for line in said if _ERROR.search(line)]
        return (errors or said or ["it gave no reason"])[-1][:300]

    def _keep(self) -> None:
        """Mount the bucket again whenever its program has ended."""
        attempt = 0
        while not self._closing.is_set():
            process = self._process
            assert process is not None
            status = process.wait()
            if self._closing.is_set():
                return
            self._set("restarting", f"{self._tool.name} ended with status {status}")
            try:
                self._mount()
                attempt = 0
            except AttachError as error:
                self._set("restarting", str(error))
                self._closing.wait(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
            except Exception as error:  # the place is gone, say: tasks get errors until it is back
                self._set("failed", f"{type(error).__name__}: {error}")
                return

    def _set(self, status: VolumeStatus, detail: str = "", path: str | None = None) -> None:
        path = self._state.path if path is None else path
        self._state = replace(self._state, status=status, detail=detail, path=path)
        self._changed()

    def refresh(self) -> None:
        """Make the program forget the listings of folders that it keeps.

        Raises:
            StorageError: it did not, so a task would not see new objects.
        """
        process = self._process
        if not self._tool.has_control(self._volume) or process is None:
            return
        try:
            self._tool.forget(self._control, ANSWER_WITHIN)
        except OSError as error:
            if process is self._process and process.poll() is None:  # otherwise the program that follows knows nothing
                raise StorageError(
                    f"Volume {self._volume.location.describe} at {self._volume.mount}: {self._tool.name} could not be "
                    f"told to list its folders again: {error}."
                ) from None

    def save(self, stalled: float) -> Unsaved:
        """Wait until the program has uploaded what was closed; return what it could not."""
        if self._volume.read_only:
            return Unsaved()
        seen, since = (-1, 0), clock.monotonic()
        while left := self._tool.unflushed(self._volume, self._state_folder):
            now = sum(each.nbytes for each in left) + len(left), self._sent() // _PROGRESS
            if now != seen:
                seen, since = now, clock.monotonic()
                self._changed()
            if clock.monotonic() - since > stalled:
                names = tuple(self._volume.location.address(each.name) for each in left)
                return Unsaved(names, f"{self._tool.name} made no progress for {stalled:g} s: {self._reason()}")
            clock.sleep(_LOOK_EVERY)
        self._changed()
        return Unsaved()

    def _sent(self) -> int:
        """Return the bytes that the program has written so far, to the store or elsewhere; 0 if unknown."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            assert self._process is not None
            lines = Path(f"/proc/{self._process.pid}/io").read_text().splitlines()
            return int(lines[1].split()[1])
        return 0

    def unclosed(self) -> Unsaved:
        """Return the files that processes have open for writing, whose content may not be in the store."""
        if self._volume.read_only:
            return Unsaved()
        roots = [Path(self._volume.mount), self._folder]
        names = tuple(f"{self._volume.location.address(name)} ({who})" for name, who in open_for_writing(roots))
        return Unsaved(names, "they are not closed")

    def detach(self) -> None:
        """End the program. Its mounts are removed with the space."""
        self._closing.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_WITHIN)
            except subprocess.TimeoutExpired:
                process.kill()
        self._state = replace(self._state, status="detached")
        if not self._tool.unflushed(self._volume, self._state_folder):
            shutil.rmtree(self._state_folder, ignore_errors=True)


def _without_time(line: str) -> str:
    """Return a line of a log without its time and level."""
    return re.sub(
        r"^\S*\d{4}[-/]\d\d[-/]\d\d[T ]\S+\s*(\[\w+\]|ERROR\s*:|NOTICE\s*:|Fatal error:)?\s*", "", line
    ).strip()
