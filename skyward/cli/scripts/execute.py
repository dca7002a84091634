"""`skyward exec`: a command in the environment of the nodes of a pool that was left."""

import os
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skyward.cli.pools.access import find_pool, refuse_ended
from skyward.cli.pools.attaching import attached
from skyward.cli.pools.signals import of_attached
from skyward.cli.scripts.everywhere import await_nodes
from skyward.cli.scripts.placing import check_group, check_recorded_nodes
from skyward.cli.scripts.streaming import is_several, stream, was_shared
from skyward.cli.terminal.answers import say, speaker
from skyward.cli.terminal.interrupts import Interrupts
from skyward.errors import SpecError
from skyward.files.transfer.choice import FileOptions
from skyward.files.transfer.transfer import FetchedVersions, FileTransfer
from skyward.worker.scripts.script import ScriptRequest

if TYPE_CHECKING:
    from skyward.files.transfer.writer import Shape
    from skyward.specs.placement import On

__all__ = ["execute"]


def execute(
    *,
    pool: str,
    rest: Sequence[str],
    on: "On" = "one",
    timeout: float | None = None,
    budget: float | None = None,
    wait: bool = False,
) -> int:
    """Run a command on nodes, and return its exit status. The pool is left again."""
    if not rest:
        raise SpecError(f"exec takes a command after `--`, as in `skyward exec {pool} -- nvidia-smi`.")
    recorded = find_pool(pool)
    refuse_ended(recorded)
    check_recorded_nodes(on, recorded)
    with Interrupts(speaker(), lambda: of_attached(pool)) as interrupts:
        try:
            with attached(pool, interrupts, waits=wait, budget=budget) as compute:
                check_group(on, pool, compute.groups)
                await_nodes(compute, on)
                shape: Shape = "all" if is_several(on) else "single"
                transfer = FileTransfer(FileOptions(), os.getcwd(), FetchedVersions(), shape, say)
                files = transfer.request(shared=was_shared(compute))
                run = secrets.token_hex(8)
                request = ScriptRequest("shell" if len(rest) == 1 else "program", tuple(rest), files, run=run)
                return stream(compute, request, on, transfer, timeout=timeout)
        except KeyboardInterrupt:
            return interrupts.status
