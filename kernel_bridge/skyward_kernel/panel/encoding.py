"""Encoding of rows and messages as JSON values, and the differences between two states of the pools."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from skyward.frontends.views import LOGS, ROWS, PoolTables, Row
from skyward_kernel.panel.protocol import MESSAGES, PARTS, REPLIES, Delta, FormField, PanelSnapshot, Reply

__all__ = ["changes", "encode"]


def changes(
    before: Mapping[str, PoolTables], after: Mapping[str, PoolTables]
) -> tuple[dict[str, dict[str, Row]], dict[str, tuple[str, ...]]]:
    """Return the new and changed rows of `after`, and the keys of the rows of `before` that are gone, by table.

    The rows of a removed pool, and those that fall off the old end of a log, are not listed: the panel drops them too.
    """
    rows: dict[str, dict[str, Row]] = {}
    gone: dict[str, list[str]] = {}
    for name, state in after.items():
        known = before.get(name)
        if known is state:
            continue
        for table, new in state.tables.items():
            old = {} if known is None else known[table]
            changed = {key: row for key, row in new.items() if old.get(key) != row}
            if changed:
                rows.setdefault(table, {}).update(changed)
            if table not in LOGS and (removed := [key for key in old if key not in new]):
                gone.setdefault(table, []).extend(removed)
    if closed := [name for name in before if name not in after]:
        gone.setdefault("pools", []).extend(closed)
    return rows, {table: tuple(keys) for table, keys in gone.items()}


_NAMES = {kind: tuple(each.name for each in fields(kind)) for kind in (*ROWS.values(), *MESSAGES, *PARTS)}


def encode(value: Row | FormField | PanelSnapshot | Delta | Reply) -> dict[str, Any]:
    """Convert a row, or a message whose tables are encoded, to JSON values."""
    if isinstance(value, REPLIES):
        return asdict(value)
    return {name: getattr(value, name) for name in _NAMES[type(value)]}
