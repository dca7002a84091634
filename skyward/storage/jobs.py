"""Jobs of a transfer, a few at a time. All have ended when `run_jobs` returns, also after Ctrl-C."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from skyward.errors import StorageError
from skyward.formatting import joined
from skyward.storage.client import BucketClient, StoppedError
from skyward.storage.failures import CHANGED, NO_KEY, STOPPED, may_pass
from skyward.storage.location import printable

__all__ = ["WORKERS", "ByteProgress", "TransferJob", "pulled", "run_jobs"]

type TransferJob = Callable[[], Awaitable[None]]
type ByteProgress = Callable[[int], object]
"""Called with numbers of bytes, by a thread of the transfer."""

WORKERS = 16
"""Requests at a time."""

_MOST_ERRORS = 20
"""Number of failed files after which a transfer of many stops."""

_NAMED = 5
"""Failed files that a message names at most; all are in `names` of the error."""

_PULLED = 64
"""Items that are taken from an iterator at a time."""


def run_jobs(jobs: AsyncIterator[TransferJob], client: BucketClient, workers: int = WORKERS) -> None:
    """Run jobs, at most `workers` at a time; a job is taken from the iterator when there is room for it.

    A job that fails with a `StorageError` about its own file does not keep the others from running.

    Raises:
        StorageError: jobs failed; one sentence with the files. Or the client was stopped.
    """
    try:
        errors = client.run(_run(jobs, max(1, workers)))
    except StoppedError:
        raise StorageError("The transfer was stopped before its end.", code=STOPPED) from None
    if errors:
        raise _together(errors)


async def pulled[T](items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items of an iterable that may wait for something, as a listing does, or for the disk."""
    loop = asyncio.get_running_loop()
    found = iter(items)
    thread = ThreadPoolExecutor(1, thread_name_prefix="skyward-storage-items")
    try:
        while batch := await loop.run_in_executor(thread, lambda: list(islice(found, _PULLED))):
            for item in batch:
                yield item
    finally:
        thread.shutdown(wait=False)


async def _run(jobs: AsyncIterator[TransferJob], workers: int) -> list[StorageError]:
    """Run the jobs; return the errors that were about single files.

    Raises:
        StorageError: one that ends the transfer.
    """
    errors: list[StorageError] = []
    turn = asyncio.Lock()

    async def work() -> None:
        while True:
            async with turn:
                job = await anext(jobs, None)
            if job is None:
                return
            try:
                await job()
            except StorageError as error:
                errors.append(error)
                if len(errors) >= _MOST_ERRORS or not _is_about_a_file(error):
                    raise

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work())
    except BaseExceptionGroup as failed:
        if errors:
            raise _together(errors) from None
        raise failed.exceptions[0] from None
    return errors


def _is_about_a_file(error: StorageError) -> bool:
    return bool(error.names) or error.code in (NO_KEY, CHANGED)


def _together(errors: list[StorageError]) -> StorageError:
    """Return one error for those of several files."""
    decisive = next((each for each in errors if not _is_about_a_file(each)), errors[0])
    if len(errors) == 1 or not _is_about_a_file(decisive):
        return decisive
    names = tuple(dict.fromkeys(name for each in errors for name in each.names))
    reasons = tuple(dict.fromkeys(map(str, errors)))
    if len(reasons) == 1:
        shown = f": {joined(map(printable, names), _NAMED)}" if names else ""
        text = f"{len(errors)} files failed{shown}. {reasons[0]}"
    else:
        others = [printable(each) for each in names if each not in errors[0].names]
        shown = f" The other{'s' if len(others) > 1 else ''}: {joined(others, _NAMED)}." if others else ""
        text = f"{len(errors)} files failed. The first one: {reasons[0]}{shown}"
    return StorageError(text, code=_code_of([each.code for each in errors]), names=names)


def _code_of(codes: list[str]) -> str:
    """Return a code of several: one that may pass, if there is one; else the first that is not empty."""
    return next((each for each in codes if may_pass(each)), next(filter(None, codes), ""))
