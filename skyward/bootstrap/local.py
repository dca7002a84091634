"""Set-up of nodes that are processes on this machine: included files, computed variables, a separate environment.

The shared part for all nodes of one image is made once, while all of them wait for it.
"""

import asyncio
import contextlib
import json
import os
import signal
import tarfile
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

from skyward.bootstrap.client_environment import ClientEnvironment, has_own_environment, make_client_environment
from skyward.bootstrap.events import PhaseEvent
from skyward.bootstrap.includes import Includes, collect
from skyward.bootstrap.runner import ScriptExecutor
from skyward.errors import NodeStartError
from skyward.specs.image import Image
from skyward.specs.variables import check_values

__all__ = ["LocalSetup", "SharedSetup", "set_up_local"]

type Report = Callable[[PhaseEvent], None]
type LocalShell = Callable[[Mapping[str, str]], ScriptExecutor]
"""Returns an executor on this machine, for an environment of variables."""

_FOLDER = ".includes"
_LINES = 20


class _Snapshot:
    """Snapshot of the contents of included files, in an anonymous file."""

    def __init__(self, includes: Includes) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the snapshot, below
        weakref.finalize(self, self._file.close)
        self._reading = threading.Lock()
        with tarfile.open(fileobj=self._file, mode="w") as archive:
            for included in includes.files:
                entry = tarfile.TarInfo(included.path)
                entry.mode = 0o755 if included.executable else 0o644
                with included.origin.open("rb") as content:
                    entry.size = os.fstat(content.fileno()).st_size
                    archive.addfile(entry, content)

    def copy_to(self, folder: Path) -> None:
        """Write the files below `folder`."""
        with self._reading:
            self._file.seek(0)
            with tarfile.open(fileobj=self._file) as archive:
                archive.extractall(folder, filter="data")


class LocalSetup:
    """Shared set-up of all nodes of one image on this machine.

    Attributes:
        made: their environment; None if it is that of this process.
    """

    def __init__(
        self, snapshot: _Snapshot | None, variables: Mapping[str, str], made: ClientEnvironment | None = None
    ) -> None:
        self.made = made
        self._snapshot = snapshot
        self._variables = {**variables, **made.variables} if made is not None else variables

    async def environment(self, directory: Path, image: Image) -> dict[str, str]:
        """Copy the included files below `directory`, the node's own; return the variables for its worker."""
        requested = {"SKYWARD_PIP": json.dumps(image.pip), "SKYWARD_APT": " ".join(image.apt)}
        if self._snapshot is None:
            return {**self._variables, **requested}
        folder = directory / _FOLDER
        await asyncio.to_thread(self._snapshot.copy_to, folder)
        path = self._variables.get("PYTHONPATH", image.env.get("PYTHONPATH"))
        return {**self._variables, **requested, "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), path)))}


class SharedSetup:
    """Set-up of one image, shared by all nodes that wait for it. After a failure, the next node tries again.

    Args:
        image: the image of the nodes.
        search_path: the import path here.
        shell: returns an executor on this machine.
        notify: called with each sentence on differences of the environment.
    """

    def __init__(
        self, image: Image, search_path: tuple[str, ...], shell: LocalShell, notify: Callable[[str], object]
    ) -> None:
        self._image = image
        self._search_path = search_path
        self._shell = shell
        self._notify = notify
        self._waiting: list[Report] = []
        self._making: asyncio.Task[LocalSetup] | None = None

    async def get(self, report: Report) -> LocalSetup:
        """Return the set-up, once it is complete; `report` gets the phase events until then.

        Raises:
            SkywardError: see `set_up_local`.
        """
        if self._making is None or _has_failed(self._making):
            self._making = asyncio.get_running_loop().create_task(self._make())
        self._waiting.append(report)
        try:
            return await asyncio.shield(self._making)
        finally:
            self._waiting.remove(report)

    async def _make(self) -> LocalSetup:
        setup = await set_up_local(self._image, self._search_path, self._shell, self._report)
        for sentence in setup.made.notes if setup.made is not None else ():
            self._notify(sentence)
        return setup

    def _report(self, event: PhaseEvent) -> None:
        for report in tuple(self._waiting):
            report(event)

    async def close(self) -> None:
        """Cancel a set-up in progress."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)


def _has_failed(task: asyncio.Task[LocalSetup]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def set_up_local(image: Image, search_path: tuple[str, ...], shell: LocalShell, report: Report) -> LocalSetup:
    """Read the files that `image` includes, run the commands of its `shell_vars`, and make its environment.

    Later edits of the files do not affect nodes of this pool.

    Raises:
        SpecError: an include cannot be sent, `pip` has an entry that cannot be installed, or a worker cannot start with
        the
            output of a command.
        NodeStartError: a command failed, or took longer than `bootstrap_timeout`, or the environment cannot be made.
    """
    snapshot = None
    if image.includes:
        includes = await asyncio.to_thread(collect, image.includes, image.excludes, None, search_path)
        snapshot = await asyncio.to_thread(_Snapshot, includes)
    computed: dict[str, str] = {}
    try:
        async with asyncio.timeout(image.bootstrap_timeout):
            for name, command in image.shell_vars.items():
                computed[name] = await _output(name, command, {**os.environ, **image.env, **computed})
    except TimeoutError:
        raise NodeStartError(
            f"The commands of shell_vars took longer than the {image.bootstrap_timeout:g} s of bootstrap_timeout; the "
            f"last was that of {name}: {command}"
        ) from None
    check_values("shell_vars", computed)
    if not has_own_environment(image):
        return LocalSetup(snapshot, computed)
    return LocalSetup(snapshot, computed, await make_client_environment(image, computed, shell, report))


async def _output(name: str, command: str, environ: Mapping[str, str]) -> str:
    """Return the output of a command, without the line breaks at its end, like `$(...)` in a shell."""
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", command,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=environ, start_new_session=True,
    )  # fmt: skip  # one option a line would hide the command
    try:
        out, err = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode:
        errors = "\n".join(err.decode(errors="replace").splitlines()[-_LINES:])
        raise NodeStartError(
            f"The command of {name} in shell_vars ended with status {process.returncode}: {command}\n{errors}".rstrip()
        )
    return os.fsdecode(out.replace(b"\0", b"").rstrip(b"\n"))
