"""Commands on values that nodes keep for later cells."""

from typing import TYPE_CHECKING, Any

from skyward.errors import KeptLostError, UsageError
from skyward.frontends.commands import DECLARED, Outcome, handler_of
from skyward.frontends.configuration import closest
from skyward.frontends.views import kept_table, nodes_text
from skyward_kernel.commands.context import Context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skyward.frontends.calls import Kept
    from skyward.frontends.pools import KeptView

__all__ = ["drop", "kept"]


@handler_of(DECLARED["kept"])
def kept(context: Context, *, name: str | None = None, pool: str | None = None) -> Outcome:
    """Show the values that nodes keep, or return the handle of one."""
    if name is not None:
        _, handles = _handles(context, name, pool, "kept")
        return Outcome(value=handles[0] if len(handles) == 1 else handles)
    rows = _kept(context, pool)
    if not rows:
        where = "" if pool is None else f" on pool {pool!r}"
        return Outcome(
            f"There are no kept values{where}. A cell with `%%sky --keep NAMES` has its node keep what it assigns."
        )
    return Outcome(table=kept_table(rows, _variables(context)))


@handler_of(DECLARED["drop"])
def drop(context: Context, *, names: tuple[str, ...], pool: str | None = None) -> Outcome:
    """Delete values that nodes keep, by name. Names may be separated by commas, as in `--keep`."""
    wanted = dict.fromkeys(name for text in names for name in text.split(",") if name)
    # All names are looked up before the first value is dropped. Two names may have one handle.
    found = [(name, *_handles(context, name, pool, "drop")) for name in wanted]
    lines, dropped = [], set[tuple[str, ...]]()
    for name, where, every in found:
        handles = [handle for handle in every if handle.keys not in dropped]
        if not handles:
            continue
        dropped.update(handle.keys for handle in handles)
        nodes = nodes_text(sorted({node for handle in handles for node in handle.nodes}))
        what = handles[0].name if len(handles) == 1 else f"{len(handles)} values of {name}"
        for handle in handles:
            handle.drop()
        lines.append(f"Dropped {what} from {nodes}{f' of pool {where!r}' if where else ''}.")
    return Outcome("\n".join(lines))


def _kept(context: Context, pool: str | None) -> "list[tuple[str, KeptView]]":
    """Return the kept values with their pools: of all pools, or of one."""
    names = context.pools.names if pool is None else [pool]
    return [(name, view) for name in names for view in context.pools.get(name).kept()]


def _handles(context: Context, name: str, pool: str | None, command: str) -> "tuple[str, list[Kept[Any]]]":
    """Return the handles that a variable of the notebook holds, or else those of the values kept under the name.

    A cell with `--map` gives a list of handles, of which several may be on one node.

    Returns:
        the name of their pool, and the handles.

    Raises:
        UsageError: no pool has such a value, or several do, and the command names none of them.
        KeptLostError: the variable holds handles of values that are no longer kept.
    """
    views = _kept(context, pool)
    held = _held(context.variables.get(name))
    keys = {key for handle in held for key in handle.keys}
    of_handles = [where for where, view in views if view.key in keys]
    holders = dict.fromkeys((*of_handles, *(where for where, view in views if view.name == name)))
    if len(holders) > 1:
        pools = " and ".join(map(repr, holders))
        example = f"%sky {command} {name} --pool {next(iter(holders))}"
        raise UsageError(f"Pools {pools} keep a value named {name!r}: name one, as in `{example}`.")
    for where in holders:
        if of_handles:
            known = {view.key for _, view in views}
            return where, [handle for handle in held if not known.isdisjoint(handle.keys)]
        return where, _named(context, name, [view for _, view in views if view.name == name], where)
    for handle in held:
        if handle.lost:
            raise KeptLostError(f"{name} is no longer kept: {handle.lost}.")
    if held and pool is None:
        return "", held  # of a pool that this kernel does not list
    place = "" if pool is None else f" on pool {pool!r}"
    raise UsageError(f"No kept value named {name!r}{place}; {closest(name, {view.name for _, view in views})}")


def _named(context: Context, name: str, views: "Sequence[KeptView]", pool: str) -> "list[Kept[Any]]":
    """Return the handles of the values that a pool keeps under a name: one for all nodes, if each has one value."""
    from skyward.frontends.calls import Kept, call

    if len({view.node for view in views}) == len(views):
        return [context.pools.get(pool).handle(name)]
    handles: list[Kept[Any]] = [Kept.of((view.key,), name) for view in views]
    for number, handle in enumerate(handles):
        if handle.name == name:
            call(handle, f"{name}[{number}]")
    return handles


def _held(value: Any) -> "list[Kept[Any]]":
    """Return the handles in the value of a variable: itself, or those in a list."""
    from skyward.frontends.calls import Kept

    return [each for each in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(each, Kept)]


def _variables(context: Context) -> dict[str, list[str]]:
    """Return the variables of the notebook that hold handles, by key of the kept value."""
    found: dict[str, list[str]] = {}
    for name, value in context.variables.items():
        if not name.startswith("_"):
            for handle in _held(value):
                for key in handle.keys:
                    found.setdefault(key, []).append(name)
    return found
