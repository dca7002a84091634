"""Uploads, downloads, listings and deletions as users ask for them: of an object or of a folder."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from skyward.errors import SpecError, StorageError
from skyward.storage.client import BucketClient
from skyward.storage.deletion import delete, delete_below
from skyward.storage.download import download as download_object
from skyward.storage.failures import CHANGED, NO_KEY
from skyward.storage.listing import ObjectEntry, find, list_objects, marker_text
from skyward.storage.location import BucketLocation
from skyward.storage.trees import download_many, files_below, upload_many
from skyward.storage.upload import upload as upload_object
from skyward.transfers.manifest import FolderManifest
from skyward.transfers.progress import shown_progress

__all__ = ["download", "exists", "ls", "rm", "upload"]

_LISTED_FIRST = 100_000
"""Objects that are listed before the first is downloaded, so that their total size is known."""

_PACKAGE = str(Path(__file__).parents[1])

_TRIES = 3
"""Downloads of an object that is changed meanwhile."""


def upload(location: BucketLocation, path: Path, key: str | None, progress: bool | None) -> int:
    """Upload a file or a folder; see `Storage.upload`."""
    if path.is_dir():
        name = path.absolute().name if key is None else key.strip("/")
        return _upload_folder(replace(location, prefix=name), path, progress)
    if key is None or key == "" or key.endswith("/"):
        key = f"{key or ''}{path.name}"
    with shown_progress(path.name, _size(path), progress) as move:
        upload_object(location, path, key, progress=move)
    return 1


def _upload_folder(location: BucketLocation, folder: Path, progress: bool | None) -> int:
    files = list(files_below(folder))
    count = 0

    def written(path: Path, entry: ObjectEntry) -> None:
        nonlocal count
        count += 1
        manifest.add(entry, path)

    with BucketClient(location) as client, FolderManifest(location, folder) as manifest:
        there = {entry.key: entry.etag for entry in list_objects(location, client=client)} if manifest else {}
        files = [(path, key) for path, key in files if not manifest.has(key, there.get(key, ""), path)]
        total = sum(_size(path) for path, _ in files)
        with shown_progress(folder.name, total, progress) as move:
            upload_many(
                location,
                files,
                progress=move,
                on_file=written,
                client=client,
            )
    return count


def _size(path: Path) -> int:
    """Return the size of a file; 0 if it cannot be told, as of one that has gone."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def download(location: BucketLocation, key: str, path: Path | None, progress: bool | None) -> int:
    """Download an object, or the objects below a key; see `Storage.download`."""
    with BucketClient(location) as client:
        found = find(location, key, client=client) if key and not key.endswith("/") else None
        for _ in range(_TRIES - 1):
            if found is None:
                break
            try:
                return _download_file(location, found, path, progress, client)
            except StorageError as error:
                if error.code != CHANGED:
                    raise
            found = find(location, key, client=client)
        if found is not None:
            return _download_file(location, found, path, progress, client)
    name = key.strip("/")
    folder = path or Path(name.rpartition("/")[2] or location.bucket)
    return _download_folder(replace(location, prefix=name), folder, progress)


def _download_file(
    location: BucketLocation, found: ObjectEntry, path: Path | None, progress: bool | None, client: BucketClient
) -> int:
    name = found.key.rpartition("/")[2]
    target = path or Path()
    if path is None or path.is_dir():
        if name in ("", ".", ".."):
            raise StorageError(f"{location.address(found.key)} has no name for a file: give the path of the file.")
        target /= name
    with shown_progress(name, found.size, progress) as move:
        download_object(location, found, target, progress=move, client=client)
    return 1


def _download_folder(location: BucketLocation, folder: Path, progress: bool | None) -> int:
    count = 0

    def written(entry: ObjectEntry) -> None:
        nonlocal count
        count += 1
        manifest.add(entry, folder / entry.key)

    with BucketClient(location) as client, FolderManifest(location, folder) as manifest:
        listed = list_objects(location, client=client, on_marker=partial(_name_marker, location))
        first = list(islice(listed, _LISTED_FIRST))
        if not first:
            if location.prefix:
                raise StorageError(
                    f"There is no object {location.describe}, and none below it: check the key, which is "
                    "case-sensitive.",
                    code=NO_KEY,
                )
            return 0
        wanted = [each for each in first if not manifest.has(each.key, each.etag, folder / each.key)]
        total = sum(each.size for each in wanted) if len(first) < _LISTED_FIRST else None
        others = (each for each in listed if not manifest.has(each.key, each.etag, folder / each.key))
        with shown_progress(folder.name, total, progress) as move:
            download_many(location, chain(wanted, others), folder, progress=move, on_file=written, client=client)
    return count


def ls(location: BucketLocation, prefix: str) -> Iterator[ObjectEntry]:
    """Yield the objects whose keys begin with a text; see `Storage.ls`."""
    return list_objects(location, prefix, on_marker=partial(_name_marker, location))


def _name_marker(location: BucketLocation, marker: ObjectEntry) -> None:
    if text := marker_text(location, marker):
        warnings.warn(text, skip_file_prefixes=(_PACKAGE,))


def exists(location: BucketLocation, key: str) -> bool:
    """Return whether there is an object, or one below it; see `Storage.exists`."""
    with BucketClient(location) as client:
        if key and not key.endswith("/") and find(location, key, client=client) is not None:
            return True
        below = f"{key.rstrip('/')}/" if key else ""
        return next(list_objects(location, below, client=client), None) is not None


def rm(location: BucketLocation, key: str, recursive: bool) -> int:
    """Delete an object, or the objects below a key; see `Storage.rm`."""
    name = key.rstrip("/")
    if not name:
        raise SpecError("rm needs a key: name the objects to delete, since the whole bucket is too easily meant.")
    with BucketClient(location) as client:
        found = find(location, key, client=client)
        if not recursive:
            if found is None:
                raise StorageError(
                    f"There is no object {location.address(key)}: check its key, or write recursive=True for all below "
                    "it.",
                    code=NO_KEY,
                )
            return delete(location, [key], client=client)
        own = [key] if found is not None and not key.endswith("/") else []
        count = delete(location, own, client=client) + delete_below(replace(location, prefix=name), client=client)
        if not count:
            raise StorageError(
                f"There is no object {location.address(key)}, and none below it: check the key, which is "
                "case-sensitive.",
                code=NO_KEY,
            )
        return count
