"""What the panel and the kernel say to each other: the one schema, from which `labextension/src/protocol.ts` is made.

The kernel speaks on a state channel that it alone writes to: `Snapshot`, then `Delta` with consecutive numbers, and to
each command an `Answer`, or what was asked for. The panel speaks on a command comm that it alone writes to. A panel
that finds a number missing sends `Refresh`.

A message with another `version` is not for this panel; the field grows when one side could misread the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from skyward_kernel.rows import OutputRow

__all__ = [
    "COMMANDS",
    "COMMAND_TARGET",
    "MESSAGES",
    "PARTS",
    "QUESTIONS",
    "REPLIES",
    "STATE_COMM",
    "VERSION",
    "VIEW_TARGET",
    "Answer",
    "AskOutput",
    "AskPrice",
    "AskShell",
    "AskStartLog",
    "Attach",
    "CancelCell",
    "CancelTask",
    "Command",
    "Delta",
    "Drain",
    "FormField",
    "NewPool",
    "OfferView",
    "Price",
    "Printed",
    "Question",
    "Reap",
    "Refresh",
    "Reply",
    "Scale",
    "Shell",
    "Snapshot",
    "StartLog",
    "StopAll",
    "StopPool",
]

VERSION = 4
STATE_COMM = "skyward.state"
"""Id of the comm that the kernel speaks on. It is never opened: the panel listens for its messages."""

COMMAND_TARGET = "skyward.command"
"""Target of the comm that the panel speaks on. The kernel never answers on it: see reference/jupyter.md."""

VIEW_TARGET = "skyward.view"
"""The same for the live view of one pool: what it says goes by there where its front end has subshells."""

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
    """A kind of machine that fits, and what one costs an hour, in USD."""

    place: str
    per_hour: float


PARTS = (FormField, OfferView)

# From the kernel.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything. `session` is another one in every kernel process."""

    session: str
    seq: int
    tables: Mapping[str, Mapping[str, Mapping[str, object]]]
    form: tuple[FormField, ...] = ()
    version: int = VERSION
    kind: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True, slots=True)
class Delta:
    """What is different since message `seq - 1`: rows that are new or other, and keys of rows that are gone."""

    session: str
    seq: int
    tables: Mapping[str, Mapping[str, Mapping[str, object]]]
    gone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: int = VERSION
    kind: Literal["delta"] = "delta"


@dataclass(frozen=True, slots=True)
class Answer:
    """To a command: it was heard, carried out, or refused, with a sentence for the user."""

    id: str
    state: Literal["heard", "done", "refused"]
    text: str = ""
    version: int = VERSION
    kind: Literal["answer"] = "answer"


@dataclass(frozen=True, slots=True)
class Price:
    """To `AskPrice`: USD an hour for the fewest and the most nodes, and what fits, what is tried first coming first."""

    id: str
    min: int
    max: int
    least: float
    most: float
    offers: tuple[OfferView, ...]
    version: int = VERSION
    kind: Literal["price"] = "price"


@dataclass(frozen=True, slots=True)
class Shell:
    """To `AskShell`: the folder that a terminal opens in, and the line that is then entered; either may be empty."""

    id: str
    folder: str
    line: str
    version: int = VERSION
    kind: Literal["shell"] = "shell"


@dataclass(frozen=True, slots=True)
class Printed:
    """To `AskOutput`: the last that was written."""

    id: str
    rows: tuple[OutputRow, ...]
    version: int = VERSION
    kind: Literal["printed"] = "printed"


@dataclass(frozen=True, slots=True)
class StartLog:
    """To `AskStartLog`: all that is known of how a node started; it may go on unless that is `over`."""

    id: str
    text: str
    over: bool
    version: int = VERSION
    kind: Literal["start-log"] = "start-log"


type Reply = Answer | Price | Shell | Printed | StartLog

REPLIES = (Answer, Price, Shell, Printed, StartLog)

MESSAGES = (Snapshot, Delta, *REPLIES)

# To the kernel. `id` is the panel's own, for the answer.


@dataclass(frozen=True, slots=True)
class _Sent:
    id: str


@dataclass(frozen=True, slots=True)
class _ToPool(_Sent):
    pool: str


@dataclass(frozen=True, slots=True)
class _ToNode(_ToPool):
    node: int


@dataclass(frozen=True, slots=True)
class Refresh(_Sent):
    """Send a snapshot."""

    kind: Literal["refresh"] = "refresh"


@dataclass(frozen=True, slots=True)
class CancelTask(_ToPool):
    """Stop a task. `%sky cancel --task N --pool NAME`."""

    task: int
    kind: Literal["cancel-task"] = "cancel-task"


@dataclass(frozen=True, slots=True)
class CancelCell(_Sent):
    """Stop all tasks of a cell. `%sky cancel --cell N`."""

    cell: int
    kind: Literal["cancel-cell"] = "cancel-cell"


@dataclass(frozen=True, slots=True)
class Scale(_ToPool):
    """Other bounds. `%sky scale NAME MIN:MAX`."""

    min: int
    max: int
    kind: Literal["scale"] = "scale"


@dataclass(frozen=True, slots=True)
class Drain(_ToNode):
    """Let a node finish its tasks and go. `%sky drain NAME NODE`."""

    kind: Literal["drain"] = "drain"


@dataclass(frozen=True, slots=True)
class StopPool(_ToPool):
    """Give the machines of a pool back. `%sky down NAME`."""

    kind: Literal["stop-pool"] = "stop-pool"


@dataclass(frozen=True, slots=True)
class StopAll(_Sent):
    """Give all machines back. `%sky down --all`."""

    kind: Literal["stop-all"] = "stop-all"


@dataclass(frozen=True, slots=True)
class NewPool(_Sent):
    """Open a pool. `%sky up NAME OPTIONS`; `options` are flags to the texts behind them."""

    name: str
    options: Mapping[str, str]
    kind: Literal["new-pool"] = "new-pool"


@dataclass(frozen=True, slots=True)
class Attach(_ToPool):
    """Take over a pool that another process has left behind. `%sky attach NAME`."""

    kind: Literal["attach"] = "attach"


@dataclass(frozen=True, slots=True)
class Reap(_ToPool):
    """Give back what another process has left behind; `pool` is its id. `%sky reap ID`."""

    kind: Literal["reap"] = "reap"


@dataclass(frozen=True, slots=True)
class AskPrice(_Sent):
    """Say what `NewPool` with these would cost; nothing is started. Answered with `Price`."""

    name: str
    options: Mapping[str, str]
    kind: Literal["ask-price"] = "ask-price"


@dataclass(frozen=True, slots=True)
class AskShell(_ToNode):
    """Say how a terminal gets to a node. Answered with `Shell`."""

    kind: Literal["ask-shell"] = "ask-shell"


@dataclass(frozen=True, slots=True)
class AskOutput(_ToPool):
    """Send the last that a node has written, or a task; None for any. Answered with `Printed`."""

    node: int | None
    task: int | None
    kind: Literal["ask-output"] = "ask-output"


@dataclass(frozen=True, slots=True)
class AskStartLog(_ToNode):
    """Send what a node said while it started, the last few times: `%sky logs NAME NODE`. Answered with `StartLog`."""

    kind: Literal["ask-start-log"] = "ask-start-log"


type Question = AskPrice | AskShell | AskOutput | AskStartLog

QUESTIONS = (AskPrice, AskShell, AskOutput, AskStartLog)
"""Commands that change nothing."""

type Command = (
    Refresh | CancelTask | CancelCell | Scale | Drain | StopPool | StopAll | NewPool | Attach | Reap | Question
)

COMMANDS = (
    *(Refresh, CancelTask, CancelCell, Scale, Drain, StopPool, StopAll, NewPool, Attach, Reap),
    *QUESTIONS,
)
