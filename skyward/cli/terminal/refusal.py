"""Errors that a command finds before it has done anything."""

from collections.abc import Iterator
from contextlib import contextmanager

from skyward.errors import PayloadError, SpecError, UsageError

__all__ = ["refusing"]


@contextmanager
def refusing() -> Iterator[None]:
    """Let errors raised within the context end the command as a wrong value does: nothing was done.

    Raises:
        SpecError: the files or values that the user named cannot be used.
    """
    try:
        yield
    except (UsageError, PayloadError) as error:
        raise SpecError(str(error)) from None
