"""Events of a bootstrap, parsed from its output."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from skyward.bootstrap.peers import MachineKind

__all__ = [
    "PHASES",
    "BootstrapEvent",
    "ClientPhase",
    "Facts",
    "MachineNeeds",
    "Missing",
    "Phase",
    "PhaseEvent",
    "Ready",
    "Unmade",
    "Waiting",
    "read_event",
    "read_events",
    "read_facts",
]

type NodePhase = Literal["env", "apt", "uv", "deps", "skyward", "includes", "plugins", "worker"]
type ClientPhase = Literal["collect", "send"]
"""Phases on the client, for a machine that cannot fetch what it needs: see `supplies`."""

type PeerPhase = Literal["fetch"]
"""The phase on a node that receives its environment from another one: see `peers`."""

type Phase = NodePhase | ClientPhase | PeerPhase

type EventKind = Literal["started", "completed", "skipped", "failed"]

PHASES: tuple[NodePhase, ...] = get_args(NodePhase.__value__)
"""Phases on the node, in the order in which they run."""

_EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind.__value__)


@dataclass(frozen=True, slots=True)
class PhaseEvent:
    """One event of one phase.

    Attributes:
        event: the kind of event.
        phase: the phase.
        elapsed: seconds that the phase took; 0 if it has just started or was skipped.
        deadline: its time limit in seconds; 0 if it succeeded.
        late: True if it failed because of its time limit.
        status: exit status of the failed command.
        lines: last lines of output, if it failed; remarks for the log of the start, if it began or completed.
    """

    event: EventKind
    phase: Phase
    elapsed: float = 0.0
    deadline: float = 0.0
    late: bool = False
    status: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A content that the node does not have yet, by its SHA-256."""

    digest: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Another bootstrap of the same environment is running on the same machine."""


@dataclass(frozen=True, slots=True)
class Unmade:
    """The machine has none of the packages, so another node may send them.

    Attributes:
        kind: kind of the machine.
        has_tools: True if it has a uv and a Python that can be used.
    """

    kind: MachineKind
    has_tools: bool


@dataclass(frozen=True, slots=True)
class MachineNeeds:
    """The machine cannot fetch all that the environment needs, so that the client has to send it.

    Attributes:
        reason: last line of the output of the attempt.
        kind: kind of the machine.
        has_uv, has_python: True if it has a uv, and a Python of the version, that can be used.
        has_packages: True if it can fetch packages, as far as is known.
        apt: names of system packages that it needs and does not have.
        project, requirements: the requirements, as files for uv, with the values of variables.
    """

    reason: str
    kind: MachineKind
    has_uv: bool
    has_python: bool
    has_packages: bool
    apt: str
    project: str = field(repr=False)
    requirements: str = field(repr=False)

    @property
    def lacking(self) -> str:
        """Words for the parts that it cannot fetch."""
        tools = [name for name, there in (("uv", self.has_uv), ("Python", self.has_python)) if not there]
        return " and ".join(tools) if self.has_packages else "packages"


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of an environment.

    Attributes:
        python: version, such as "3.13.1".
        executable: absolute path of its interpreter.
        packages: version by normalised name of each installed distribution.
        variables: environment variables for tasks: `Image.env`, and the values of `Image.shell_vars`.
    """

    python: str
    executable: str
    packages: Mapping[str, str]
    variables: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ready:
    """The environment is complete. `directory` is Skyward's absolute directory on the node."""

    directory: str
    facts: Facts


type BootstrapEvent = PhaseEvent | Missing | Waiting | Unmade | MachineNeeds | Ready


def read_facts(fields: Mapping[str, Any]) -> Facts:
    """Return the facts in a node's JSON."""
    return Facts(fields["python"], fields["executable"], dict(fields["packages"]), dict(fields["variables"]))


def read_events(lines: Iterable[str]) -> Iterator[BootstrapEvent]:
    """Return the events among `lines`, in order. Other output, and truncated lines, are skipped."""
    return (event for line in lines if (event := read_event(line)) is not None)


def read_event(line: str) -> BootstrapEvent | None:
    """Return the event in a line; None if there is none."""
    start = line.find('{"type":"')  # a banner may end without a line break
    if start < 0:
        return None
    try:
        return _event(json.loads(line[start:]))
    except (ValueError, KeyError, TypeError, AttributeError):  # output of another program
        return None


def _event(fields: dict[str, Any]) -> BootstrapEvent | None:
    match fields["type"]:
        case "phase":
            return _phase(fields)
        case "missing":
            return Missing(str(fields["digest"]))
        case "waiting":
            return Waiting()
        case "unmade":
            return Unmade(_kind(fields), bool(fields["tools"]))
        case "needs":
            return _needs(fields)
        case "ready":
            return Ready(str(fields["directory"]), read_facts(fields["facts"]))
    return None


def _kind(fields: dict[str, Any]) -> MachineKind:
    return MachineKind(str(fields["system"]), str(fields["machine"]), str(fields["libc"]), str(fields["processors"]))


def _needs(fields: dict[str, Any]) -> MachineNeeds:
    return MachineNeeds(
        reason=str(fields["reason"]),
        kind=_kind(fields),
        has_uv=bool(fields["uv"]),
        has_python=bool(fields["python"]),
        has_packages=bool(fields["packages"]),
        apt=str(fields["apt"]),
        project=str(fields["project"]),
        requirements=str(fields["requirements"]),
    )


def _phase(fields: dict[str, Any]) -> PhaseEvent | None:
    event, phase = fields["event"], fields["phase"]
    if event not in _EVENT_KINDS or phase not in (*PHASES, "fetch"):
        return None
    return PhaseEvent(
        event=event,
        phase=phase,
        elapsed=float(fields.get("elapsed", 0)),
        deadline=float(fields.get("deadline", 0)),
        late=bool(fields.get("late", False)),
        status=int(fields.get("status", 0)),
        lines=tuple(line for line in str(fields.get("error", "")).splitlines() if line.strip()),
    )
