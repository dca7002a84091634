"""Schema of the messages between panel and kernel, from which `labextension/src/protocol.ts` is generated.

Only the kernel writes to the state comm: a `PanelSnapshot`, then `Delta` messages with consecutive numbers, and a reply
to each request: a `CommandReply`, or the requested data. Only the panel writes to the command comm. A panel that misses
a number sends `Refresh`.

A panel ignores messages with another `version`, which is incremented with every incompatible change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from skyward.frontends.commands import wrong
from skyward.frontends.views import OutputRow

__all__ = [
    "COMMAND_TARGET",
    "MESSAGES",
    "PARTS",
    "QUERIES",
    "REPLIES",
    "REQUESTS",
    "STATE_COMM",
    "VERSION",
    "VIEW_TARGET",
    "ArgumentValue",
    "AskCheck",
    "AskOutput",
    "AskPrice",
    "AskShell",
    "AskStartLog",
    "Checked",
    "CommandReply",
    "Delta",
    "Dismiss",
    "FormField",
    "Keys",
    "OfferView",
    "PanelSnapshot",
    "Price",
    "Printed",
    "Query",
    "Refresh",
    "Reply",
    "Request",
    "RunCommand",
    "ShellReply",
    "StartLog",
    "Tables",
]

VERSION = 5
STATE_COMM = "skyward.state"
"""Id of the comm that the kernel writes to. It is never opened: the panel listens for its messages."""

COMMAND_TARGET = "skyward.command"
"""Target of the comm that the panel writes to. The kernel never answers on it."""

VIEW_TARGET = "skyward.view"
"""Target of the comm that the live view of a pool writes to, in front ends that support subshells."""

type Tables = Mapping[str, Mapping[str, Mapping[str, object]]]
"""Encoded rows by table and key. In TypeScript, each table has the type of its row: see `rows.ROWS`."""

type Keys = Mapping[str, tuple[str, ...]]
"""Keys of rows, by table."""

# Parts of messages.


@dataclass(frozen=True, slots=True)
class FormField:
    """An option of `%sky up`, for the form of a new pool."""

    flag: str
    metavar: str
    help: str
    choices: tuple[str, ...] = ()
    takes: str = ""


@dataclass(frozen=True, slots=True)
class OfferView:
    """A matching offer: its hardware, its price in USD per hour, and the usual seconds until a node is active."""

    place: str
    per_hour: float
    hardware: str = ""
    start: float | None = None


PARTS = (FormField, OfferView)

# From the kernel.


@dataclass(frozen=True, slots=True)
class PanelSnapshot:
    """All rows. `session` is unique to the kernel process."""

    session: str
    seq: int
    tables: Tables
    form: tuple[FormField, ...] = ()
    version: int = VERSION
    kind: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True, slots=True)
class Delta:
    """Changes since message `seq - 1`: new and changed rows, and keys of removed rows."""

    session: str
    seq: int
    tables: Tables
    gone: Keys = field(default_factory=dict)
    version: int = VERSION
    kind: Literal["delta"] = "delta"


@dataclass(frozen=True, slots=True)
class CommandReply:
    """Reply to a request: received ("heard"), executed ("done") or failed ("refused"), with a sentence for the user."""

    id: str
    state: Literal["heard", "done", "refused"]
    text: str = ""
    version: int = VERSION
    kind: Literal["answer"] = "answer"


@dataclass(frozen=True, slots=True)
class Checked:
    """Reply to `AskCheck`: sentences by the flag of the wrong option, `name`, or empty if the options conflict."""

    id: str
    wrong: Mapping[str, str]
    version: int = VERSION
    kind: Literal["checked"] = "checked"


@dataclass(frozen=True, slots=True)
class Price:
    """Reply to `AskPrice`: USD per hour for `min` and `max` nodes, and the matching offers in order of preference.

    `notes`: a sentence about each provider that did not list its offers.
    """

    id: str
    min: int
    max: int
    least: float
    most: float
    offers: tuple[OfferView, ...]
    notes: tuple[str, ...] = ()
    version: int = VERSION
    kind: Literal["price"] = "price"


@dataclass(frozen=True, slots=True)
class ShellReply:
    """Reply to `AskShell`: the folder of the terminal, and the command line to run in it; either may be empty."""

    id: str
    folder: str
    line: str
    version: int = VERSION
    kind: Literal["shell"] = "shell"


@dataclass(frozen=True, slots=True)
class Printed:
    """Reply to `AskOutput`: the latest output."""

    id: str
    rows: tuple[OutputRow, ...]
    version: int = VERSION
    kind: Literal["printed"] = "printed"


@dataclass(frozen=True, slots=True)
class StartLog:
    """Reply to `AskStartLog`: the startup log of a node; `over` if the node is not starting any more."""

    id: str
    text: str
    over: bool
    version: int = VERSION
    kind: Literal["start-log"] = "start-log"


type Reply = CommandReply | Checked | Price | ShellReply | Printed | StartLog

REPLIES = (CommandReply, Checked, Price, ShellReply, Printed, StartLog)

MESSAGES = (PanelSnapshot, Delta, *REPLIES)

type ArgumentValue = str | int | bool | tuple[str, ...] | Mapping[str, str]
"""Value of an argument of a command."""

# To the kernel. `id` is chosen by the panel, and repeated in the reply.


@dataclass(frozen=True, slots=True)
class _Sent:
    id: str


@dataclass(frozen=True, slots=True)
class _OfPool(_Sent):
    pool: str


@dataclass(frozen=True, slots=True)
class _OfNode(_OfPool):
    node: int


@dataclass(frozen=True, slots=True)
class Refresh(_Sent):
    """Send a snapshot."""

    kind: Literal["refresh"] = "refresh"


@dataclass(frozen=True, slots=True)
class Dismiss(_OfPool):
    """Stop showing a pool that failed to open."""

    kind: Literal["dismiss"] = "dismiss"


def _mapping(value: object, name: str) -> Mapping[str, ArgumentValue]:
    """Return a mapping, whose values are decoded as the command wants them."""
    return value if isinstance(value, Mapping) else wrong(name, "a mapping")


@dataclass(frozen=True, slots=True)
class RunCommand(_Sent):
    """Run a command of `%sky` with these arguments: see `skyward_kernel.commands.registry`."""

    command: str
    arguments: Annotated[Mapping[str, ArgumentValue], _mapping]
    kind: Literal["run"] = "run"


@dataclass(frozen=True, slots=True)
class AskCheck(_Sent):
    """Check the name and the options of a new pool; nothing is started. Answered with `Checked`."""

    name: str
    options: Mapping[str, str]
    kind: Literal["ask-check"] = "ask-check"


@dataclass(frozen=True, slots=True)
class AskPrice(_Sent):
    """Estimate the cost of a new pool with these options; nothing is started. Answered with `Price`."""

    name: str
    options: Mapping[str, str]
    kind: Literal["ask-price"] = "ask-price"


@dataclass(frozen=True, slots=True)
class AskShell(_OfNode):
    """Request the command that opens a terminal on a node. Answered with `ShellReply`."""

    kind: Literal["ask-shell"] = "ask-shell"


@dataclass(frozen=True, slots=True)
class AskOutput(_OfPool):
    """Request the latest output of a node or a task; None for any. Answered with `Printed`."""

    node: int | None
    task: int | None
    kind: Literal["ask-output"] = "ask-output"


@dataclass(frozen=True, slots=True)
class AskStartLog(_OfNode):
    """Request the logs of the last starts of a node: `%sky logs NAME NODE`. Answered with `StartLog`."""

    kind: Literal["ask-start-log"] = "ask-start-log"


type Query = AskCheck | AskPrice | AskShell | AskOutput | AskStartLog

QUERIES = (AskCheck, AskPrice, AskShell, AskOutput, AskStartLog)
"""Requests for data, which change nothing."""

type Request = Refresh | Dismiss | RunCommand | Query

REQUESTS = (Refresh, Dismiss, RunCommand, *QUERIES)
