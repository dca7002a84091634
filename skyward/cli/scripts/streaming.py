"""A script or command on the nodes of an open pool: its output as it comes, and the exit status."""

import signal
from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skyward.cli.scripts.everywhere import tell_left_out
from skyward.cli.scripts.writing import ScriptOutput
from skyward.cli.terminal.answers import say
from skyward.control.act.tasks.run import Run
from skyward.errors import PoolClosedError, SkywardError, SpecError, TaskTimeoutError, UsageError, VolumeError
from skyward.files.transfer.transfer import FileTransfer
from skyward.formatting import nodes_text
from skyward.functions.decorator import function
from skyward.worker.scripts.process import GRACE
from skyward.worker.scripts.script import ScriptEnd, ScriptRequest, run_script

if TYPE_CHECKING:
    from skyward.pool.compute import Compute
    from skyward.specs.placement import On

__all__ = ["is_several", "stream", "was_shared"]

_MARGIN = 3.0
"""Seconds beyond the grace of a script for the message that it was killed."""


def is_several(on: "On") -> bool:
    """Return whether a placement is of several nodes."""
    return not isinstance(on, int) and on not in ("one", "head")


def was_shared(pool: "Compute") -> bool:
    """Return whether all nodes of a pool have the files of this computer."""
    from skyward.control.act.machines.offers import provider_config

    specs = [spec for alternatives in pool.groups.values() for spec in alternatives]
    return all(getattr(provider_config(spec), "shares_files", False) for spec in specs)


def stream(
    pool: "Compute",
    request: ScriptRequest,
    on: "On",
    transfer: FileTransfer,
    *,
    timeout: float | None = None,
    stays: bool = True,
) -> int:
    """Run a script on nodes of a pool, write its output here, and return its exit status.

    Of several nodes, it is the first status by rank that is not 0. Files come back in any case. If files that it wrote
    to a volume could not be uploaded, a status of 0 becomes 1.

    Args:
        pool: the pool.
        request: the script.
        on: where it runs.
        transfer: the files that come back.
        timeout: seconds that it may run; None for no limit.
        stays: whether the pool stays after the command.

    Raises:
        SpecError: `on` is no place in the pool.
        TaskTimeoutError: the script ran past its timeout.
        KeyboardInterrupt: a signal arrived. The script has been stopped.
    """
    output = ScriptOutput(label=is_several(on))
    pending = replace(function(run_script)(request), timeout=timeout, grace=GRACE)
    runs: list[Run[Any]] = []
    ends: Sequence[ScriptEnd] = ()
    try:
        run = pool.start(pending, on=on, sink=output, runs=runs, waits=True)
        with closing(run.items()) as items:
            for item in items:
                node, piece = item if is_several(on) else (run.nodes[-1], item)
                output.write(node, *piece)
        found = run.future.result()
        ends = found if isinstance(found, list) else [found]
        tell_left_out(pool, on, run.nodes, request.words[0], stays=stays)
    except TaskTimeoutError:
        ends = _stopped(runs)
        of = "" if timeout is None else f" of {timeout:g} s"
        raise TaskTimeoutError(f"{request.words[0]} ran past its timeout{of}, and was stopped.") from None
    except PoolClosedError:
        say(
            f"pool {pool.name!r} was closed by another process, as by `skyward down --force`, and {request.words[0]} "
            "was stopped."
        )
        return 1
    except UsageError as error:  # there is no such place in the pool, and nothing has run
        raise SpecError(str(error)) from None
    except VolumeError:  # of all nodes that failed: the script has ended
        ends = _stopped(runs)
        return _status(ends, request.words[0]) or 1
    except SkywardError as error:  # the node was lost, the budget is spent: the texts name the function of the task
        ends = _stopped(runs)
        say(str(error).replace(f"{run_script.__name__}()", request.words[0]))
        return 1
    except BaseException:
        ends = _stopped(runs)
        raise
    finally:
        output.finish()
        for node, unsaved in (each for run in runs for each in run.unsaved):
            say(f"{request.words[0]} has ended on node {node}, but {unsaved}.")
        transfer.write_results(ends)
    return _status(ends, request.words[0])


def _stopped(runs: Sequence[Run[Any]]) -> list[ScriptEnd]:
    """Stop what runs, wait for its end, and return the ends that are known."""
    for run in runs:
        run.cancel()
    wait([run.future for run in runs], GRACE + _MARGIN)
    values = [outcome.value for run in runs for outcome in run.remains()]
    return [value for value in values if isinstance(value, ScriptEnd)]


def _status(ends: Sequence[ScriptEnd], name: str) -> int:
    """Return the exit status, after a sentence on what the script itself could not say."""
    failed = [end for end in sorted(ends, key=lambda end: end.node) if end.status]
    for end in failed:
        if end.status < 0:
            say(f"{name} was ended by {_signal(-end.status)} on node {end.node}.")
    if len(ends) > 1 and failed:
        say(f"{name} failed on {nodes_text([end.node for end in failed])} of {len(ends)}.")
    if not failed:
        return 0
    first = failed[0].status
    return first if first > 0 else 128 - first


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
