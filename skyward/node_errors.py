"""One exception for what a broadcast raised on several nodes."""

from collections.abc import Sequence

from skyward.errors import NodeErrors
from skyward.formatting import nodes_text

__all__ = ["error_of_nodes", "regroup"]

_TOO_WIDE = (Exception, BaseException, object)


def error_of_nodes(name: str, errors: Sequence[tuple[int, BaseException]], of: int) -> BaseException:
    """Return what a broadcast raises.

    That of one node is raised as it is. Those of several are a `NodeErrors`, which is also of the type that all of them
    have in common. Python does not let a group be an `OSError`, nor an exception with slots: of such, the first is
    raised, and has what the group would have, `exceptions` and `nodes`, as attributes.

    Args:
        name: of the function.
        errors: each with the rank of its node, at least one.
        of: number of nodes that the broadcast ran on.
    """
    (_, first), *others = errors
    nodes = tuple(rank for rank, _ in errors)
    if others:
        raised = tuple(error for _, error in errors)
        group = _group(f"{name}() failed on {nodes_text(nodes)}", raised)
        if group is None:
            first.__dict__.update(exceptions=raised, nodes=nodes)
        else:
            group.nodes = nodes
            first = group
    if of > 1:
        BaseException.add_note(first, f"It failed on {nodes_text(nodes)}, of {of} nodes.")
    return first


def regroup(message: str, errors: tuple[BaseException, ...], nodes: tuple[int, ...], notes: list[str]) -> BaseException:
    """Return a group as it was before it was pickled. Called by pickles."""
    group = _group(message, errors) or NodeErrors(message, [error for error in errors if isinstance(error, Exception)])
    group.nodes = nodes
    group.__dict__["__notes__"] = notes
    return group


def _group(message: str, errors: tuple[BaseException, ...]) -> NodeErrors | None:
    """A group of `errors` that is of their common type, too; None where it cannot be."""
    common = next(kind for kind in type(errors[0]).__mro__ if all(isinstance(error, kind) for error in errors))
    kind: type[NodeErrors] = NodeErrors
    try:
        if common not in _TOO_WIDE and not issubclass(NodeErrors, common):
            if any("__init_subclass__" in vars(base) for base in common.__mro__[:-1]):  # it is told of its subclasses
                return None
            described = {
                "__module__": common.__module__,
                "__qualname__": common.__qualname__,
                "__doc__": common.__doc__,
            }
            kind, message = type(common)(common.__name__, (NodeErrors, common), described), str(errors[0])
        group = BaseExceptionGroup.__new__(kind, message, errors)
    except Exception:  # two layouts that do not go together, or a metaclass or a text of the user's
        return None
    if kind is not NodeErrors:
        group.__dict__.update({name: value for name, value in errors[0].__dict__.items() if name != "__notes__"})
        group.args, group.__cause__ = errors[0].args, errors[0].__cause__
    return group
