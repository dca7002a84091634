"""Commands on values that nodes keep for later cells."""

from typing import TYPE_CHECKING, Any

from skyward.errors import KeptLostError, UsageError
from skyward.frontends.commands import KEPT, Argument, Form, Outcome, command
from skyward.frontends.configuration import closest
from skyward.frontends.views import kept_table, nodes_text
from skyward_kernel.commands.context import Context

if TYPE_CHECKING:
    from skyward.frontends.calls import Kept

__all__ = ["drop", "kept"]


@command(
    "kept",
    "show the values that nodes keep for later cells; with a name, return its handle",
    arguments=(Argument("name", KEPT),),
    forms=(Form((), "insert-kept", "Insert %sky kept", is_line=True),),
)
def kept(context: Context, *, name: str | None = None) -> Outcome:
    """Show the values that nodes keep, or return the handle of one."""
    if name is not None:
        return Outcome(value=_handle(context, name))
    rows = [(pool, view) for pool in context.pools.names for view in context.pools.get(pool).kept()]
    if not rows:
        return Outcome("There are no kept values. A cell with `%%sky --keep NAMES` has its node keep what it assigns.")
    return Outcome(table=kept_table(rows, _variables(context)))


@command(
    "drop",
    "delete values that nodes keep, by name",
    arguments=(Argument("names", KEPT, required=True, several=True),),
    example="model",
)
def drop(context: Context, *, names: tuple[str, ...]) -> Outcome:
    """Delete values that nodes keep, by name."""
    lines = []
    for handle in [_handle(context, name) for name in names]:
        where = nodes_text(handle.nodes)
        handle.drop()
        lines.append(f"Dropped {handle.name} from {where}.")
    return Outcome("\n".join(lines))


def _handle(context: Context, name: str) -> "Kept[Any]":
    """Return the handle that a variable of the notebook holds, or else that of the value kept under the name."""
    from skyward.frontends.calls import Kept

    value = context.variables.get(name)
    if isinstance(value, Kept) and not value.lost:
        return value
    pools = [context.pools.get(each) for each in context.pools.names]
    for pool in pools:
        if any(view.name == name for view in pool.kept()):
            return pool.handle(name)
    if isinstance(value, Kept):
        raise KeptLostError(f"{name} is no longer kept: {value.lost}.")
    known = {view.name for pool in pools for view in pool.kept()}
    raise UsageError(f"No kept value named {name!r}; {closest(name, known)}")


def _variables(context: Context) -> dict[str, list[str]]:
    """Return the variables of the notebook that hold handles, by key of the kept value."""
    from skyward.frontends.calls import Kept

    found: dict[str, list[str]] = {}
    for name, value in context.variables.items():
        if isinstance(value, Kept) and not name.startswith("_"):
            for key in value.keys:
                found.setdefault(key, []).append(name)
    return found
