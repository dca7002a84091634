"""Setting up a node that is a process on this machine: the files it includes, and the variables that commands compute.

Its interpreter and its packages are those of this process, so nothing is installed.
"""

import asyncio
import contextlib
import os
import signal
import tarfile
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path

from skyward.bootstrap.includes import Includes, collect
from skyward.errors import NodeStartError
from skyward.specs.image import Image
from skyward.specs.variables import check_values

__all__ = ["HereSetup", "set_up_here"]

_FOLDER = ".includes"
_LINES = 20


class _Snapshot:
    """The contents of included files as they were when it was made, in a file without a name."""

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


class HereSetup:
    """What all nodes of one image on this machine have in common, made once."""

    def __init__(self, snapshot: _Snapshot | None, variables: Mapping[str, str]) -> None:
        self._snapshot = snapshot
        self._variables = variables

    async def environment(self, directory: Path, image: Image) -> dict[str, str]:
        """Copy the included files below `directory`, the node's own; return the variables for its worker."""
        if self._snapshot is None:
            return dict(self._variables)
        folder = directory / _FOLDER
        await asyncio.to_thread(self._snapshot.copy_to, folder)
        path = self._variables.get("PYTHONPATH", image.env.get("PYTHONPATH"))
        return {**self._variables, "PYTHONPATH": os.pathsep.join(filter(None, (str(folder), path)))}


async def set_up_here(image: Image, search_path: tuple[str, ...]) -> HereSetup:
    """Read the files that `image` includes, and run the commands of its `shell_vars`.

    Later edits of the files change no node of this pool.

    Raises:
        SpecError: an include cannot be sent, or no worker could start with what a command printed.
        NodeStartError: a command failed, or took longer than `bootstrap_timeout`.
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
    return HereSetup(snapshot, computed)


async def _output(name: str, command: str, environ: Mapping[str, str]) -> str:
    """Return what a command prints, without the line breaks at its end, as `$(...)` of a shell does."""
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
        said = "\n".join(err.decode(errors="replace").splitlines()[-_LINES:])
        raise NodeStartError(
            f"The command of {name} in shell_vars ended with status {process.returncode}: {command}\n{said}".rstrip()
        )
    return os.fsdecode(out.replace(b"\0", b"").rstrip(b"\n"))
