"""Commands on orphaned pools: those whose process is gone."""

from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.views import recovered_table
from skyward_kernel.commands.context import Context
from skyward_kernel.orphans import warm_notes

__all__ = ["attach", "reap"]


@handler_of(DECLARED["attach"])
def attach(context: Context, *, pool: str | None = None, budget: float | None = None) -> Outcome:
    """Attach to the pool of another kernel and return it. `budget`: another one for it, USD in total."""
    name = pool or context.default_pool
    attach = context.pools.attach if context.notebook is None else context.notebook.attach
    attached = attach(name, budget=budget)
    count = len(attached.recovered)
    tasks = f" with {count} recovered task{'' if count == 1 else 's'}" if count else ""
    return Outcome(f"Attached to pool {name!r}{tasks}.", recovered_table(attached.recovered), attached)


@handler_of(DECLARED["reap"])
def reap(context: Context, *, pools: tuple[str, ...] = (), warm: bool = False) -> Outcome:
    """Terminate the machines of pools whose process is gone: of all, or of those with these names or ids.

    Machines that closed pools keep warm are left until their deadline, unless their pool is named, or with `warm`.

    Without names, what carries the tag of this installation at providers is removed, too.
    """
    from skyward.frontends.pools import describe_orphan, describe_swept, refused_names, sweep
    from skyward.frontends.pools import reap as reap_orphans

    done = reap_orphans(pools, warm=warm)
    refused = [f"{each[0].upper()}{each[1:]}" for each in refused_names(pools, [each.orphan for each in done])]
    swept = [] if pools else sweep()
    lines = [*(f"{describe_orphan(each)}." for each in done), *(f"{each}." for each in describe_swept(swept)), *refused]
    if not pools:
        lines += warm_notes()
    failed = bool(refused) or any(each.error for each in done) or any(each.error for each in swept)
    return Outcome("\n".join(lines) or "No orphaned machines.", failed=failed)
