"""Commands on one node: draining it, and its startup log."""

from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.views import count_text
from skyward_kernel.commands.context import Context

__all__ = ["drain", "logs"]


@handler_of(DECLARED["drain"])
def drain(context: Context, *, node: int, pool: str | None = None) -> Outcome:
    """Let a node finish its tasks, then terminate it."""
    name = pool or context.default_pool
    compute = context.pools.get(name)
    compute.drain(node)
    queued = compute.snapshot().queued
    wait = f"{count_text(queued, 'task')} {'waits' if queued == 1 else 'wait'}"
    another = f" {wait}, so the pool may launch another node." if queued else ""
    return Outcome(
        f"Draining node {node} of pool {name!r}: it terminates once its tasks are done, unless they keep a value there."
        f"{another}"
    )


@handler_of(DECLARED["logs"])
def logs(context: Context, *, node: int, pool: str | None = None) -> Outcome:
    """Show the startup log of a node. The panel has a view of its own, which follows the log."""
    name = context.only(pool)
    text = context.pools.get(name).start_log(node)
    return Outcome(table=text) if text else Outcome(f"Node {node} of pool {name!r} was never started.")
