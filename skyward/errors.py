"""Every error Skyward raises, in one tree.

SkywardError
├── UsageError                    the call itself is wrong; nothing was sent
│   ├── SpecError                 a value of a spec, option or argument is not allowed (also a ValueError)
│   ├── NoGroupFitsError          a task, or a floor, asks for what no node can ever have (also a ValueError)
│   ├── OperatorError             an operator was applied to the wrong thing (also a TypeError)
│   ├── NoPoolError               no pool is in scope (also a RuntimeError)
│   ├── PoolClosedError           the pool is closed, or was never opened (also a RuntimeError)
│   ├── NoClusterError            collections were asked for of nodes that form no cluster (also a RuntimeError)
│   ├── NotOnNodeError            asked on a client what only a node knows, or the other way round (also a RuntimeError)
│   └── KeptElsewhereError        the handle of a kept value was used as if it were the value (also an AttributeError)
├── PayloadError                  a value cannot travel; nothing was sent
│   ├── NotPicklableError         names the value and the path inside it (also a TypeError)
│   ├── MissingModuleError        a module the payload needs is missing on the node (also a ModuleNotFoundError)
│   └── TooLargeError             the payload is over a limit, or has no room on its node (also a ValueError)
├── ProvisioningError             the pool could not get the machines it needs (also a RuntimeError)
│   ├── NoOffersError             nothing on offer fits the spec
│   ├── JournalError              what is launched cannot be written down, so nothing is
│   ├── ProviderMissingError      no such provider, or its extra is not installed
│   └── NodeStartError            a node did not come up; carries the last lines of its log
├── CollectionError               a collection could not do what it was asked to (also a RuntimeError)
│   ├── CollectionUnavailableError  too few of the nodes that keep it are there
│   └── LockLostError             a lock was lost before it was released
├── TaskError                     a task did not end with a result of its own
│   ├── TaskTimeoutError          it ran past its timeout and was stopped (also a TimeoutError)
│   ├── TaskCancelledError        it was cancelled and stopped (also a concurrent CancelledError)
│   ├── TaskExitError             it called ``sys.exit()``
│   ├── BudgetExhaustedError      the pool had spent its ``budget`` before the task had run
│   ├── InputLostError            an iterator of a process that is gone fed it
│   ├── KeptLostError             a value that it uses is not on its node any more (also a LookupError)
│   ├── NodeLostError             its node died, more often than ``retry_on_interruption`` allows
│   └── RemoteError               it raised something whose type cannot be rebuilt here
└── IllegalTransitionError        a lifecycle was asked for a transition that its table lacks: a defect of ours

An exception raised by the user's own function arrives as its own type, with a ``RemoteTraceback`` as its cause; those
of several nodes of a broadcast as ``NodeErrors``, an ``ExceptionGroup``.
"""

from collections.abc import Sequence
from concurrent.futures import CancelledError

from skyward.formatting import nodes_text

__all__ = [
    "BudgetExhaustedError",
    "CollectionError",
    "CollectionLostError",
    "CollectionUnavailableError",
    "IllegalTransitionError",
    "InputLostError",
    "JournalError",
    "KeptElsewhereError",
    "KeptLostError",
    "LockLostError",
    "MissingModuleError",
    "NoClusterError",
    "NoGroupFitsError",
    "NoOffersError",
    "NoPoolError",
    "NodeErrors",
    "NodeLostError",
    "NodeStartError",
    "NotOnNodeError",
    "NotPicklableError",
    "OperatorError",
    "PayloadError",
    "PoolClosedError",
    "ProviderMissingError",
    "ProvisioningError",
    "RemoteError",
    "RemoteTraceback",
    "SkywardError",
    "SlotsHeldError",
    "SpecError",
    "TaskCancelledError",
    "TaskError",
    "TaskExitError",
    "TaskTimeoutError",
    "TooLargeError",
    "UsageError",
]


class SkywardError(Exception):
    """Base of every error that Skyward itself raises."""


class UsageError(SkywardError):
    """The call itself is wrong. Nothing was sent and nothing was changed."""


class SlotsHeldError(UsageError):
    """A task can never start: streams hold the slots, and the thread that reads them waits for the task."""


class SpecError(UsageError, ValueError):
    """A value of a spec, an option or an argument is not allowed."""


class NoGroupFitsError(UsageError, ValueError):
    """A task, or a floor, asks for what no node of the pool can ever have. The message says what they have."""


class OperatorError(UsageError, TypeError):
    """``>>``, ``@``, ``&`` or ``>`` was applied to something it does not take."""


class NoPoolError(UsageError, RuntimeError):
    """No pool is in scope, so ``>> sky`` has nowhere to go."""


class PoolClosedError(UsageError, RuntimeError):
    """The pool is closed, or was never opened."""


class NoClusterError(UsageError, RuntimeError):
    """Collections were asked for of a pool with ``cluster=False``, whose nodes know nothing of each other."""


class NotOnNodeError(UsageError, RuntimeError):
    """The call belongs on the other side: on a node, or on the client."""


class KeptElsewhereError(UsageError, AttributeError):
    """A handle of a value that a node keeps was used as if it were the value. Use it in a task, or fetch it."""


class PayloadError(SkywardError):
    """A value cannot travel to a node. Nothing was sent."""


class NotPicklableError(PayloadError, TypeError):
    """A value cannot be pickled. The message names it and the path inside it.

    Attributes:
        reason: the part of the message that says why.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class MissingModuleError(PayloadError, ModuleNotFoundError):
    """A module that the payload needs is not installed on the node.

    Attributes:
        packages: the requirements that Skyward has installed there; None where it is not known.
    """

    packages: tuple[str, ...] | None = None


class TooLargeError(PayloadError, ValueError):
    """The payload is over a limit, or more than its node has memory for. The message names what is too large."""


class ProvisioningError(SkywardError, RuntimeError):
    """The pool could not get the machines it needs."""


class NoOffersError(ProvisioningError):
    """No provider offers a machine that fits the spec."""


class JournalError(ProvisioningError):
    """The journal cannot be read or written. Nothing was launched: what is not on record could be left running."""


class ProviderMissingError(ProvisioningError):
    """There is no such provider, or the extra it needs is not installed."""


class NodeStartError(ProvisioningError):
    """A node did not come up. The message ends with the last lines of its log; `log` is all of that, if it is known."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class CollectionError(SkywardError, RuntimeError):
    """A collection could not do what it was asked to."""


class CollectionUnavailableError(CollectionError):
    """Too few of the nodes that keep a collection were there, for too long. What was asked may have happened."""


class CollectionLostError(CollectionError):
    """A strong collection has lost its content, because all nodes that kept it were gone. It works again, empty."""


class LockLostError(CollectionError):
    """A lock was lost before it was released, so another may have held it meanwhile."""


class TaskError(SkywardError):
    """A task did not end with a result, nor with an exception of its own."""


class TaskTimeoutError(TaskError, TimeoutError):
    """The task ran past its timeout. Its work on the node was stopped; it does not run again.

    The time counts from when the task has a slot of a node. What it returns or raises after that time is dropped. A
    node that does not answer when a task on it is overdue is replaced: its other tasks count as lost, and run again.
    A group with a timeout counts from when it is sent.
    """


class TaskCancelledError(TaskError, CancelledError):
    """The task was cancelled. Its work on the node was stopped."""


class TaskExitError(TaskError):
    """The task called ``sys.exit()``, which ended the task and nothing else.

    Attributes:
        status: what it gave to ``sys.exit()``.
    """

    def __init__(self, message: str, status: object = None) -> None:
        super().__init__(message)
        self.status = status


class BudgetExhaustedError(TaskError):
    """The pool had spent its ``budget`` before the task had run. Its nodes were given back."""


class InputLostError(TaskError):
    """An iterator of a process that is gone fed the task; raised there, where what had arrived of it ends."""


class NodeLostError(TaskError):
    """The node that ran the task died, more often than ``retry_on_interruption`` allows."""


class KeptLostError(TaskError, LookupError):
    """A value that a node kept is not there any more: its node was lost or has gone, or it was dropped."""


class RemoteError(TaskError):
    """The task raised an exception whose type cannot be rebuilt here.

    Attributes:
        type_name: qualified name of the type of the exception, as the node knows it.
    """

    def __init__(self, message: str, type_name: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name


class IllegalTransitionError(SkywardError):
    """A lifecycle was asked for a move that its table of legal moves does not have.

    Attributes:
        history: the latest transitions of that lifecycle, oldest first.
    """

    def __init__(self, message: str, history: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *history)))
        self.history = history


class RemoteTraceback(Exception):
    """The traceback of an exception on the node where it was raised; the ``__cause__`` of that exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text


class NodeErrors(ExceptionGroup[Exception]):
    """What a broadcast raised on several nodes, in the order of their ranks.

    It is also of the type that all of these exceptions have in common, with the arguments, the attributes and the text
    of the first: `except ValueError` catches it where each node raised a `ValueError`, and so does `except*`.

    Attributes:
        nodes: rank of the node of each of `exceptions`.
    """

    nodes: tuple[int, ...] = ()

    def derive(self, exceptions: Sequence[Exception]) -> ExceptionGroup[Exception]:  # type: ignore[override]  # narrower
        """Return a part of it, as `except*` does."""
        return ExceptionGroup(self.message, exceptions)

    def __str__(self) -> str:
        return super().__str__() if type(self) is NodeErrors else str(self.exceptions[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _regroup, (self.message, self.exceptions, self.nodes, getattr(self, "__notes__", []))


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


def _regroup(
    message: str, errors: tuple[BaseException, ...], nodes: tuple[int, ...], notes: list[str]
) -> BaseException:
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
