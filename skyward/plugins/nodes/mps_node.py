"""The part of the plugin for MPS that runs on nodes."""

import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from skyward.errors import NodeStartError
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode

__all__ = ["MpsOnNode"]

_CONTROL = "nvidia-cuda-mps-control"
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_LOGS = "CUDA_MPS_LOG_DIRECTORY"
_PLACE = "/tmp/skyward-mps"
"""Beginning of the directories. Not in the temporary directory of tasks: addresses of sockets have to be short."""

_OF_WORKER = re.compile(r"-([0-9]+)(-ended-\w+)?$")
"""End of the name of a directory: process id of the worker, and a mark if its daemon was told to end."""

_WITHIN = 30.0
"""Seconds that the daemon has to start."""

_NAMED = 30
"""Characters of a pool's name in them: addresses of sockets have 107 at most."""


class MpsOnNode(OnNode):
    """Starts MPS for the processes of a node, and ends it with the last of them.

    The daemon precedes the processes: one may use CUDA as its interpreter starts, as cuML's accelerator does, and has
    no MPS if there is no daemon then. Each process holds a shared lock on a file for as long as it lives, however it
    ends. A process that leaves and gets that lock for itself is the last one, and ends the daemon. What starts or ends
    it holds another lock meanwhile.

    Args:
        active_thread_percentage: most of a GPU's threads that each process uses, in percent.
        pinned_memory_limit: most memory of each GPU that a process uses, such as "0=2G".
    """

    def __init__(self, active_thread_percentage: float | None, pinned_memory_limit: str | None) -> None:
        self._limits: dict[str, str] = {}
        if active_thread_percentage is not None:
            self._limits["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{active_thread_percentage:g}"
        if pinned_memory_limit is not None:
            self._limits["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = pinned_memory_limit

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Start the daemon, unless it runs, and return the variables of MPS.

        Where the user has set a directory, its daemon is the user's, and is left alone.

        Raises:
            NodeStartError: it cannot be started, or its directory belongs to someone else.
        """
        if _PIPES in os.environ:
            return self._limits
        _remove_stale()
        pool = os.environ.get("SKYWARD_POOL", "")[:_NAMED]
        directory = Path(f"{_PLACE}-{os.getuid()}-{pool}-{os.getpid()}")
        with _changing(directory):
            _start(directory, {**_variables(directory), **self._limits})
        return {_PIPES: str(directory), _LOGS: str(directory / "log"), **self._limits}

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Keep the daemon while the process lives.

        Raises:
            NodeStartError: it has ended meanwhile, and cannot be started again.
        """
        directory = Path(os.environ[_PIPES])
        if not str(directory).startswith(f"{_PLACE}-"):
            yield
            return
        variables = _variables(directory)  # a task may change those of the process
        with _changing(directory):
            users = (directory / "users").open("w")
            try:
                fcntl.flock(users, fcntl.LOCK_SH)
                _start(directory, variables)
            except BaseException:
                users.close()
                raise
        try:
            yield
        finally:
            with users, _changing(directory), suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _stop(directory, variables)


def _variables(directory: Path) -> dict[str, str]:
    """Return the environment of the daemon, which sees all GPUs: processes name theirs by the machine's numbers."""
    others = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**others, _PIPES: str(directory), _LOGS: str(directory / "log")}


def _remove_stale() -> None:
    """Remove the directories of workers that have ended before their daemon had."""
    place = Path(_PLACE)
    for directory in place.parent.glob(f"{place.name}-{os.getuid()}-*"):
        worker = _OF_WORKER.search(directory.name)
        if worker is not None and not Path("/proc", worker[1]).exists() and not _is_used(directory):
            shutil.rmtree(directory, ignore_errors=True)


def _is_used(directory: Path) -> bool:
    """Return whether processes keep the daemon of a directory: the worker may be in another container."""
    with suppress(FileNotFoundError), (directory / "users").open() as users:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def _changing(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, which is made if it is not there, while its daemon is started or ended."""
    while (file := _locked(directory)) is None:
        pass  # the last process has taken the directory away meanwhile
    with file:
        yield


def _locked(directory: Path) -> IO[str] | None:
    """Return the locked file of a directory, which is made if it is not there; None if it was taken away meanwhile.

    Raises:
        NodeStartError: the directory belongs to someone else.
    """
    with ExitStack() as opened, suppress(FileNotFoundError):
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        made = directory.lstat()
        if made.st_uid != os.getuid() or not stat.S_ISDIR(made.st_mode):
            raise NodeStartError(f"{directory}, the directory of MPS, belongs to someone else: remove it.")
        (directory / "log").mkdir(exist_ok=True)
        path = directory / "daemon"
        file = opened.enter_context(path.open("w"))
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.samestat(path.stat(), os.fstat(file.fileno())):
            opened.pop_all()
            return file
    return None


def _start(directory: Path, variables: Mapping[str, str]) -> None:
    """Start the daemon, unless it runs. It leaves the session of this process, and so survives it.

    Its output is a file: with a pipe, this would wait for the end of the daemon.
    """
    with tempfile.TemporaryFile("w+", dir=directory) as output:
        try:
            done = subprocess.run(
                [_CONTROL, "-d"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
                timeout=_WITHIN,
                check=False,
            )
        except FileNotFoundError:
            raise NodeStartError(f"MPS needs {_CONTROL} of NVIDIA's driver, which is not on the PATH.") from None
        except subprocess.TimeoutExpired:
            raise NodeStartError(f"{_CONTROL} did not start within {_WITHIN:g} s.") from None
        output.seek(0)
        said = output.read()
    if done.returncode and "already running" not in said:
        raise NodeStartError(f"{_CONTROL} did not start: {(said.strip().splitlines() or ['it said nothing'])[-1]}")


def _stop(directory: Path, variables: Mapping[str, str]) -> None:
    """Have the daemon end, and its directory removed then, by commands that leave the session of this process too.

    The daemon waits for the end of its clients, of which this process is one. The next process gets a daemon of its
    own: the directory has another name from here on, which is no matter to what is connected.
    """
    ended = tempfile.mkdtemp(prefix=f"{directory.name}-ended-", dir=directory.parent)
    directory.rename(ended)
    nowhere = subprocess.DEVNULL
    subprocess.run(
        ["sh", "-c", f'{{ echo quit | {_CONTROL}; rm -rf "${_PIPES}"; }} &'],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        env={**variables, _PIPES: ended},
        start_new_session=True,
        timeout=_WITHIN,
        check=False,
    )
