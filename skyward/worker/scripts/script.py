"""A script or a command on a node: a generator task that yields its output, and returns how it ended.

The script is a process of its own, so it is a real `__main__`: it may fork, use `multiprocessing`, handle signals, and
crash, as where it was written. Its output travels as bytes, in the flow control of streams: nothing is dropped, and a
script that prints faster than its reader reads waits, as behind a pipe.
"""

import os
import sys
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward.files.request import FilesRequest, FilesResult
from skyward.task.collections.beside_task import ADDRESS
from skyward.task.instance import instance_info
from skyward.worker.cells.files import CellFiles
from skyward.worker.events.context import TaskContext, current_task
from skyward.worker.scripts.collections import ScriptCollections
from skyward.worker.scripts.log import ScriptLog
from skyward.worker.scripts.modules import place_modules
from skyward.worker.scripts.process import OutputPiece, ScriptProcess
from skyward.worker.tasks.guard import Interrupted
from skyward.worker.tasks.jobs import Job

__all__ = ["ScriptEnd", "ScriptRequest", "run_script"]


_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
"""Exit statuses of a program that cannot be started."""


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """A script or a command to run on a node.

    Attributes:
        kind: "script" for a Python script, "program" for a program with arguments, "shell" for a line for `sh`.
        words: the script or program, and its arguments.
        files: the folder to run in, and the files to send and fetch.
        modules: sources of modules that are not in that folder, by their paths below an entry of `sys.path`.
        run: id of this run, the same on all its nodes.
    """

    kind: Literal["script", "program", "shell"]
    words: tuple[str, ...]
    files: FilesRequest
    modules: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    run: str = ""


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """The end of a script.

    Attributes:
        node: rank of its node.
        status: its exit status; negative for the signal that ended it.
        files: its files, after the end.
        failure: None: a script does not raise.
    """

    node: int
    status: int
    files: FilesResult | None = None
    failure: object = None


def run_script(request: ScriptRequest) -> Generator[OutputPiece, None, ScriptEnd]:
    """Run a script, yield what it writes, and return its end.

    A script that is stopped gets SIGINT, as from Ctrl-C, and later SIGTERM and SIGKILL; what it writes meanwhile is
    sent as the task's own output.

    Raises:
        PayloadError: its files cannot be put in place.
    """
    task = current_task()
    node = 0 if task is None else task.node
    files = CellFiles(request.files, request.run, node)
    try:
        files.enter()
        command = _command(request)
        with ScriptCollections(0 if task is None else task.task) as collections:
            try:
                process = ScriptProcess(command, {**_environment(request), ADDRESS: collections.address})
            except OSError as error:  # the status that a shell gives
                yield 2, f"{command[0]} cannot be started on node {node}: {error.strerror}\n".encode()
                return ScriptEnd(node, _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
            try:
                with ScriptLog(request.words[0]) as log:
                    yield from _output(process, task, log)
                    stopped = not process.has_ended
                    if stopped:
                        process.stop(log.write)
            finally:
                process.close()
        end = ScriptEnd(node, process.status, files.collect({}))
        if stopped:
            raise _interrupted(end, task)
        _note_failure(end, task)
        return end
    finally:
        files.leave()


def _output(process: ScriptProcess, task: TaskContext | None, log: ScriptLog) -> Iterator[OutputPiece]:
    """Yield the output of a script until it ends, or the task is stopped."""
    try:
        while (piece := process.read()) is not None:
            if piece[1]:
                log.write(piece[1])
            if task is not None and task.is_stopped:
                process.unread(piece)
                return
            if piece[1]:
                try:
                    yield piece
                except Interrupted:  # where the task waited for room: the piece was not sent
                    process.unread(piece)
                    raise
    except Interrupted:
        return


def _interrupted(end: ScriptEnd, task: TaskContext | None) -> Interrupted:
    """Return the interrupt of a stopped script, which leaves its end as the partial result of the task."""
    stop = Interrupted()
    stop.left = lambda: end
    if task is not None:
        task.leaves = True
    return stop


def _note_failure(end: ScriptEnd, task: TaskContext | None) -> None:
    """Let the task count as failed if the script has failed. A member of a collective would stop the others by that."""
    job = None if task is None else task.job
    if task is not None and end.status and isinstance(job, Job) and job.submit.collective is None:
        task.raised = "SystemExit"
        task.reason = f"exit status {end.status}" if end.status > 0 else f"signal {-end.status}"


def _command(request: ScriptRequest) -> list[str]:
    match request.kind:
        case "script":
            return [sys.executable, *request.words]
        case "shell":
            return ["/bin/sh", "-c", *request.words]
        case "program":
            return list(request.words)


def _environment(request: ScriptRequest) -> dict[str, str]:
    """Return the variables of the process: those of tasks, with the interpreter of this node first in the PATH."""
    found = {**os.environ, "PYTHONUNBUFFERED": "1", "COMPUTE_POOL": instance_info().to_json()}
    found["PATH"] = os.pathsep.join(filter(None, [os.path.dirname(sys.executable), found.get("PATH", os.defpath)]))
    if request.modules:
        entries = (place_modules(request.modules), found.get("PYTHONPATH"))
        found["PYTHONPATH"] = os.pathsep.join(filter(None, entries))
    return {**found, **_of_process_group()}


def _of_process_group() -> dict[str, str]:
    """Return the variables by which a script finds the store of the process group that this process is a member of.

    It is the way of `torchrun`: `init_process_group()` of the script asks the store at MASTER_ADDR and MASTER_PORT, and
    does not open one there.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_initialized():
        return {}
    return {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
