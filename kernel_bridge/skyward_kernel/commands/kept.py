"""Commands on values that nodes keep for later cells."""

from typing import TYPE_CHECKING, Any

from skyward.errors import KeptLostError, UsageError
from skyward.frontends.commands import KEPT, POOL_OPTION, Argument, Form, Outcome, command
from skyward.frontends.configuration import closest
from skyward.frontends.views import kept_table, nodes_text
from skyward_kernel.commands.context import Context

if TYPE_CHECKING:
    from skyward.frontends.calls import Kept
    from skyward.frontends.pools import KeptView

__all__ = ["drop", "kept"]


@command(
    "kept",
    "show the values that nodes keep for later cells; with a name, return its handle",
    arguments=(Argument("name", KEPT),),
    options=(POOL_OPTION,),
    forms=(Form((), "insert-kept", "Insert %sky kept", is_line=True),),
)
def kept(context: Context, *, name: str | None = None, pool: str | None = None) -> Outcome:
    """Show the values that nodes keep, or return the handle of one."""
    if name is not None:
        return Outcome(value=_handle(context, name, pool, "kept")[1])
    rows = _kept(context, pool)
    if not rows:
        where = "" if pool is None else f" on pool {pool!r}"
        return Outcome(
            f"There are no kept values{where}. A cell with `%%sky --keep NAMES` has its node keep what it assigns."
        )
    return Outcome(table=kept_table(rows, _variables(context)))


@command(
    "drop",
    "delete values that nodes keep, by name",
    arguments=(Argument("names", KEPT, required=True, several=True),),
    options=(POOL_OPTION,),
    example="model",
)
def drop(context: Context, *, names: tuple[str, ...], pool: str | None = None) -> Outcome:
    """Delete values that nodes keep, by name. Names may be separated by commas, as in `--keep`."""
    wanted = dict.fromkeys(name for text in names for name in text.split(",") if name)
    # All names are looked up before the first value is dropped. Two names may have one handle.
    handles = [_handle(context, each, pool, "drop") for each in wanted]
    found = {handle.keys: (where, handle) for where, handle in handles}
    lines = []
    for where, handle in found.values():
        nodes = nodes_text(handle.nodes)
        handle.drop()
        lines.append(f"Dropped {handle.name} from {nodes}{f' of pool {where!r}' if where else ''}.")
    return Outcome("\n".join(lines))


def _kept(context: Context, pool: str | None) -> "list[tuple[str, KeptView]]":
    """Return the kept values with their pools: of all pools, or of one."""
    names = context.pools.names if pool is None else [pool]
    return [(name, view) for name in names for view in context.pools.get(name).kept()]


def _handle(context: Context, name: str, pool: str | None, command: str) -> "tuple[str, Kept[Any]]":
    """Return the handle that a variable of the notebook holds, or else that of the value kept under the name.

    Returns:
        the name of its pool, and the handle.

    Raises:
        UsageError: no pool has the value, or several do, and the command names none of them.
        KeptLostError: the variable holds the handle of a value that is no longer kept.
    """
    from skyward.frontends.calls import Kept

    views = _kept(context, pool)
    held = context.variables.get(name)
    handle = held if isinstance(held, Kept) else None
    keys = () if handle is None else handle.keys
    of_handle = [where for where, view in views if view.key in keys]
    holders = dict.fromkeys((*of_handle, *(where for where, view in views if view.name == name)))
    if len(holders) > 1:
        pools = " and ".join(map(repr, holders))
        example = f"%sky {command} {name} --pool {next(iter(holders))}"
        raise UsageError(f"Pools {pools} keep a value named {name!r}: name one, as in `{example}`.")
    for where in holders:
        return where, handle if handle is not None and of_handle else context.pools.get(where).handle(name)
    if handle is not None and handle.lost:
        raise KeptLostError(f"{name} is no longer kept: {handle.lost}.")
    if handle is not None and pool is None:
        return "", handle  # of a pool that this kernel does not list
    place = "" if pool is None else f" on pool {pool!r}"
    known = {view.name for _, view in views}
    raise UsageError(f"No kept value named {name!r}{place}; {closest(name, known)}")


def _variables(context: Context) -> dict[str, list[str]]:
    """Return the variables of the notebook that hold handles, by key of the kept value."""
    from skyward.frontends.calls import Kept

    found: dict[str, list[str]] = {}
    for name, value in context.variables.items():
        if isinstance(value, Kept) and not name.startswith("_"):
            for key in value.keys:
                found.setdefault(key, []).append(name)
    return found
