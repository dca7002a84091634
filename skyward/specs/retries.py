"""Retries of calls that raise: how many, and for which exceptions."""

from collections.abc import Iterable
from dataclasses import dataclass

from skyward.errors import PayloadError, RemoteError, SpecError, TaskError, TaskExitError
from skyward.values.validation import shown, whole

__all__ = ["NO_RETRIES", "Retries", "RetryOn"]

type RetryOn = type[Exception] | Iterable[type[Exception]]
"""An exception class, or several."""

_TO_NAME = (PayloadError, TaskExitError)
_OWN = (RemoteError, TaskExitError)
"""Subclasses of `TaskError` that stand for something that the function itself raised or called."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Retry policy of a call that raises.

    Attributes:
        times: maximum number of retries, without the first run. Losses of nodes are counted separately.
        on: exceptions after which the call is retried.

    Example:
        >>> train(10).with_retries(3, retry_on=(OSError,)).retries.times
    """

    times: int = 0
    on: tuple[type[Exception], ...] = (Exception,)

    @classmethod
    def of(cls, times: int, on: RetryOn | None) -> "Retries":
        """Return the policy for the arguments `retries=` and `retry_on=`.

        Raises:
            SpecError: `times` is not a number of retries, or `on` has a class that no function raises.
        """
        whole(times, "retries", least=0)
        if on is None:
            return cls(times) if times else NO_RETRIES
        if not times:
            raise SpecError("retry_on= has no effect without `retries=`: give both.")
        kinds = (on,) if isinstance(on, type) else tuple(on) if isinstance(on, Iterable) else (on,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise SpecError(
                    f"retry_on must hold classes of exceptions, as in `retry_on=(OSError,)`, but got {shown(kind)}."
                )
            if issubclass(kind, TaskError) and kind is not TaskError and not issubclass(kind, _OWN):
                raise SpecError(
                    f"retry_on takes exceptions that the function raises, but {kind.__name__} is raised by Skyward: a "
                    "task that was cancelled or timed out is not retried; for lost nodes, set the pool's "
                    "`retry_on_interruption=`."
                )
        if not kinds:
            raise SpecError("retry_on is empty, so no call would be retried: name an exception, or leave it out.")
        return cls(times, kinds)

    def covers(self, error: BaseException) -> bool:
        """Return whether a call that raised `error` is retried.

        Errors that would occur again must be named explicitly: a result that cannot be sent, a missing module, a call
        of `sys.exit()`.
        """
        if not self.times or not isinstance(error, self.on):
            return False
        return not isinstance(error, _TO_NAME) or any(issubclass(kind, _TO_NAME) for kind in self.on)


NO_RETRIES = Retries()
