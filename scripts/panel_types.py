"""Generates the panel's side of the protocol, in TypeScript, from `skyward_kernel.protocol` and `skyward.views`.

    python scripts/panel_types.py

A test checks that `labextension/src/protocol.ts` is up to date.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

from skyward.views.rows import KEPT, LOGS, ROWS
from skyward.views.status import NODE_STATUSES, POOL_STATUSES, TASK_STATUSES, Label
from skyward_kernel import protocol

PATH = Path(__file__).parents[1] / "labextension" / "src" / "protocol.ts"

_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", NoneType: "null"}

_TABLES = """\
export type TableName = keyof RowTypes;

/** Rows by table and key; a message may leave out tables. */
export type Tables = { [T in TableName]?: { [key: string]: RowTypes[T] } };

/** Keys of rows, by table. */
export type Keys = { [T in TableName]?: string[] };
"""
"""The aliases of `protocol` with the row type of each table."""


def typescript() -> str:
    """Return the whole file."""
    rows = tuple(ROWS.values())
    tables = "".join(f"  {table}: {kind.__name__};\n" for table, kind in ROWS.items())
    kept = "".join(f"  {table}: {most},\n" for table, most in KEPT.items())
    parts = [
        "// Made by scripts/panel_types.py from skyward_kernel/protocol.py and skyward/views: change those.\n",
        f"export const VERSION = {protocol.VERSION};\n"
        f"export const STATE_COMM = '{protocol.STATE_COMM}';\n"
        f"export const COMMAND_TARGET = '{protocol.COMMAND_TARGET}';\n"
        f"export const VIEW_TARGET = '{protocol.VIEW_TARGET}';\n",
        "/** Rows that are kept of what only ever grows, for each pool. */\n"
        f"export const KEPT = {{\n{kept.rstrip().rstrip(',')}\n}} as const;\n\n"
        f"export const LOGS = [{', '.join(map(repr, LOGS))}] as const;\n",
        _labels(),
        *(_alias(kind) for kind in (*rows, *protocol.PARTS, *protocol.MESSAGES, *protocol.COMMANDS)),
        f"/** The type of the rows of each table. */\nexport type RowTypes = {{\n{tables}}};\n\n"
        f"export const TABLES = [\n  {_names(ROWS)}\n] as const;\n",
        _TABLES,
        _union("Message", protocol.MESSAGES),
        f"export const MESSAGE_KINDS = [{', '.join(map(_kind, protocol.MESSAGES))}] as const;\n",
        _union("Command", protocol.COMMANDS),
    ]
    return "\n".join(parts)


def _labels() -> str:
    """Return the labels of all statuses."""
    parts = [_alias(Label)]
    for name, of, labels in (
        ("POOL_STATUSES", "PoolRow['status']", POOL_STATUSES),
        ("NODE_STATUSES", "NodeRow['status']", NODE_STATUSES),
        ("TASK_STATUSES", "TaskRow['state']", TASK_STATUSES),
    ):
        lines = ",\n".join(
            f"  {status}: {{ word: '{label.word}', icon: '{label.icon}', tone: '{label.tone}' }}"
            for status, label in labels.items()
        )
        parts.append(f"export const {name}: {{ [status in {of}]: Label }} = {{\n{lines}\n}};\n")
    return "\n".join(parts)


def _names(names: Iterable[str]) -> str:
    return ",\n  ".join(map(repr, names))


def _alias(kind: type) -> str:
    hints = get_type_hints(kind)
    lines = "".join(f"  {each.name}: {_type(hints[each.name])};\n" for each in fields(kind))
    doc = " ".join((kind.__doc__ or "").split())
    # An alias, unlike an interface, is assignable to the JSON types of Lumino.
    return f"/** {doc} */\nexport type {kind.__name__} = {{\n{lines}}};\n"


def _kind(message: type) -> str:
    return repr(next(each.default for each in fields(message) if each.name == "kind"))


def _union(name: str, kinds: tuple[type, ...]) -> str:
    return f"export type {name} =\n" + "\n".join(f"  | {kind.__name__}" for kind in kinds) + ";\n"


def _type(hint: Any) -> str:
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, TypeAliasType):
        return hint.__name__ if hint in (protocol.Tables, protocol.Keys) else _type(hint.__value__)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " | ".join(f"'{value}'" for value in inner)
    if origin in (UnionType, Union):
        return " | ".join(map(_type, inner))
    if origin is tuple:
        return f"{_type(inner[0])}[]"
    if origin is Mapping:
        return f"{{ [key: string]: {_type(inner[1])} }}"
    return str(hint.__name__)


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(typescript())
    sys.stdout.write(f"{PATH}\n")
