"""Projection of orphaned pools to rows."""

from typing import TYPE_CHECKING

from skyward.frontends.views import OrphanRow, PoolTables, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skyward.frontends.pools import Orphan

__all__ = ["project_orphans"]


def project_orphans(orphans: "Iterable[Orphan]") -> PoolTables:
    """Project orphaned pools to their rows, leaving out those that are due to be reaped."""
    rows: Table = {
        orphan.id: OrphanRow(
            id=orphan.id,
            name=orphan.name,
            host=orphan.host,
            pid=orphan.pid,
            machines=orphan.machines,
            per_hour=orphan.per_hour,
            seen_at=orphan.seen,
            ends_at=orphan.seen + orphan.lease,
            attachable=orphan.attachable,
        )
        for orphan in orphans
        if orphan.machines and not orphan.due
    }
    return PoolTables({"orphans": rows})
