"""Jobs of a transfer, run by a few threads. All have ended when `run_jobs` returns, also after Ctrl-C."""

from collections.abc import Callable, Iterable
from threading import Condition, Event, Lock, Thread

from skyward.errors import StorageError
from skyward.storage.client import BucketClient, StoppedError
from skyward.storage.replies import CHANGED, NO_KEY

__all__ = ["WORKERS", "ByteProgress", "run_jobs"]

type TransferJob = Callable[[], None]
type ByteProgress = Callable[[int], object]
"""Called with numbers of bytes, from several threads, one at a time; a negative number takes bytes back."""

WORKERS = 16
"""Requests at a time."""

_POLL = 0.2
_MOST_ERRORS = 20
"""Number of failed files after which a transfer of many stops."""


def run_jobs(
    jobs: Iterable[TransferJob], client: BucketClient, workers: int = WORKERS, stop: Event | None = None
) -> None:
    """Run jobs, at most `workers` at a time; a job is taken from the iterator when a thread is free.

    A job that fails with a `StorageError` about its own file does not keep the others from running.

    Args:
        stop: ends the transfer when it is set.

    Raises:
        StorageError: jobs failed; one sentence with the files. Or the transfer was stopped.
    """
    run = _Run(iter(jobs), client, workers)
    try:
        run.start()
        while not run.wait(_POLL):
            if stop is not None and stop.is_set():
                client.stop()
    except BaseException:
        client.stop()
        raise
    finally:
        run.join()
    if run.fatal is not None:
        raise run.fatal
    if run.errors:
        raise _together(run.errors)
    if stop is not None and stop.is_set() and run.is_unfinished:
        raise StorageError("The transfer was stopped before its end.", code="Stopped")


class _Run:
    def __init__(self, jobs: Iterable[TransferJob], client: BucketClient, workers: int) -> None:
        self.errors: list[StorageError] = []
        self.fatal: BaseException | None = None
        self.is_unfinished = False
        self._jobs = iter(jobs)
        self._next = Lock()
        self._client = client
        self._workers = max(1, workers)
        self._threads: list[Thread] = []
        self._changed = Condition()
        self._running = 0

    def start(self) -> None:
        """Start the first thread; each starts another one as long as there are jobs."""
        with self._changed:
            self._add()

    def _add(self) -> None:
        thread = Thread(target=self._work, name=f"skyward-storage-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        self._running += 1
        thread.start()

    def wait(self, seconds: float) -> bool:
        """Return whether all threads have ended, within some seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, seconds)

    def join(self) -> None:
        """Wait for the end of all threads."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        try:
            while (job := self._take()) is not None:
                try:
                    job()
                except StorageError as error:
                    self._failed(error)
        except StoppedError:
            self.is_unfinished = True
        except BaseException as error:
            self._end(error)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _take(self) -> TransferJob | None:
        if self._client.stopped.is_set():
            raise StoppedError
        with self._next:  # a generator is not for several threads
            job = next(self._jobs, None)
        if job is not None:
            with self._changed:
                if self._running == len(self._threads) < self._workers:
                    self._add()
        return job

    def _failed(self, error: StorageError) -> None:
        with self._changed:
            self.errors.append(error)
            is_over = len(self.errors) >= _MOST_ERRORS or not _is_about_a_file(error)
        if is_over:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        with self._changed:
            if self.fatal is None:
                # Errors of files say more than that of the transfer as a whole only if there is none.
                self.fatal = _together(self.errors) if isinstance(error, StorageError) and self.errors else error
        self._client.stop()


def _is_about_a_file(error: StorageError) -> bool:
    return bool(error.names) or error.code in (NO_KEY, CHANGED)


def _together(errors: list[StorageError]) -> StorageError:
    """Return one error for those of several files."""
    if len(errors) == 1:
        return errors[0]
    decisive = next((each for each in errors if not _is_about_a_file(each)), None)
    if decisive is not None:
        return decisive
    names = tuple(name for each in errors for name in each.names)
    return StorageError(f"{len(errors)} files failed. {errors[0]}", code=errors[0].code, names=names)
