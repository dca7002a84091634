"""What a bootstrap says of itself while it runs, read back from the lines that arrive."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

__all__ = [
    "PHASES",
    "Event",
    "Facts",
    "Missing",
    "Phase",
    "PhaseEvent",
    "Ready",
    "Waiting",
    "read_event",
    "read_events",
    "read_facts",
]

type Phase = Literal["env", "apt", "uv", "deps", "skyward", "includes", "plugins", "worker"]
type Happening = Literal["started", "completed", "skipped", "failed"]

PHASES: tuple[Phase, ...] = get_args(Phase.__value__)
"""In the order in which they run."""

_HAPPENINGS: tuple[Happening, ...] = get_args(Happening.__value__)


@dataclass(frozen=True, slots=True)
class PhaseEvent:
    """One step of one phase.

    Attributes:
        elapsed: seconds that the phase took; 0 where it has started or was skipped.
        deadline: seconds that it has, or had; 0 where it ended well.
        late: whether it failed because its deadline had passed.
        status: of the command that failed.
        lines: the last that it printed, where it failed.
    """

    event: Happening
    phase: Phase
    elapsed: float = 0.0
    deadline: float = 0.0
    late: bool = False
    status: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that the node does not hold yet, by the SHA-256 of its content."""

    digest: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another bootstrap of the same environment is at work on the same machine."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an environment is made of.

    Attributes:
        python: its version, such as "3.13.1".
        executable: absolute path of its interpreter.
        packages: version by normalised name of each installed distribution.
        variables: what tasks are to find in their environment: `Image.env`, and the values of `Image.shell_vars`.
    """

    python: str
    executable: str
    packages: Mapping[str, str]
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ready:
    """The environment is there. `directory` is that of Skyward on the node, absolute."""

    directory: str
    facts: Facts


type Event = PhaseEvent | Missing | Waiting | Ready


def read_facts(said: Mapping[str, Any]) -> Facts:
    """The facts that a node tells as JSON."""
    return Facts(said["python"], said["executable"], dict(said["packages"]), dict(said["variables"]))


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """The events among `lines`, in order. What else is printed, and a line that was cut, is left out."""
    return (event for line in lines if (event := read_event(line)) is not None)


def read_event(line: str) -> Event | None:
    """The event that a line tells of; None where it tells of none."""
    start = line.find('{"type":"')  # a banner may end without a line break
    if start < 0:
        return None
    try:
        return _event(json.loads(line[start:]))
    except (ValueError, KeyError, TypeError, AttributeError):  # what another program printed
        return None


def _event(said: dict[str, Any]) -> Event | None:
    match said["type"]:
        case "phase":
            return _phase(said)
        case "missing":
            return Missing(str(said["digest"]))
        case "waiting":
            return Waiting()
        case "ready":
            return Ready(str(said["directory"]), read_facts(said["facts"]))
    return None


def _phase(said: dict[str, Any]) -> PhaseEvent | None:
    event, phase = said["event"], said["phase"]
    if event not in _HAPPENINGS or phase not in PHASES:
        return None
    return PhaseEvent(
        event=event,
        phase=phase,
        elapsed=float(said.get("elapsed", 0)),
        deadline=float(said.get("deadline", 0)),
        late=bool(said.get("late", False)),
        status=int(said.get("status", 0)),
        lines=tuple(line for line in str(said.get("error", "")).splitlines() if line.strip()),
    )
