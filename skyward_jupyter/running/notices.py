"""Notices on effects of a cell that are not visible in the notebook: values, changes and side effects on the nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skyward.frontends.cells import VALUE, CellResult, Unreturned
from skyward.frontends.views import joined, nodes_text

if TYPE_CHECKING:
    from skyward.frontends.cells import ReimportedModules


__all__ = ["changed_copies", "changes_not_returned", "copies_of_kept", "moved_to_node", "not_returned", "side_effects"]


def not_returned(results: Sequence[CellResult], user_ns: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each name that the cell bound and that was not returned, with its nodes."""
    nodes: dict[tuple[str, Unreturned], list[int]] = {}
    for result in results:
        for name, why in result.state.failed.items():
            if name != VALUE:  # shown by `_` and `Out`
                nodes.setdefault((name, why), []).append(result.node)
    return [
        f"{name} was not returned from {nodes_text(ranks)}: {why.reason}. {_fix(why, name in user_ns)}"
        for (name, why), ranks in nodes.items()
    ]


def changes_not_returned(results: Sequence[CellResult]) -> list[str]:
    """Return a sentence for each captured value whose change was not returned."""
    return [
        f"{name} was changed on {nodes_text([result.node])}, but the change was not returned: {why.reason}. "
        f"Here {name} is unchanged. {_fix(why, False)}"
        for result in results
        for name, why in result.state.stale.items()
    ]


def moved_to_node(result: CellResult) -> list[str]:
    """Return a sentence about values that a node keeps now, and to whose objects others here refer."""
    if not result.copied:
        return []
    are, copies = ("is", "the copy") if len(result.copied) == 1 else ("are", "the copies")
    return [
        f"{joined(result.copied)} {are} kept on {nodes_text([result.node])} from now on. Another notebook object still "
        f"holds {copies} from before the cell."
    ]


def copies_of_kept(result: CellResult) -> list[str]:
    """Return a sentence for each kept value that shares objects with returned values, which are copies here."""
    names: dict[str, list[str]] = {}
    for name, kept in result.state.copied.items():
        names.setdefault(kept, []).append(name)
    found = []
    for kept, parts in names.items():
        are = "is" if len(parts) == 1 else "are"
        it_is = "it is a copy" if len(parts) == 1 else "they are copies"
        found.append(
            f"{joined(parts)} {are} part of {kept}, which is kept on {nodes_text([result.node])}: here {it_is}, and a "
            f"change on one side does not show on the other. Keep both with --keep {','.join([kept, *parts])}."
        )
    return found


def changed_copies(results: Sequence[CellResult], bound: Iterable[str]) -> list[str]:
    """Return a sentence about values that several runs changed, each in its own copy."""
    nodes: dict[str, list[int]] = {}
    for result in results:
        for name in (*result.state.changed, *result.state.stale):
            if name not in bound:
                nodes.setdefault(name, []).append(result.node)
    if not nodes:
        return []
    names = joined(nodes)
    ranks = sorted({rank for each in nodes.values() for rank in each})
    variables = [name for name in nodes if name.isidentifier()]  # others are settings with a title
    it_is = "it is" if len(nodes) == len(variables) == 1 else "they are"
    text = f"{names} changed on {nodes_text(ranks)}, in a separate copy for each run; here {it_is} unchanged."
    if variables:
        text += f" To get a list of all copies, assign the value in the cell: `{variables[0]} = {variables[0]}`."
    return [text]


def side_effects(results: Sequence[CellResult]) -> list[str]:
    """Return the sentences about side effects beyond the variables of the cell."""
    return [*_reimported(results), *_process_changes(results)]


def _reimported(results: Sequence[CellResult]) -> list[str]:
    """Return the sentences about modules that are imported again because some sources have changed."""
    nodes: dict[ReimportedModules, set[int]] = {}
    for result in results:
        nodes.setdefault(result.state.reimported, set()).add(result.node)
    found = []
    for modules, ranks in nodes.items():
        where, changed, others = nodes_text(ranks), joined(modules.changed), joined(modules.others)
        are = "is" if len(modules.others) == 1 else "are"
        if changed:
            has, it = ("has", "it") if len(modules.changed) == 1 else ("have", "them")
            more = f", as {are} {others}" if others else ""
            found.append(
                f"{changed} {has} changed since {where} imported {it}: imported again there, with new variables{more}."
            )
        elif others:
            found.append(f"{others} {are} imported again on {where}, with new variables.")
    return found


def _process_changes(results: Sequence[CellResult]) -> list[str]:
    """Return a sentence about things that the cell changed beyond its variables."""
    nodes: dict[str, list[int]] = {}
    for result in results:
        for what in result.state.side_effects:
            nodes.setdefault(what, []).append(result.node)
    if not nodes:
        return []
    ranks = sorted({rank for each in nodes.values() for rank in each})
    are = "it is" if len(nodes) == 1 else "they are"
    return [f"The cell changed {joined(nodes)} on {nodes_text(ranks)}; here {are} unchanged."]


def _fix(why: Unreturned, is_here: bool) -> str:
    match why.obstacle:
        case "size":
            return "Return less of it, or raise the limit with --capture-limit."
        case "nothing to keep":
            return "Assign it in the cell, or leave it out of --keep."
        case "unbound":
            return "Assign it in the cell, or leave it out of -o."
        case "other":
            before = "It is unchanged here. " if is_here else ""
            return f"{before}Return the parts that you need under another name."
