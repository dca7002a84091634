"""Lines of a decision log: the records of an autoscaler as JSON, one a line, after a header for each opening of a pool.

A dataclass is an object without the fields that have their defaults; a set is a sorted list; a mapping whose keys are
not text is a list of pairs. Fields are found from the dataclasses, so that a new field of a snapshot needs no change
here.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeAliasType, Union, get_args, get_origin, get_type_hints

from skyward.control.decide.autoscaler import GrowthLimits
from skyward.control.decide.recorded_autoscaler import AutoscalerRecord, AutoscalerStarted, CooldownStarted
from skyward.control.decide.settings import PlaneSettings
from skyward.errors import SpecError
from skyward.scaling.snapshot import Group, Policy, Snapshot

__all__ = [
    "FORMAT",
    "LogHeader",
    "LogLine",
    "RecordedEvaluation",
    "encode_record",
    "header_of",
    "plain",
    "read_decision_log",
    "reader_of",
]

FORMAT = 1
"""Number of the format; a file of another one is refused."""

_KINDS = {
    "LogHeader": "pool",
    "AutoscalerStarted": "ready",
    "CooldownStarted": "cooldown",
    "EvaluationRecord": "evaluation",
}


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The first line of a pool: what a replay needs beside the records.

    Attributes:
        pool: name of the pool.
        policy: name of the policy.
        parameters: fields of the policy, if it is a dataclass, without its name.
        cooldown: of the autoscaler, in seconds.
        groups: the groups as the pool opened.
        prices: price of a node of each group, USD per hour.
        opened: seconds since the epoch; 0 in the simulator.
    """

    format: int
    pool: str
    policy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cooldown: float = 0.0
    groups: tuple[Group, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    opened: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedEvaluation:
    """An evaluation as read from a file; the results are as they were written, since they are only compared."""

    snapshot: Snapshot
    limits: GrowthLimits
    decision: object = None
    error: str = ""
    verdict: object = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a file, with its number from 1 on."""

    number: int
    record: LogHeader | AutoscalerStarted | CooldownStarted | RecordedEvaluation


def header_of(pool: str, settings: PlaneSettings, policy: Policy, opened: float) -> LogHeader:
    """Return the header of a pool."""
    parameters: dict[str, Any] = {}
    if is_dataclass(policy):
        own = [each.name for each in fields(policy) if each.init and each.name != "name"]
        parameters = {name: plain(getattr(policy, name)) for name in own}
    return LogHeader(
        FORMAT,
        pool,
        policy.name,
        parameters,
        settings.cooldown,
        settings.groups,
        {name: sources[0].hourly_price for name, sources in settings.sources.items() if sources},
        opened,
    )


def encode_record(record: LogHeader | AutoscalerRecord) -> bytes:
    """Return a record as a line."""
    encoded = {"kind": _KINDS[type(record).__name__], **plain(record)}
    return json.dumps(encoded, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def plain(value: Any) -> Any:
    """Return a value in the types of JSON. What a user's policy returned beside its types is shown as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: plain(given)
            for name, default in _declared(type(value))
            if (given := getattr(value, name)) is not default and not _is_default(given, default)
        }
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: plain(item) for key, item in value.items()}
        return [[plain(key), plain(item)] for key, item in value.items()]
    if isinstance(value, Set):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, Integral):  # such as a number of numpy
        return int(value)
    return float(value) if isinstance(value, Real) else repr(value)


_REQUIRED = object()

_AS_IN_JSON = frozenset({Any, object, bool, int, float, str})


@cache
def _declared(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass, with their defaults."""
    found = []
    for each in fields(kind):
        default = _REQUIRED if each.default_factory is MISSING else each.default_factory()
        found.append((each.name, default if each.default is MISSING else each.default))
    return tuple((name, default) for name, default in found if not name.startswith("_"))


def _is_default(given: Any, default: Any) -> bool:
    return type(given) is type(default) and bool(given == default)


# Reading.


def read_decision_log(path: Path) -> tuple[list[LogLine], list[str]]:
    """Return the lines of a decision log, and a notice for each line that was cut off.

    The last line of a pool may be cut off, as its process was killed or the disk was full; it is dropped.

    Raises:
        SpecError: the file cannot be read, is not a decision log, or is of another version.
    """
    try:
        texts = path.read_bytes().split(b"\n")
    except OSError as error:
        raise SpecError(
            f"The decision log '{path}' cannot be read ({error.strerror}); give the file that a pool has written "
            "with `decision_log=`."
        ) from error
    found: list[LogLine] = []
    notices: list[str] = []
    numbered = [(number, text) for number, text in enumerate(texts, start=1) if text.strip()]
    for place, (number, text) in enumerate(numbered):
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        is_header = isinstance(said, dict) and said.get("kind") == "pool"
        if not found and not is_header:
            raise SpecError(
                f"'{path}' is not a decision log: its first line does not describe a pool. Give the file that a pool "
                "has written with `decision_log=`."
            )
        if said is None:
            last = place == len(numbered) - 1 or numbered[place + 1][1].startswith(b'{"kind":"pool"')
            if not last:
                raise SpecError(
                    f"Line {number} of '{path}' is not JSON, so the file is damaged; remove this line and the rest."
                )
            notices.append(f"Line {number} of '{path}' was cut off, as its process ended while writing; it is dropped.")
            continue
        found.append(LogLine(number, _record(said, number, path)))
    if not found:
        raise SpecError(f"The decision log '{path}' is empty: a pool writes to it once it opens.")
    return found, notices


class _UnknownFieldError(ValueError):
    """An entry, or a value in one, has a field that this version does not have."""


def _required(kind: Any) -> frozenset[str]:
    """Return the fields of a dataclass without defaults."""
    return frozenset(name for name, default in _declared(kind) if default is _REQUIRED)


def _record(said: Any, number: int, path: Path) -> LogHeader | AutoscalerStarted | CooldownStarted | RecordedEvaluation:
    kinds: Mapping[str, Any] = {
        "pool": LogHeader,
        "ready": AutoscalerStarted,
        "cooldown": CooldownStarted,
        "evaluation": RecordedEvaluation,
    }
    if not isinstance(said, dict) or "kind" not in said:
        raise SpecError(
            f"Line {number} of '{path}' is not an entry of a decision log, so the file is damaged; remove this line "
            "and the rest."
        )
    kind = str(said.pop("kind"))
    if kind not in kinds:
        raise SpecError(
            f"Line {number} of '{path}' is an entry of kind {kind!r}, which this version of Skyward does not know: "
            "replay the log with the version that wrote it."
        )
    if kind == "pool" and said.get("format") != FORMAT:
        raise SpecError(
            f"Line {number} of '{path}' has format {said.get('format')!r}, but this version of Skyward reads format "
            f"{FORMAT}: replay the log with the version that wrote it."
        )
    try:
        read = reader_of(kinds[kind])
        record: LogHeader | AutoscalerStarted | CooldownStarted | RecordedEvaluation = read(said)
    except _UnknownFieldError as error:
        raise SpecError(
            f"Line {number} of '{path}' is not of this version of Skyward ({error}): replay the log with the version "
            "that wrote it."
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        missing = sorted(_required(kinds[kind]) - said.keys())
        what = f"it lacks {missing[0]!r}" if missing else "it has a value of another type than its field"
        raise SpecError(
            f"Line {number} of '{path}' is a damaged entry ({what}): remove this line and the rest, or replay the log "
            "with the version of Skyward that wrote it."
        ) from error
    return record


@cache
def reader_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that makes a value of a type from JSON.

    Raises:
        TypeError: values of this type are not read.
    """
    if isinstance(kind, TypeAliasType):
        return reader_of(kind.__value__)
    if kind is float:
        return float
    if kind in _AS_IN_JSON or get_origin(kind) is Literal:
        return lambda said: said
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_reader(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return _union_reader(arguments)
    if origin is tuple and arguments[1:] != (...,):
        each = tuple(map(reader_of, arguments))
        return lambda said: tuple(read(item) for read, item in zip(each, said, strict=True))
    if origin in (tuple, Sequence, frozenset, list, Iterable):
        read, collect = reader_of(arguments[0]), {frozenset: frozenset, list: list}.get(origin, tuple)
        return lambda said: collect(map(read, said))
    if origin is not None and issubclass(origin, Mapping):
        key, item = map(reader_of, arguments)
        return lambda said: {key(name): item(value) for name, value in _pairs(said)}
    raise TypeError(f"{kind} is not read from a decision log")


def _union_reader(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return a reader for one of several types: all of them are as in JSON, or only one besides None is not."""
    readers = {kind: reader_of(kind) for kind in kinds if kind is not NoneType}
    special = [read for kind, read in readers.items() if get_origin(kind) is not Literal and kind not in _AS_IN_JSON]
    if not special:
        return lambda said: said
    if len(readers) > 1:
        raise TypeError(f"one of {', '.join(map(str, readers))} is not read from a decision log")
    (read,) = special
    return lambda said: None if said is None else read(said)


def _pairs(said: Any) -> Iterator[tuple[Any, Any]]:
    yield from said.items() if isinstance(said, dict) else said


def _dataclass_reader(kind: type[Any]) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {each.name: reader_of(hints[each.name]) for each in fields(kind) if each.init}

    def read(said: dict[str, Any]) -> Any:
        if unknown := said.keys() - readers.keys():
            raise _UnknownFieldError(f"it has an unknown field {min(unknown)!r}")
        return kind(**{name: readers[name](value) for name, value in said.items()})

    return read
