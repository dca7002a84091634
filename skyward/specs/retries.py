"""How often a call that raises is run again, and for which exceptions."""

from collections.abc import Iterable
from dataclasses import dataclass

from skyward.errors import PayloadError, RemoteError, SpecError, TaskError, TaskExitError
from skyward.values.validation import shown, whole

__all__ = ["NO_RETRIES", "Retries", "RetryOn"]

type RetryOn = type[Exception] | Iterable[type[Exception]]
"""An exception class, or several."""

_TO_NAME = (PayloadError, TaskExitError)
_OWN = (RemoteError, TaskExitError)
"""The errors among `TaskError` that stand for something that the function itself raised or called."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call that raises is run again.

    Attributes:
        times: at most so often, the first run not counted. Losses of nodes are counted apart.
        on: the exceptions after which it is.
    """

    times: int = 0
    on: tuple[type[Exception], ...] = (Exception,)

    @classmethod
    def of(cls, times: int, on: RetryOn | None) -> "Retries":
        """Return what was asked for.

        Raises:
            SpecError: `times` is no number of retries, or `on` holds what is no exception that a function raises.
        """
        whole(times, "retries", least=0)
        if on is None:
            return cls(times) if times else NO_RETRIES
        if not times:
            raise SpecError("retry_on= says after which exceptions `retries=` runs a call again: give `retries=`, too.")
        kinds = (on,) if isinstance(on, type) else tuple(on) if isinstance(on, Iterable) else (on,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise SpecError(
                    f"retry_on must hold classes of exceptions, as in `retry_on=(OSError,)`, but got {shown(kind)}."
                )
            if issubclass(kind, TaskError) and kind is not TaskError and not issubclass(kind, _OWN):
                raise SpecError(
                    f"retry_on takes exceptions that the function raises, and {kind.__name__} is how its task ends: a "
                    "task that was cancelled or timed out does not run again; `retry_on_interruption=` of the pool is "
                    "for lost nodes."
                )
        if not kinds:
            raise SpecError(
                "retry_on is empty, so nothing would ever be run again: name an exception, or leave it out."
            )
        return cls(times, kinds)

    def covers(self, error: BaseException) -> bool:
        """Whether a call that raised `error` is run again.

        What would be no different the next time has to be named: a result that cannot travel, a module that is missing,
        a call of `sys.exit()`.
        """
        if not self.times or not isinstance(error, self.on):
            return False
        return not isinstance(error, _TO_NAME) or any(issubclass(kind, _TO_NAME) for kind in self.on)


NO_RETRIES = Retries()
