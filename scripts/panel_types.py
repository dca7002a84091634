"""Generates the panel's side of the protocol, in TypeScript, from `skyward_kernel.panel.protocol`, the registry of the
commands, and `skyward.views`.

    python scripts/panel_types.py

A test checks that `labextension/src/protocol.ts` is up to date.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

from skyward.commands.command import Choice, Command, Form
from skyward.commands.messages import Json, json_type, sent_forms
from skyward.views.rows import KEPT, LOGS, ROWS
from skyward.views.status import NODE_STATUSES, PHASE_WORDS, POOL_STATUSES, TASK_STATUSES, VOLUME_STATUSES, Label
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.panel import protocol

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
        "// Made by scripts/panel_types.py from skyward_kernel and skyward/views: change those.\n",
        f"export const VERSION = {protocol.VERSION};\n"
        f"export const STATE_COMM = '{protocol.STATE_COMM}';\n"
        f"export const COMMAND_TARGET = '{protocol.COMMAND_TARGET}';\n"
        f"export const VIEW_TARGET = '{protocol.VIEW_TARGET}';\n",
        "/** Rows that are kept of what only ever grows, for each pool. */\n"
        f"export const KEPT = {{\n{kept.rstrip().rstrip(',')}\n}} as const;\n\n"
        f"export const LOGS = [{', '.join(map(repr, LOGS))}] as const;\n",
        _labels(),
        *(_alias(kind) for kind in (*rows, *protocol.PARTS, *protocol.MESSAGES)),
        *(_alias(kind) for kind in protocol.REQUESTS if kind is not protocol.RunCommand),
        f"/** The type of the rows of each table. */\nexport type RowTypes = {{\n{tables}}};\n\n"
        f"export const TABLES = [\n  {_names(ROWS)}\n] as const;\n",
        _TABLES,
        _union("Message", protocol.MESSAGES),
        f"export const MESSAGE_KINDS = [{', '.join(map(_kind, protocol.MESSAGES))}] as const;\n",
        *_commands(),
        _union("Request", protocol.REQUESTS),
    ]
    return "\n".join(parts)


_ARGUMENT: Mapping[Json, str] = {
    "text": "string",
    "number": "number",
    "true": "true",
    "texts": "string[]",
    "options": "{ [flag: string]: string }",
}


def _commands() -> list[str]:
    """Return the commands: the types of their arguments, their lines, and their entries of the palette."""
    offered = [each for each in COMMANDS.values() if each.forms]
    run = [each for each in offered if sent_forms(each)]
    arguments = "".join(f"  {each.name}: {_forms(each, each.forms)};\n" for each in offered)
    sent = "".join(
        f"  | {{ kind: 'run'; command: '{each.name}'; arguments: {_forms(each, sent_forms(each))} }}\n" for each in run
    )
    return [
        "/** The arguments of each command of `%sky` that the panel, the widget or the palette offers. */\n"
        f"export interface CommandArguments {{\n{arguments}}}\n",
        "/** A command with its arguments. */\n"
        "export type CommandLine = {\n"
        "  [C in keyof CommandArguments]: { command: C; arguments: CommandArguments[C] };\n"
        "}[keyof CommandArguments];\n",
        f"/** A request to run a command, without its id. */\nexport type RunRequest =\n{sent.rstrip()};\n",
        f"/** {_doc(protocol.RunCommand)} */\nexport type RunCommand = RunRequest & {{ id: string }};\n",
        "/** The line of a command: its positional arguments, in order, and the flags of the others. */\n"
        "export const COMMAND_WORDS: {\n"
        "  [C in keyof CommandArguments]: { words: string[]; flags: { [name: string]: string } };\n} "
        f"= {_literal({each.name: _line(each) for each in offered})};\n",
        _PALETTE_TYPES.format(choice=_type(Choice.__value__)),
        "export const PALETTE: PaletteEntry[] = [\n" + ",\n".join(_entries(offered)) + "\n];\n",
    ]


def _forms(command: Command, forms: Sequence[Form]) -> str:
    """Return the type of the arguments of a command in these forms."""
    return " | ".join(
        f"{{ {'; '.join(f'{name}: {_ARGUMENT[json_type(command, name)]}' for name in form.arguments)} }}"
        if form.arguments
        else "Record<string, never>"
        for form in forms
    )


def _line(command: Command) -> dict[str, object]:
    options = {option.target: option.name for option in command.options}
    return {"words": [each.name for each in command.arguments], "flags": options}


_PALETTE_TYPES = """\
/** The arguments that the user chooses in the dialogs of the palette; those of other choices are empty. */
export interface Chosen {{
  pool: string;
  pools: string[];
  nodes: string;
  node: number;
  task: number;
  cell: number;
}}

/** An entry of the command palette. It runs a command, or inserts its line into the notebook. */
export interface PaletteEntry {{
  name: string;
  label: string;
  question: string;
  choice: {choice};
  arguments: string[];
  run?: (chosen: Chosen) => RunRequest;
  line?: (chosen: Chosen) => CommandLine;
}}
"""

_CONSTANTS: Mapping[Json, str] = {"true": "true", "options": "{}"}
"""Arguments that are not chosen in a dialog."""


def _entries(commands: Iterable[Command]) -> Iterator[str]:
    for command in commands:
        for form in command.forms:
            if not form.entry:
                continue
            texts = {"name": form.entry, "label": form.label, "question": form.question, "choice": form.choice}
            values = {name: _CONSTANTS.get(json_type(command, name), f"chosen.{name}") for name in form.arguments}
            given = f"{{ {', '.join(f'{name}: {value}' for name, value in values.items())} }}"
            kind = "" if form.is_line else "kind: 'run', "
            parameter = "chosen" if "chosen." in given else "()"
            lines = [
                *(f"    {name}: '{text}'" for name, text in texts.items()),
                f"    arguments: [{', '.join(map(repr, form.arguments))}]",
                f"    {'line' if form.is_line else 'run'}: {parameter} => "
                f"({{ {kind}command: '{command.name}', arguments: {given} }})",
            ]
            yield "  {\n" + ",\n".join(lines) + "\n  }"


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _doc(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _labels() -> str:
    """Return the words of phases, and the labels of all statuses."""
    words = _literal(PHASE_WORDS)
    parts = [_alias(Label), f"export const PHASE_WORDS: {{ [phase: string]: string }} = {words};\n"]
    for name, of, labels in (
        ("POOL_STATUSES", "PoolRow['status']", POOL_STATUSES),
        ("NODE_STATUSES", "NodeRow['status']", NODE_STATUSES),
        ("TASK_STATUSES", "TaskRow['state']", TASK_STATUSES),
        ("VOLUME_STATUSES", "VolumeRow['status']", VOLUME_STATUSES),
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
    # An alias, unlike an interface, is assignable to the JSON types of Lumino.
    return f"/** {_doc(kind)} */\nexport type {kind.__name__} = {{\n{lines}}};\n"


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
