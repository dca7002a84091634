"""Commands: a name, arguments and options, a sentence of help, the handler, and where it is offered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from skyward.commands import reading
from skyward.commands.option import Option
from skyward.specs import Nodes

__all__ = [
    *("CELL", "CLOUD", "COMMAND", "FILE", "IMAGE", "KEPT", "NODE", "NODES", "ORPHAN", "PLACE", "POOL", "POOL_OPTION"),
    *("SCRIPT", "SHELL"),
    *("Argument", "Arguments", "Choice", "Command", "Form", "InTerminal", "Kind", "Outcome", "handler_of"),
]

type Arguments = Mapping[str, Any]
"""Values of the arguments and options of a command, by name. Those that were not given are missing."""

type Choice = Literal["", "pool", "node", "drainable node", "task", "cell", "orphan"]
"""Choice of the user in the command palette before a command runs; empty for none."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of the arguments of commands.

    Attributes:
        name: identifies the kind, for completion.
        metavar: placeholder in the help.
        phrase, plural: its description in error messages.
        read: parses the value; raises `ValueError` if the text is invalid.
        is_number: True if the value is an integer, which a message of a front end has as such.
    """

    name: str
    metavar: str
    phrase: str
    plural: str = ""
    read: Callable[[str], Any] = str
    is_number: bool = False


POOL = Kind("pool", "NAME", "the name of a pool", "the names of pools")
ORPHAN = Kind("orphan", "NAME", "the name of an orphaned pool", "the names of orphaned pools")
NODE = Kind("node", "NODE", "the rank of a node", read=reading.rank, is_number=True)
NODES = Kind("nodes", "NODES", "a number of nodes", read=Nodes.parse)
KEPT = Kind("kept", "NAME", "the name of a kept value", "the names of kept values")
CLOUD = Kind("provider", "PROVIDER", "the name of a provider", "the names of providers")
CELL = Kind("cell", "CELL", "the number of a background cell")
COMMAND = Kind("command", "COMMAND", "the name of a command")
FILE = Kind("file", "FILE", "a file")
IMAGE = Kind("image", "ID", "the id of an image", "ids of images")
SCRIPT = Kind("file", "SCRIPT", "a script")
PLACE = Kind("place", "PLACE", "a bucket and a key, such as s3://bucket/folder")
SHELL = Kind("shell", "SHELL", "bash, zsh or fish")

POOL_OPTION = Option(("--pool",), "pool", "the pool to run on; it is opened on first use", "NAME", takes="a name")
"""Option for the name of a pool. A command that takes the name as an argument takes this option instead, too."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument; if it is not required and words are missing, it is left out."""

    name: str
    kind: Kind
    required: bool = False
    several: bool = False

    @property
    def usage(self) -> str:
        """Its place in the usage of the command: `[NAME]`, `NODES`, `NAME ...`."""
        text = f"{self.kind.metavar} ..." if self.several else self.kind.metavar
        return text if self.required else f"[{text}]"

    @property
    def phrase(self) -> str:
        """Its description in error messages."""
        return self.kind.plural if self.several else self.kind.phrase


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which the panel, the widget and the command palette offer a command.

    Attributes:
        arguments: names of the arguments, all of which are given.
        entry: identifies its entry of the palette; empty if it has none of its own.
        label, question: text of the entry, and of the dialog in which the user chooses.
        choice: what the user chooses.
        is_line: True if the `%sky` line is inserted into the notebook; False if the kernel runs the command at once.
        in_widget: True if the live view of a pool offers it.
    """

    arguments: tuple[str, ...] = ()
    entry: str = ""
    label: str = ""
    question: str = ""
    choice: Choice = ""
    is_line: bool = False
    in_widget: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Answer of a command.

    Attributes:
        text: a sentence for the user.
        table: rows that belong to it, as text.
        value: the object that a cell returns.
        failed: True if the command did not achieve all that was asked; an error says that it achieved nothing.
        is_silent: True if a cell prints nothing, because it displays the value.
    """

    text: str = ""
    table: str = ""
    value: Any = None
    failed: bool = False
    is_silent: bool = False

    @property
    def printed(self) -> str:
        """The text that a cell or a terminal prints."""
        return "" if self.is_silent else "\n".join(filter(None, (self.text, self.table)))


@dataclass(frozen=True, slots=True)
class InTerminal:
    """A command on the command line, where it differs from that of notebooks.

    Attributes:
        help: its description in the list of commands; empty for the same.
        description: what it does, in full, for its own help; empty for that in the list.
        arguments: its positional arguments; None for the same.
        options: further options.
        without: targets of options that only notebooks have.
        example: a line that follows the name; empty for the same.
        rest: placeholder of the words after `--`, which are passed on as they are; empty for none.
        exclusive: True if at most one of its arguments and options is given.
    """

    help: str = ""
    description: str = ""
    arguments: tuple[Argument, ...] | None = None
    options: tuple[Option, ...] = ()
    without: frozenset[str] = frozenset()
    example: str = ""
    rest: str = ""
    exclusive: bool = False


def _unhandled(context: object, **arguments: Any) -> Outcome:
    raise NotImplementedError("the table declares commands; `handler_of` binds a handler to one")


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: the subcommand.
        help: its description in the list of commands.
        arguments: positional arguments, in order.
        options: options, whose values are arguments by their target.
        collected: options whose values are collected in the argument `options`, a mapping by target.
        exclusive: True if at most one of its arguments and options is given.
        example: a line that follows the name, for error messages.
        forms: ways in which front ends other than cells offer it.
        slow: True if it waits for machines or providers.
        description: what it does, in full; empty for `help`.
        rest: placeholder of the words after `--`, which are passed on as they are; empty for none.
        terminal: the command on the command line; None if that does not have it.
        in_notebooks: False if notebooks do not have it.
        handler: runs it: called with a context, and the arguments by name.
    """

    name: str
    help: str
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    collected: tuple[Option, ...] = ()
    exclusive: bool = False
    example: str = ""
    forms: tuple[Form, ...] = ()
    slow: bool = False
    description: str = ""
    rest: str = ""
    terminal: InTerminal | None = None
    in_notebooks: bool = True
    handler: Callable[..., Outcome] = _unhandled

    @property
    def usage(self) -> str:
        """Its arguments and options: `[NAME] NODES [--wait]`. The option `--pool` goes without saying."""
        flags = [f"{each.name} {each.metavar}".rstrip() for each in self.options if each.target != POOL_OPTION.target]
        if self.exclusive:
            return f"[{' | '.join((*(each.kind.metavar for each in self.arguments), *flags))}]"
        words = [each.usage for each in self.arguments]
        return " ".join(words + (["[options]"] if self.collected else [f"[{flag}]" for flag in flags]))

    @property
    def takes_pool(self) -> bool:
        """True if its first argument is the name of a pool, which may be given as `--pool NAME`."""
        return any(each.kind in (POOL, ORPHAN) for each in self.arguments[:1])

    @property
    def flags(self) -> tuple[Option, ...]:
        """All its options."""
        return (*self.collected, *self.options, *((POOL_OPTION,) if self.takes_pool else ()))

    def on_command_line(self) -> "Command":
        """Return the command as the command line has it."""
        own = self.terminal or InTerminal()
        options = (each for each in self.options if each.target not in own.without)
        return replace(
            self,
            help=own.help or self.help,
            description=own.description or self.description,
            arguments=self.arguments if own.arguments is None else own.arguments,
            options=(*options, *own.options),
            exclusive=own.exclusive,
            example=own.example or self.example,
            rest=own.rest,
        )

    def run(self, context: object, arguments: Arguments) -> Outcome:
        """Run the command.

        Raises:
            SkywardError: it failed.
        """
        return self.handler(context, **arguments)


def handler_of(declared: Command) -> Callable[[Callable[..., Outcome]], Command]:
    """Make a function the handler of a declared command."""

    def decorate(handler: Callable[..., Outcome]) -> Command:
        return replace(declared, handler=handler)

    return decorate
