"""Every error Skyward raises, in one tree.

SkywardError
├── UsageError                    the call itself is wrong; nothing was sent
│   ├── SpecError                 a value of a spec, option or argument is not allowed (also a ValueError)
│   ├── NoGroupFitsError          a task, or a floor, needs more than any node can have (also a TaskError, ValueError)
│   ├── OperatorError             an operator was applied to the wrong thing (also a TypeError)
│   ├── NoPoolError               no pool is in scope (also a RuntimeError)
│   ├── PoolClosedError           the pool is closed, or was never opened (also a RuntimeError)
│   ├── SlotsHeldError            a task can never start, because streams hold the slots (also a TaskError)
│   ├── NoClusterError            collections need a cluster, and the nodes form none (also a RuntimeError)
│   ├── NotOnNodeError            the call works only in a task on a node (also a RuntimeError)
│   ├── OnNodeError               the call works only on the client, not on a node (also a RuntimeError)
│   └── KeptElsewhereError        the handle of a kept value was used as if it were the value (also an AttributeError)
├── PayloadError                  a value cannot be sent; nothing was sent
│   ├── NotPicklableError         names the value and the path inside it (also a TypeError)
│   ├── MissingModuleError        a module the payload needs is missing on the node (also a ModuleNotFoundError)
│   └── TooLargeError             the payload is over a limit, or has no room on its node (also a ValueError)
├── ProvisioningError             the pool could not get the machines it needs (also a RuntimeError)
│   ├── NoOffersError             no offer of a provider fits the spec
│   ├── NoCapacityError           the provider has no such machine now; another offer may have one
│   ├── QuotaError                the account may have no more of such machines
│   ├── RateLimitError            the provider takes no more requests for a while
│   ├── CredentialsError          the provider refuses the credentials, or what they may do, or the account owes money
│   ├── JournalError              the journal cannot be written, so nothing was launched
│   ├── ProviderMissingError      no such provider, or its extra is not installed
│   └── NodeStartError            a node did not start; carries the last lines of its log
├── CollectionError               an operation on a collection failed (also a RuntimeError)
│   ├── CollectionUnavailableError  too few of the nodes that hold it are available
│   ├── CollectionLostError       content of a strong collection is lost, or may be, with the nodes that held it
│   └── LockLostError             a lock was lost before it was released
├── TaskError                     a task did not end with a result of its own
│   ├── TaskTimeoutError          it ran past its timeout and was stopped (also a TimeoutError)
│   ├── TaskCancelledError        it was cancelled and stopped (also a concurrent CancelledError)
│   ├── TaskExitError             it called ``sys.exit()``
│   ├── BudgetExhaustedError      the pool spent its ``budget`` before the task had run
│   ├── InputLostError            the process that fed it from an iterator is gone
│   ├── KeptLostError             a value that it uses is no longer on its node (also a LookupError)
│   ├── VolumeError               files that it wrote to a volume could not be uploaded; carries its value
│   ├── NodeLostError             its node died, more often than ``retry_on_interruption`` allows
│   ├── PluginError               a plugin could not prepare it, or finish it
│   └── RemoteError               it raised an exception whose type cannot be rebuilt on the client
├── StorageError                  an object store refused, did not answer, or a transfer failed (also a RuntimeError)
└── IllegalTransitionError        a lifecycle has no such transition in its table: a bug in Skyward

An exception raised by the user's own function arrives as its own type, with a ``RemoteTraceback`` as its cause; those
of several nodes of a broadcast arrive as ``NodeErrors``, an ``ExceptionGroup``.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError

from skyward.formatting import nodes_text

__all__ = [
    "BudgetExhaustedError",
    "CollectionError",
    "CollectionLostError",
    "CollectionUnavailableError",
    "CredentialsError",
    "IllegalTransitionError",
    "InputLostError",
    "JournalError",
    "KeptElsewhereError",
    "KeptLostError",
    "LockLostError",
    "MissingModuleError",
    "NoCapacityError",
    "NoClusterError",
    "NoGroupFitsError",
    "NoOffersError",
    "NoPoolError",
    "NodeErrors",
    "NodeLostError",
    "NodeStartError",
    "NotOnNodeError",
    "NotPicklableError",
    "OnNodeError",
    "OperatorError",
    "PayloadError",
    "PluginError",
    "PoolClosedError",
    "ProviderMissingError",
    "ProvisioningError",
    "QuotaError",
    "RateLimitError",
    "RemoteError",
    "RemoteTraceback",
    "SkywardError",
    "SlotsHeldError",
    "SpecError",
    "StorageError",
    "TaskCancelledError",
    "TaskError",
    "TaskExitError",
    "TaskTimeoutError",
    "TooLargeError",
    "UsageError",
    "VolumeError",
]

NO_POOL = "No pool is in scope: open one with `with sky.Compute(...) as pool:`"
"""Start of the message of a `NoPoolError`."""

RERUN = "Rerun the code that made it."
"""Fix for a lost value, in messages."""


class SkywardError(Exception):
    """Base of every error that Skyward itself raises."""


class UsageError(SkywardError):
    """The call itself is wrong. Nothing was sent and nothing was changed."""


class SpecError(UsageError, ValueError):
    """A value of a spec, an option or an argument is not allowed."""


class OperatorError(UsageError, TypeError):
    """``>>``, ``@``, ``&`` or ``>`` was applied to something it does not take."""


class NoPoolError(UsageError, RuntimeError):
    """No pool is in scope for ``>> sky``."""


class PoolClosedError(UsageError, RuntimeError):
    """The pool is closed, or was never opened."""


class NoClusterError(UsageError, RuntimeError):
    """Collections were used with a pool whose nodes are not connected: by ``cluster=False``, or by their provider."""


class NotOnNodeError(UsageError, RuntimeError):
    """The call works only in a task on a node, and was made elsewhere."""


class OnNodeError(UsageError, RuntimeError):
    """The call works only on the client, and was made on a node. A node has no pool."""


class KeptElsewhereError(UsageError, AttributeError):
    """A handle of a value that a node keeps was used as if it were the value. Use it in a task, or fetch it."""


class PayloadError(SkywardError):
    """A value cannot be sent to a node. Nothing was sent."""


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
        packages: the requirements that Skyward has installed there; None if unknown.
    """

    packages: tuple[str, ...] | None = None


class TooLargeError(PayloadError, ValueError):
    """The payload is over a limit, or does not fit into the memory of its node. The message names the large value."""


class ProvisioningError(SkywardError, RuntimeError):
    """The pool could not get the machines it needs."""


class NoOffersError(ProvisioningError):
    """No provider offers a machine that fits the spec."""


class NoCapacityError(ProvisioningError):
    """The provider has no such machine now, in that region and market. Other offers are tried at once."""


class QuotaError(ProvisioningError):
    """The account may have no more of such machines. The message names the quota; other offers are tried."""


class RateLimitError(ProvisioningError):
    """The provider takes no more requests for a while. The request was not carried out.

    Attributes:
        retry_after: seconds to wait, as the provider says; None if it does not.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CredentialsError(ProvisioningError):
    """The provider refuses the credentials, or they lack a permission, or the account has to be paid.

    No offer of this provider is tried again.
    """


class JournalError(ProvisioningError):
    """The journal cannot be read or written. Nothing was launched, since an unrecorded machine could be orphaned."""


class ProviderMissingError(ProvisioningError):
    """There is no such provider, or the extra it needs is not installed."""


class NodeStartError(ProvisioningError):
    """A node did not start. The message ends with the last lines of its log.

    Attributes:
        log: the whole log; empty if unknown.
        is_final: True if its replacement would fail for the same reason.
    """

    def __init__(self, message: str, log: str = "", *, is_final: bool = False) -> None:
        super().__init__(message)
        self.log = log
        self.is_final = is_final


class CollectionError(SkywardError, RuntimeError):
    """An operation on a collection failed."""


class CollectionUnavailableError(CollectionError):
    """Too few of the nodes that hold a collection were available, for too long. The operation may have been applied."""


class CollectionLostError(CollectionError):
    """A strong collection has lost its content, or may have lost part of it, with the nodes that held it.

    It is raised once; then the collection works again, with what is left. If nodes were lost before the others had
    copies, a collection that is used before they have can raise it again when they have.
    """


class LockLostError(CollectionError):
    """A lock was lost before it was released, so another task may have held it meanwhile."""


class TaskError(SkywardError):
    """A task did not end with a result, nor with an exception of its own.

    Attributes:
        subject: the name of the task at the start of the message, such as ``train()``; empty if the message has none.
        fix: the advice at the end of the message; empty if there is none.
    """

    def __init__(self, message: str = "", *, subject: str = "", fix: str = "") -> None:
        text = " ".join(filter(None, (subject, message, fix)))
        super().__init__(*((text,) if text else ()))
        self.subject = subject
        self.fix = fix


class NoGroupFitsError(UsageError, TaskError, ValueError):
    """A task, or a floor, needs more than any node of the pool can have. The message lists what the nodes have."""


class SlotsHeldError(UsageError, TaskError):
    """A task can never start: streams hold all slots, and the thread that reads them waits for the task."""


class TaskTimeoutError(TaskError, TimeoutError):
    """The task ran past its timeout. Its work on the node was stopped; it does not run again.

    The time counts from when the task gets a slot on a node. A result or an exception that comes later is dropped. A
    node that does not answer when a task on it is overdue is replaced; its other tasks count as lost and are requeued.
    The timeout of a group counts from when it is sent.
    """


class TaskCancelledError(TaskError, CancelledError):
    """The task was cancelled. Its work on the node was stopped."""


class VolumeError(TaskError):
    """The task has ended, but files that it wrote to a volume could not be uploaded.

    Attributes:
        value: the value that the task returned; None if it returned none. For a cell, the value of its last
            expression.

    Example:
        try:
            metrics = train(10) >> pool
        except sky.VolumeError as error:
            metrics = error.value
    """

    def __init__(
        self, message: str, value: Callable[[], object] | None = None, *, subject: str = "", fix: str = ""
    ) -> None:
        super().__init__(message, subject=subject, fix=fix)
        self._value = value

    @property
    def value(self) -> object:
        """The value that the task returned."""
        return None if self._value is None else self._value()


class TaskExitError(TaskError):
    """The task called ``sys.exit()``, which ended only the task.

    Attributes:
        status: the argument of ``sys.exit()``.
    """

    def __init__(self, message: str, status: object = None, *, subject: str = "") -> None:
        super().__init__(message, subject=subject)
        self.status = status


class BudgetExhaustedError(TaskError):
    """The pool spent its ``budget`` before the task had ended. Its nodes were terminated."""


class InputLostError(TaskError):
    """The process that fed the task from an iterator is gone. Raised in the task, after the elements that arrived."""


class NodeLostError(TaskError):
    """The node that ran the task died, more often than ``retry_on_interruption`` allows.

    Attributes:
        cause: what the pool received last, with its number in the decisions and histories of the pool, such as
            ``#412: machine 7 of node 3 lost: connection closed``; empty if unknown.
    """

    def __init__(self, message: str = "", cause: str = "", *, subject: str = "", fix: str = "") -> None:
        super().__init__(message, subject=subject, fix=fix)
        self.cause = cause


class PluginError(TaskError):
    """A plugin could not prepare the task, which did not run, or could not finish it.

    Attributes:
        plugin: name of the plugin; empty if it is not known.
    """

    def __init__(self, message: str = "", *, plugin: str = "", subject: str = "", fix: str = "") -> None:
        super().__init__(message, subject=subject, fix=fix)
        self.plugin = plugin


class KeptLostError(TaskError, LookupError):
    """A value that a node kept is gone: its node was lost or terminated, or the value was dropped."""


class RemoteError(TaskError):
    """The task raised an exception whose type cannot be rebuilt on the client.

    Attributes:
        type_name: qualified name of the type of the exception, as the node knows it.
    """

    def __init__(self, message: str, type_name: str = "", *, subject: str = "") -> None:
        super().__init__(message, subject=subject)
        self.type_name = type_name


class StorageError(SkywardError, RuntimeError):
    """An object store refused a request or did not answer, or a file could not be read or written.

    Attributes:
        code: code of the store's error, such as "NoSuchBucket", or "HTTP501" if it has none; or "Unreachable",
            "DiskFull" or "Stopped"; "" for other errors.
        names: files or keys that failed, if the error is about some of several.
    """

    def __init__(self, message: str = "", *, code: str = "", names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.names = tuple(names)


class IllegalTransitionError(SkywardError):
    """A lifecycle was asked for a transition that is not in its table.

    Attributes:
        history: the latest transitions of that lifecycle, oldest first.
    """

    def __init__(self, message: str, history: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join((message, *history)))
        self.history = history


class RemoteTraceback(Exception):
    """Traceback of an exception on its node; the ``__cause__`` of that exception on the client."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text


class NodeErrors(ExceptionGroup[Exception]):
    """Exceptions of several nodes of a broadcast, in the order of their ranks.

    The group is also an instance of the type that these exceptions have in common, with the arguments, the attributes
    and the text of the first: `except ValueError` catches it if each node raised a `ValueError`, and so does `except*`.

    Attributes:
        nodes: rank of the node of each of `exceptions`.
    """

    nodes: tuple[int, ...] = ()

    def derive(self, exceptions: Sequence[Exception]) -> ExceptionGroup[Exception]:  # type: ignore[override]  # narrower
        """Return a part of the group, as `except*` needs it."""
        return ExceptionGroup(self.message, exceptions)

    def __str__(self) -> str:
        return super().__str__() if type(self) is NodeErrors else str(self.exceptions[0])

    def __reduce__(self) -> tuple[object, ...]:
        return _regroup, (self.message, self.exceptions, self.nodes, getattr(self, "__notes__", []))


_TOO_WIDE = (Exception, BaseException, object)


def error_of_nodes(name: str, errors: Sequence[tuple[int, BaseException]], of: int) -> BaseException:
    """Return the exception that a broadcast raises.

    The exception of a single node is raised as it is. Those of several nodes become a `NodeErrors`, which is also an
    instance of the type that they have in common. Python does not let a group be an `OSError`, nor an exception with
    slots: then the first exception is raised, with the attributes of the group, `exceptions` and `nodes`.

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
    """Rebuild a group while it is unpickled."""
    group = _group(message, errors) or NodeErrors(message, [error for error in errors if isinstance(error, Exception)])
    group.nodes = nodes
    group.__dict__["__notes__"] = notes
    return group


def _group(message: str, errors: tuple[BaseException, ...]) -> NodeErrors | None:
    """Return a group of `errors` that is also of their common type; None if Python allows no such type."""
    common = next(kind for kind in type(errors[0]).__mro__ if all(isinstance(error, kind) for error in errors))
    kind: type[NodeErrors] = NodeErrors
    try:
        if common not in _TOO_WIDE and not issubclass(NodeErrors, common):
            if any("__init_subclass__" in vars(base) for base in common.__mro__[:-1]):  # runs code for each subclass
                return None
            described = {
                "__module__": common.__module__,
                "__qualname__": common.__qualname__,
                "__doc__": common.__doc__,
            }
            kind, message = type(common)(common.__name__, (NodeErrors, common), described), str(errors[0])
        group = BaseExceptionGroup.__new__(kind, message, errors)
    except Exception:  # incompatible layouts, or a metaclass or a `__str__` of the user that raises
        return None
    if kind is not NodeErrors:
        group.__dict__.update({name: value for name, value in errors[0].__dict__.items() if name != "__notes__"})
        group.args, group.__cause__ = errors[0].args, errors[0].__cause__
    return group
