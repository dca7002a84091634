"""`skyward reap`: terminate the machines of pools whose process is gone."""

import dataclasses
from typing import TYPE_CHECKING, Any

from skyward.cli.terminal.answers import say, write_json, write_lines
from skyward.errors import SpecError

if TYPE_CHECKING:
    from skyward.pool.reaping.orphans import Orphan

__all__ = ["reap_pools"]


def reap_pools(
    *,
    pools: tuple[str, ...] = (),
    warm: bool = False,
    dry_run: bool = False,
    forget: bool = False,
    json: bool = False,
) -> int:
    """Terminate orphaned machines; return the exit status: 1 if some may be left, or a name is of no orphan."""
    from skyward.pool.reaping import reap as reaping
    from skyward.pool.reaping.orphans import orphans, refused_names
    from skyward.pool.reaping.reap import describe_orphan
    from skyward.pool.reaping.sweep import describe_swept, sweep

    if forget and (dry_run or not pools):
        raise SpecError("--forget needs the names of pools, and cannot be combined with --dry-run.")
    rows: list[dict[str, Any]] = []
    if dry_run:
        found = [each for each in orphans() if not pools or {each.name, each.id} & {*pools}]
        lines = list(map(describe_orphan, found))
        rows += map(_row, found)
        failed = False
    else:
        done = reaping.reap(pools, warm=warm)
        found = [each.orphan for each in done]
        left = [each for each in done if each.error and not each.orphan.requested] if forget else []
        lines = [describe_orphan(each) for each in done if each not in left]
        lines += reaping.forget([each.orphan.id for each in left])
        rows += ({**_row(each.orphan), "terminated": each.terminated, "error": each.error} for each in done)
        if not pools:
            kept = [each for each in orphans() if each.warm_until]
            lines += [f"{describe_orphan(each)}; `skyward reap --warm` ends that" for each in kept]
            rows += map(_row, kept)
        failed = any(each.error for each in done if each not in left)
    refused = refused_names(pools, found)
    if not pools:
        swept = sweep(dry_run=dry_run)
        lines += describe_swept(swept, dry_run=dry_run)
        rows += ({"swept": line} for line in describe_swept(swept, dry_run=dry_run))
        failed = failed or any(each.error for each in swept)
    if json:
        write_json(rows)
    else:
        write_lines(lines if lines or refused else ["No orphaned machines."])
    for sentence in refused:
        say(sentence)
    return int(failed or bool(refused))


def _row(orphan: "Orphan") -> dict[str, Any]:
    return dataclasses.asdict(orphan)
