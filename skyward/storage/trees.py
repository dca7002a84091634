"""Transfers of many objects: a folder and the objects below a location."""

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.download import Download
from skyward.storage.jobs import WORKERS, ByteProgress, TransferJob, pulled, run_jobs
from skyward.storage.listing import ObjectEntry, safe_key
from skyward.storage.location import BucketLocation, printable
from skyward.storage.upload import Upload

__all__ = ["download_many", "files_below", "upload_many"]


def download_many(
    location: BucketLocation,
    entries: Iterable[ObjectEntry],
    folder: Path,
    *,
    workers: int = WORKERS,
    progress: ByteProgress | None = None,
    on_file: Callable[[ObjectEntry], object] | None = None,
    client: BucketClient | None = None,
) -> None:
    """Download objects to files below a folder, named by their keys.

    Args:
        entries: taken as they are needed, so that a listing may still be under way.
        progress: called with numbers of bytes.
        on_file: called for each object whose file is there, by several threads.

    Raises:
        StorageError: some files failed, and the others are there; or the store does not answer, or the disk is full.
    """
    if client is None:
        with BucketClient(location) as own:
            download_many(location, entries, folder, workers=workers, progress=progress, on_file=on_file, client=own)
        return
    with_parts: list[Download] = []

    async def jobs() -> AsyncIterator[TransferJob]:
        async for entry in pulled(entries):
            path = folder / safe_key(location, entry.key)
            transfer = Download(client, entry, path, progress, None if on_file is None else partial(on_file, entry))
            with_parts[:] = [each for each in with_parts if each.is_unfinished]
            with_parts.append(transfer)
            try:
                async for job in transfer.jobs():
                    yield job
            except StorageError as error:
                yield partial(_fail, error)  # the other files go on

    try:
        run_jobs(jobs(), client, workers)
    finally:
        for each in with_parts:
            each.close()


def upload_many(
    location: BucketLocation,
    files: Iterable[tuple[Path, str]],
    *,
    workers: int = WORKERS,
    progress: ByteProgress | None = None,
    on_file: Callable[[Path, ObjectEntry], object] | None = None,
    client: BucketClient | None = None,
) -> None:
    """Upload files to objects.

    Args:
        files: each with the key of its object, relative to the prefix.
        progress: called with numbers of bytes.
        on_file: called for each file whose object is there, by several threads.

    Raises:
        StorageError: some files failed, and the objects of the others are there; or the store does not answer.
    """
    if client is None:
        with BucketClient(location) as own:
            upload_many(location, files, workers=workers, progress=progress, on_file=on_file, client=own)
        return

    async def jobs() -> AsyncIterator[TransferJob]:
        async for path, key in pulled(files):
            yield Upload(client, path, key, progress, None if on_file is None else partial(on_file, path)).send

    run_jobs(jobs(), client, workers)


async def _fail(error: StorageError) -> None:
    raise error


def files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files below a folder with their relative paths, in order; links are followed.

    Raises:
        StorageError: a folder cannot be read or contains itself by a link, or a file is no regular file.
    """
    yield from _files(folder, "", ())


def _files(folder: Path, below: str, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, str]]:
    with _reading(folder):
        state = os.stat(folder)
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    own = state.st_dev, state.st_ino
    if own in above:
        raise StorageError(f"{printable(str(folder))} leads back to a folder above it by a link: remove the link.")
    for entry in entries:
        path, key = Path(entry.path), f"{below}{entry.name}"
        with _reading(path):  # a link to itself cannot be followed
            is_folder, is_file = entry.is_dir(), entry.is_file()
        if is_folder:
            yield from _files(path, f"{key}/", (*above, own))
        elif is_file:
            yield path, key
        elif entry.is_symlink():
            raise StorageError(f"{printable(entry.path)} is a link to a file that does not exist: remove it.")
        else:
            raise StorageError(f"{printable(entry.path)} is no regular file (a pipe, socket or device): remove it.")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one that names the path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(f"{printable(str(path))} cannot be read ({reason[:1].lower()}{reason[1:]}).") from None
