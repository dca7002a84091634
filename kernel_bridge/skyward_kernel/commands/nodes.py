"""Commands on one node: draining it, and its startup log."""

from skyward.frontends.commands import NODE, Argument, Form, Outcome, command
from skyward_kernel.commands.arguments import NAME
from skyward_kernel.commands.context import Context

__all__ = ["drain", "logs"]

_NODE = Argument("node", NODE, required=True)


@command(
    "drain",
    "let a node finish its tasks, then terminate it; the pool shrinks by one",
    arguments=(NAME, _NODE),
    example="default 3",
    forms=(Form(("pool", "node"), "drain-node", "Drain a Node…", "Drain which node?", "drainable node"),),
)
def drain(context: Context, *, node: int, pool: str | None = None) -> Outcome:
    """Let a node finish its tasks, then terminate it."""
    name = pool or context.default_pool
    context.pools.get(name).drain(node)
    return Outcome(f"Draining node {node} of pool {name!r}: it terminates once its tasks are done.")


@command(
    "logs",
    "show the startup log of a node, in full if the start failed",
    arguments=(NAME, _NODE),
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
)
def logs(context: Context, *, node: int, pool: str | None = None) -> Outcome:
    """Show the startup log of a node. The panel has a view of its own, which follows the log."""
    name = pool or context.default_pool
    text = context.pools.get(name).start_log(node)
    return Outcome(table=text) if text else Outcome(f"Node {node} of pool {name!r} was never started.")
