"""Tables of the volumes of a pool: one line for all nodes on which a volume is in the same state."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from skyward.formatting import count_text, size_text
from skyward.views.drawing import grid, plain
from skyward.views.projection import volume_rows
from skyward.views.status import VOLUME_STATUSES, Label

if TYPE_CHECKING:
    from rich.table import Table

    from skyward.control.observe.snapshot import PoolSnapshot
    from skyward.views.rows import VolumeRow

__all__ = ["VOLUMES", "VolumeLine", "volume_grid", "volume_lines", "volume_table"]

VOLUMES: Final = ("volume", "source", "mode", "state", "nodes", "fetched", "to upload", "reason")
"""Header of the tables. Columns that no line has a value for are left out."""

type VolumeLine = tuple[str, str, str, Label, str, str, str, str]

_RANGES: Final = 6
"""Maximum number of ranges of nodes that a line names."""

_URGENCY: Final = {status: place for place, status in enumerate(VOLUME_STATUSES)}


def volume_table(pool: "PoolSnapshot") -> str:
    """Return a table of the volumes of a pool; empty if it has none."""
    lines = volume_lines(pool)
    return plain(volume_grid(lines)) if lines else ""


def volume_grid(lines: Sequence[VolumeLine]) -> "Table":
    """Return a grid of these lines."""
    shown = [column for column in range(len(VOLUMES)) if any(line[column] for line in lines)]
    rows = ([line[column] for column in shown] for line in lines)
    return grid([VOLUMES[column] for column in shown], rows, (), cut=("source", "fetched", "reason"))


def volume_lines(pool: "PoolSnapshot") -> list[VolumeLine]:
    """Return the lines about the volumes of a pool, sorted by volume, the most urgent state first."""
    rows = sorted(volume_rows(pool), key=lambda row: (_place(row), row.rank))
    return [_line(list(alike)) for _, alike in groupby(rows, key=_place)]


def _place(row: "VolumeRow") -> tuple[str | int, ...]:
    """Return what the rows of a line have in common, which also sorts the lines."""
    return row.mount, row.source, row.read_only, _URGENCY[row.status], row.mode, row.tool, row.detail


def _line(rows: Sequence["VolumeRow"]) -> VolumeLine:
    first = rows[0]
    mode = f"{first.mode} with {first.tool}" if first.tool else first.mode
    return (
        first.mount,
        first.source,
        f"{mode}, read-only" if first.read_only else mode,
        VOLUME_STATUSES[first.status],
        _ranks(row.rank for row in rows),
        _fetched(rows),
        _waiting(rows),
        first.detail,
    )


def _ranks(ranks: Iterable[int]) -> str:
    """Return the ranks of nodes: `0`, `0-3, 7`; the number of the others if there are many ranges."""
    ranges: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and rank == ranges[-1][-1] + 1:
            ranges[-1].append(rank)
        else:
            ranges.append([rank])
    texts = [f"{each[0]}-{each[-1]}" if len(each) > 1 else f"{each[0]}" for each in ranges[:_RANGES]]
    others = sum(map(len, ranges[_RANGES:]))
    return ", ".join([*texts, f"{others} more"] if others else texts)


def _fetched(rows: Sequence["VolumeRow"]) -> str:
    """Return what was transferred to the nodes; empty if nothing was, and nothing will be."""
    nbytes, total = sum(row.nbytes for row in rows), sum(row.total for row in rows)
    if not (nbytes or total):
        return ""
    size = f"{size_text(nbytes)} of {size_text(total)}" if total > nbytes else size_text(nbytes)
    peers = sum(row.from_peers for row in rows)
    return f"{size}, {size_text(peers)} from other nodes" if peers else size


def _waiting(rows: Sequence["VolumeRow"]) -> str:
    files = sum(row.unflushed for row in rows)
    return f"{count_text(files, 'file')}, {size_text(sum(row.unflushed_bytes for row in rows))}" if files else ""
