"""Commands on pools, their nodes and their tasks."""

from typing import Final

from skyward.commands import reading
from skyward.commands.command import (
    CELL,
    COMMAND,
    KEPT,
    NODE,
    NODES,
    ORPHAN,
    POOL,
    POOL_OPTION,
    SCRIPT,
    Argument,
    Command,
    Form,
    InTerminal,
)
from skyward.commands.option import Option
from skyward.commands.table import run_options
from skyward.commands.table.pool_options import BUDGET, POOL_OPTIONS, UPDATE_OPTIONS

__all__ = ["JSON", "POOL_COMMANDS", "YES"]

JSON: Final = Option(("--json",), "json", "print JSON in place of a table")
_LINES: Final = Option(("--json",), "json", "print JSON, one object on each line")

_NAME = Argument("pool", POOL)
_NODE = Argument("node", NODE, required=True)
_NUMBER = Argument("number", CELL)
_ALL = Option(("-a", "--all"), "every", "every one")
_QUIET = Option(("--quiet",), "quiet", "show no progress")
YES = Option(("-y", "--yes"), "yes", "do not ask")
_GROUP = Option(("--group",), "group", "the group whose nodes change, in a pool of several", "NAME")
_WAIT = Option(("--wait",), "wait", "return when the nodes are active")
_WAIT_FREE = Option(("--wait",), "wait", "wait until no other process uses the pool")
_TASK = Option(
    ("--task",), "task", "a task", "N", reading.count, "the number of a task in `%sky tasks`", is_number=True
)
_CELL = Option(
    ("--cell",), "cell", "a cell", "N", reading.count, "the number of a cell, as it stands beside it", is_number=True
)
_RANK = Option(
    ("--node",), "node", "only this node", "N", reading.rank, "the rank of a node, such as 0", is_number=True
)
_LEFT = Option(
    ("--pool",),
    "pool",
    "run on this pool: one that `skyward up --detach` left, which stays, or else one of skyward.toml",
    "NAME",
    takes="the name of a pool",
)


def _inserted(name: str, question: str) -> tuple[Form, ...]:
    """Return the form of a command that prints something about a pool: the palette inserts its line."""
    return (Form(("pool",), f"insert-{name}", f"Insert %sky {name}…", question, "pool", is_line=True),)


RUN = Command(
    "run",
    "run a Python script on a node: open a pool, stream the output, close, and exit with the script's status",
    in_notebooks=False,
    arguments=(Argument("script", SCRIPT, required=True),),
    options=(
        _LEFT,
        run_options.ON,
        run_options.FILE,
        run_options.SYNC,
        run_options.FETCH,
        run_options.FILE_LIMIT,
        run_options.TIMEOUT,
        _WAIT_FREE,
        _QUIET,
    ),
    collected=POOL_OPTIONS,
    slow=True,
    example="train.py --nodes 2 --gpu A100 -- --epochs 3",
    terminal=InTerminal(
        description="Run a Python script on a node of a new pool, with the local modules that it imports, and write "
        "its output here as it comes. The pool is closed when the script ends, and the exit status is that of the "
        "script. Ctrl-C stops the script and gives the nodes back; a second Ctrl-C leaves the nodes to their lease.",
        rest="ARGS",
    ),
)
EXEC = Command(
    "exec",
    "run a command in the environment of the nodes of a pool that `skyward up --detach` left",
    in_notebooks=False,
    arguments=(Argument("pool", POOL, required=True),),
    options=(run_options.ON, run_options.TIMEOUT, BUDGET, _WAIT_FREE),
    slow=True,
    example="train -- nvidia-smi",
    terminal=InTerminal(
        description="Run a command on a node, in the environment of its tasks and in the folder of its scripts, and "
        "exit with its status. One word is a line for `sh`; several are the program and its arguments.",
        rest="COMMAND",
    ),
)
UP = Command(
    "up",
    "open a pool and return it",
    arguments=(_NAME,),
    options=(_QUIET,),
    collected=POOL_OPTIONS,
    forms=(Form(("pool", "options"), "new-pool", "New Pool…"),),
    slow=True,
    terminal=InTerminal(
        help="open a pool, and show its nodes until Ctrl-C gives them back",
        description="Open a pool and show its nodes, until Ctrl-C gives them back. With --detach, leave the nodes to "
        "their lease (--ttl), for `skyward run --pool`, `skyward exec` and `sky.attach`.",
        arguments=(Argument("pool", POOL, required=True),),
        options=(
            Option(("-d", "--detach"), "detach", "return once the nodes are ready, and leave them to their lease"),
        ),
        example="train --nodes 2 --gpu A100",
    ),
)
DOWN = Command(
    "down",
    "close a pool and terminate its machines",
    arguments=(_NAME,),
    options=(_ALL,),
    exclusive=True,
    forms=(
        Form(("pool",), "stop-pool", "Stop a Pool…", "Stop which pool?", "pool", in_widget=True),
        Form(("every",), "stop-all", "Stop All Pools of This Notebook"),
    ),
    slow=True,
    terminal=InTerminal(
        help="terminate the machines of pools, and close these",
        description="Terminate the machines of pools whose process is gone. A pool that a living process owns is "
        "closed only with --force: that process is asked to close it, and its tasks are stopped.",
        arguments=(Argument("pool", POOL, several=True),),
        options=(YES, Option(("-f", "--force"), "force", "also pools that living processes own, which are asked")),
        example="train -y",
    ),
)
STATUS = Command(
    "status",
    "show pools, nodes, and cells in the background",
    arguments=(_NAME,),
    forms=_inserted("status", "Show the status of which pool?"),
    terminal=InTerminal(
        help="show the pools of this user: their owners, machines, leases and costs",
        description="Show the pools of this user as the journal on this computer has them: the process that owns each, "
        "its machines, how long its nodes outlive that process, its costs, and where it is.",
        options=(JSON,),
    ),
)
POOLS = Command("pools", "show the pools")
DECISIONS = Command(
    "decisions",
    "show why a pool was scaled up or down",
    arguments=(_NAME,),
    forms=_inserted("decisions", "Show the scaling decisions of which pool?"),
)
SCALE = Command(
    "scale",
    "change how many nodes a pool has: 4, 2:16; with --wait, wait for them",
    arguments=(_NAME, Argument("nodes", NODES, required=True)),
    options=(_GROUP, _WAIT, _QUIET),
    example="default 4",
    forms=(Form(("pool", "nodes"), "scale-pool", "Scale a Pool…", "Scale which pool?", "pool", in_widget=True),),
)
UPDATE = Command(
    "update",
    "change the packages or hardware of a pool, and replace its nodes one by one",
    arguments=(_NAME,),
    options=(_GROUP,),
    collected=UPDATE_OPTIONS,
    example="default --pip torch",
    slow=True,
)
ATTACH = Command(
    "attach",
    "attach to the pool of a killed or restarted kernel",
    arguments=(Argument("pool", ORPHAN),),
    options=(BUDGET,),
    forms=(Form(("pool",), "attach", "Reattach a Pool…", "Reattach which pool?", "orphan"),),
    slow=True,
)
REAP = Command(
    "reap",
    "terminate the machines of killed kernels and scripts",
    arguments=(Argument("pools", ORPHAN, several=True),),
    options=(Option(("--warm",), "warm", "terminate machines that closed pools keep warm, too"),),
    forms=(Form(("pools",), "reap", "Stop an Orphaned Pool…", "Stop which pool?", "orphan"),),
    slow=True,
    terminal=InTerminal(
        help="terminate the machines of pools whose process is gone",
        description="Terminate the machines of pools whose process was killed, and what carries the tag of this "
        "installation at providers with credentials. `sky.attach(NAME)` takes a pool over.",
        options=(
            Option(("--dry-run",), "dry_run", "only list them"),
            Option(("--forget",), "forget", "drop pools that cannot be reaped, and never requested a machine"),
            JSON,
        ),
    ),
)
KEPT_COMMAND = Command(
    "kept",
    "show the values that nodes keep for later cells; with a name, return its handle",
    arguments=(Argument("name", KEPT),),
    options=(POOL_OPTION,),
    forms=(Form((), "insert-kept", "Insert %sky kept", is_line=True),),
)
DROP = Command(
    "drop",
    "delete values that nodes keep, by name",
    arguments=(Argument("names", KEPT, required=True, several=True),),
    options=(POOL_OPTION,),
    example="model",
)
DRAIN = Command(
    "drain",
    "let a node finish its tasks, then terminate it; an elastic pool may launch another for waiting tasks",
    arguments=(_NAME, _NODE),
    example="default 3",
    forms=(Form(("pool", "node"), "drain-node", "Drain a Node…", "Drain which node?", "drainable node"),),
)
LOGS = Command(
    "logs",
    "show the startup log of a node, in full if the start failed",
    arguments=(_NAME, _NODE),
    example="default 3",
    forms=(
        Form(
            ("pool", "node"),
            "show-log",
            "Show the Startup Log of a Node…",
            "Show the startup log of which node?",
            "node",
            is_line=True,
        ),
    ),
    terminal=InTerminal(
        help="show what the nodes of a pool have logged, and what its scripts have printed",
        description="Show the events of a pool that this computer has logged, and what its nodes keep: the logs of "
        "their workers, and the output of scripts and commands that ran there.",
        arguments=(Argument("pool", POOL, required=True),),
        options=(Option(("-f", "--follow"), "follow", "go on until Ctrl-C"), _RANK, _LINES),
        example="train --node 1",
    ),
)
SSH = Command(
    "ssh",
    "open a shell on a node of a pool",
    in_notebooks=False,
    arguments=(Argument("pool", POOL, required=True), Argument("node", NODE)),
    example="train 1",
    terminal=InTerminal(
        description="Open a shell on a node, the head if no rank is given: over SSH, or by the provider's own command. "
        "A shell does not keep its node: at the end of the lease it is terminated with the shell.",
    ),
)
TASKS = Command(
    "tasks",
    "show the tasks of a pool and the cells that sent them",
    arguments=(_NAME,),
    forms=(
        Form(("pool",), "insert-tasks", "Insert %sky tasks…", "Show the tasks of which pool?", "pool", is_line=True),
    ),
)
CANCEL = Command(
    "cancel",
    "cancel a background cell by its number in `%sky status`, or tasks by their numbers in `%sky tasks`",
    arguments=(_NUMBER,),
    options=(_ALL, _TASK, _CELL, POOL_OPTION),
    exclusive=True,
    forms=(
        Form(("pool", "task"), "cancel-task", "Stop a Task…", "Stop which task?", "task"),
        Form(("cell",), "cancel-cell", "Stop All Tasks of a Cell…", "Stop the tasks of which cell?", "cell"),
    ),
)
SHOW = Command(
    "show",
    "show the output and progress of a background cell again, and return its handle",
    arguments=(_NUMBER,),
)
CONFIG = Command(
    "config",
    "show every setting of cells and of a pool, with its value and its source",
    arguments=(_NAME,),
    forms=_inserted("config", "Show the settings of which pool?"),
    terminal=InTerminal(
        help="show every setting of pools, with its value and its source",
        description="Show every setting of a pool, or of the pools of skyward.toml, with its value and its source.",
        options=(JSON,),
    ),
)
HELP = Command(
    "help",
    "show this help, or that of one command",
    arguments=(Argument("about", COMMAND),),
    forms=(Form((), "insert-help", "Insert %sky help", is_line=True),),
)

POOL_COMMANDS: Final = (
    *(RUN, EXEC, UP, DOWN, STATUS, LOGS, SSH, REAP, CONFIG, POOLS, DECISIONS, SCALE, UPDATE, ATTACH),
    *(KEPT_COMMAND, DROP, DRAIN, TASKS, CANCEL, SHOW, HELP),
)
"""The commands, those of the command line in the order of its help."""
