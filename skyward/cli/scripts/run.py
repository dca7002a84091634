"""`skyward run`: a Python script on nodes, as if it ran here."""

import re
import secrets
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyward.cli.pools.access import find_pool, refuse_ended
from skyward.cli.pools.attaching import attached
from skyward.cli.pools.opening import make_pool
from skyward.cli.pools.signals import of_attached, of_own
from skyward.cli.scripts.everywhere import await_nodes
from skyward.cli.scripts.local_script import LocalScript
from skyward.cli.scripts.placing import check_group, check_new_nodes, check_recorded_nodes
from skyward.cli.scripts.streaming import is_several, stream, was_shared
from skyward.cli.terminal.answers import say, speaker
from skyward.cli.terminal.interrupts import Interrupts, Signalled
from skyward.cli.terminal.refusal import refusing
from skyward.commands.table.pool_options import BUDGET
from skyward.errors import SpecError, StorageError
from skyward.files.transfer.choice import FileOptions
from skyward.files.transfer.transfer import FetchedVersions, FileTransfer
from skyward.worker.scripts.script import ScriptRequest

if TYPE_CHECKING:
    from skyward.files.transfer.writer import Shape
    from skyward.pool.compute import Compute
    from skyward.specs.placement import On

__all__ = ["pool_name", "run"]

_LONGEST = 63
"""Characters of the name of a pool."""


def pool_name(script: str) -> str:
    """Return the name of the pool of a script, from the name of its file."""
    plain = unicodedata.normalize("NFKD", Path(script).stem).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain).strip("-")
    return f"run-{words}"[:_LONGEST].rstrip("-.")


def run(
    *,
    script: str,
    rest: Sequence[str] = (),
    pool: str | None = None,
    on: "On" = "one",
    files: tuple[str, ...] = (),
    sync: tuple[str, ...] = (),
    fetch: tuple[str, ...] = (),
    file_limit: int | None = None,
    timeout: float | None = None,
    wait: bool = False,
    quiet: bool = False,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Run a script on a new pool, or on one that was left; return the exit status of the script."""
    local = LocalScript.at(script)
    given = dict(options or {})
    left = pool is not None and _is_left(pool)
    if left and given.keys() - {BUDGET.target}:
        raise SpecError(f"Pool {pool!r} is there already: leave the options of a new pool out, except --budget.")
    if wait and not left:
        raise SpecError("--wait waits for a pool that is there: give its name with --pool, or leave --wait out.")
    name = pool or pool_name(script)
    compute = None if left else make_pool(name, given)
    asked = FileOptions(files, sync, fetch, given.get("image.excludes", ()), file_limit)
    if compute is None:  # all that can be checked before anything starts, and costs money
        check_recorded_nodes(on, find_pool(name))
    else:
        check_new_nodes(on, compute)
    _prepared(local, asked, on, shared=compute is None or was_shared(compute))

    def signalled() -> Signalled:
        return of_attached(name) if compute is None else of_own(compute)

    status: int | None = None
    with Interrupts(speaker(), signalled) as interrupts:
        try:
            if compute is None:
                using = attached(name, interrupts, waits=wait, budget=given.get(BUDGET.target))
            else:
                using = _opened(compute, interrupts, quiet=quiet)
            with using as used:
                if compute is None:
                    check_group(on, name, used.groups)
                    await_nodes(used, on)
                request, transfer = _prepared(local, asked, on, rest, shared=was_shared(used))
                status = stream(used, request, on, transfer, timeout=timeout, stays=compute is None)
            return status
        except KeyboardInterrupt:
            return interrupts.status
        except StorageError as error:
            if status is None:
                raise
            say(str(error))  # of the close: the script had its status before
            return status or 1


def _is_left(name: str) -> bool:
    """Return whether there is a pool of that name to attach to; one of skyward.toml is opened otherwise.

    Raises:
        SpecError: neither is there, or its nodes have ended.
    """
    from skyward.config import load
    from skyward.pool.reaping.recorded_pools import recorded_pools

    recorded = [each for each in recorded_pools(name) if not each.warm_until]
    if any(each.owner or not each.ended for each in recorded):
        return True
    if name in load().pools:
        return False
    for each in recorded:
        refuse_ended(each)
    raise SpecError(
        f"There is no pool {name!r}, and skyward.toml has none of that name: `skyward up {name} --detach` opens one."
    )


@contextmanager
def _opened(pool: "Compute", interrupts: Interrupts, *, quiet: bool) -> Iterator["Compute"]:
    """Open a pool for a script, and close it at the end."""
    from skyward.pool.compute import limit_leases
    from skyward.reporting.console import opening_quietly

    try:
        with opening_quietly(stays=True) if quiet else nullcontext():
            pool.open()
        limit_leases(pool)
        yield pool
    finally:
        with interrupts.closing():
            pool.close()


def _prepared(
    script: LocalScript, asked: FileOptions, on: "On", rest: Sequence[str] = (), *, shared: bool
) -> tuple[ScriptRequest, FileTransfer]:
    """Return the request with the files of the script as they are now.

    Raises:
        SpecError: a file cannot be sent, or the files exceed the limit.
    """
    path = script.path if shared else script.relative
    sent = asked.files if shared else (path, *script.beside, *asked.files)
    shape: Shape = "all" if is_several(on) else "single"
    with refusing():
        options = FileOptions(sent, asked.sync, asked.fetch, asked.excludes, asked.limit)
        transfer = FileTransfer(options, script.folder, FetchedVersions(), shape, say)
        files = transfer.request(shared=shared)
    modules = {} if shared else script.modules
    return ScriptRequest("script", (path, *rest), files, modules, secrets.token_hex(8)), transfer
