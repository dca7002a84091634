"""Traces: workloads in a file, as CSV or as JSON lines.

CSV has a header: `at` and `seconds`, then optionally `count` (number of such tasks), `capabilities` (names separated by
spaces), and a column for every resource, under its name. JSON lines hold one object each with `at`, `seconds`, `count`,
`resources` (an object) and `capabilities` (a list).
"""

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from skyward.errors import SpecError
from skyward.formatting import count_text
from skyward.simulator.workload import Task
from skyward.values.needs import NOTHING, Needs

__all__ = ["read_trace", "write_trace"]

MOST = 1_000_000
_OWN = ("at", "seconds", "count", "capabilities")


def read_trace(path: Path) -> list[Task]:
    """Return the tasks in a file, in the order they arrive.

    Raises:
        SpecError: the file cannot be read or parsed; the message names the line and the fix.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SpecError(f"The trace {str(path)!r} cannot be read ({why}); give the path of a text file.") from error
    lines = (_json_lines if text.lstrip().startswith("{") else _csv_lines)(text, path.name)
    tasks: list[Task] = []
    shapes: dict[Needs, Needs] = {}
    for number, row in lines:
        try:
            task, count = _task(row)
        except ValueError as error:
            raise SpecError(f"Line {number} of {path.name}: {str(error).removesuffix('.')}.") from None
        needs = shapes.setdefault(task.needs, task.needs) if task.needs else NOTHING
        tasks += [task._replace(needs=needs)] * count
        if len(tasks) > MOST:
            raise SpecError(
                f"The trace {path.name} has more than {MOST:,} tasks; cut it, or merge tasks into longer ones."
            )
    if not tasks:
        raise SpecError(f"The trace {path.name} has no tasks; add a line for each, such as `0,30` under `at,seconds`.")
    tasks.sort(key=lambda task: task.at)
    return tasks


def write_trace(path: Path, tasks: Iterable[Task]) -> None:
    """Write tasks as JSON lines if the name ends in `.jsonl`, else as CSV."""
    tasks = list(tasks)
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            for task in tasks:
                needs = {"resources": dict(task.needs.resources), "capabilities": sorted(task.needs.capabilities)}
                entry = {"at": task.at, "seconds": task.seconds, **{k: v for k, v in needs.items() if v}}
                file.write(json.dumps(entry) + "\n")
            return
        names = sorted({name for task in tasks for name in task.needs.resources})
        writer = csv.writer(file)
        able = any(task.needs.capabilities for task in tasks)
        writer.writerow(["at", "seconds", *(["capabilities"] if able else []), *names])
        for task in tasks:
            cells = [" ".join(sorted(task.needs.capabilities))] if able else []
            amounts = [task.needs.resources.get(name, "") for name in names]
            writer.writerow([task.at, task.seconds, *cells, *amounts])


def _json_lines(text: str, file: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise SpecError(
                    f'Line {number} of {file}: it must be a JSON object, such as {{"at": 0, "seconds": 30}}.'
                )
            yield number, row


def _csv_lines(text: str, file: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    if not {"at", "seconds"} <= set(header):
        raise SpecError(
            f"Line 1 of {file}: a trace starts with its columns, such as `at,seconds` or `at,seconds,count,GPU`."
        )
    if len(set(header)) < len(header) or "" in header:
        raise SpecError(f"Line 1 of {file}: every column needs a unique name.")
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            expected = f"{len(header)}, one for each of {','.join(header)}"
            has = count_text(len(cells), "value")
            raise SpecError(f"Line {reader.line_num} of {file}: it has {has}; give it {expected}.")
        given = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
        row: dict[str, Any] = {name: cell for name, cell in given.items() if name in _OWN}
        row["resources"] = {name: cell for name, cell in given.items() if name not in _OWN}
        row["capabilities"] = given.get("capabilities", "").split()
        yield reader.line_num, row


def _task(row: Mapping[str, Any]) -> tuple[Task, int]:
    """Return the task of a row, and its count.

    Raises:
        ValueError: the row is invalid; the message is a sentence with the fix.
    """
    for name in row:
        if name not in (*_OWN, "resources"):
            raise ValueError(f"{name!r} is unknown; put it under `resources` if it is one")
    for name in ("at", "seconds"):
        if name not in row:
            raise ValueError(f"it has no `{name}`; add a number of seconds")
    at, seconds = _amount(row, "at"), _amount(row, "seconds")
    if seconds == 0:
        raise ValueError("`seconds` is 0; give the time that the task runs")
    count = _amount(row, "count") if "count" in row else 1.0
    if count != int(count) or not 1 <= count <= MOST:
        raise ValueError(f"`count` is {row['count']!r}; give a whole number of tasks from 1 to {MOST:,}")
    resources, capabilities = row.get("resources", {}), row.get("capabilities", ())
    if not isinstance(resources, dict) or not isinstance(capabilities, list | tuple | dict):
        raise ValueError('`resources` must be an object such as {"GPU": 1}, and `capabilities` a list of names')
    amounts = {name: _amount(resources, name) for name in resources}
    if not all(isinstance(name, str) and name.strip() for name in capabilities):
        raise ValueError(f"`capabilities` must be a list of names, not {capabilities!r}")
    return Task(at, seconds, Needs(amounts, capabilities)), int(count)


def _amount(row: Mapping[str, Any], name: str) -> float:
    given = row[name]
    try:
        if isinstance(given, bool):
            raise TypeError
        amount = float(given)
    except (TypeError, ValueError):
        amount = math.nan
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(f"`{name}` is {given!r}; give a number of at least 0, such as 30")
    return amount
