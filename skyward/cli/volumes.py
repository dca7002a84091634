"""`skyward volume`: the objects of buckets, which volumes show on nodes."""

import contextlib
import re
import warnings
from typing import TYPE_CHECKING

from skyward.cli.terminal.answers import ask, say, write_json, write_lines, write_table
from skyward.errors import CredentialsError, SpecError, StorageError
from skyward.storage.failures import NO_BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skyward.specs.storage import Storage

__all__ = ["get", "list_objects", "put", "remove"]

_PLACE = re.compile(r"(?:(?P<storage>[\w.-]+)://)?(?P<bucket>[^/:]+)(?:/(?P<key>.*))?", re.ASCII)


def list_objects(*, place: str, json: bool = False) -> int:
    """Print the objects below a place."""
    from datetime import datetime

    from skyward.formatting import size_text
    from skyward.views.drawing import grid

    with _located(place) as (storage, bucket, key):
        found = storage.ls(bucket, key)
    if json:
        write_json([{"key": each.key, "size": each.size, "modified": each.modified} for each in found])
    elif found:
        rows = [
            (size_text(each.size), f"{datetime.fromtimestamp(each.modified):%Y-%m-%d %H:%M}", each.key)
            for each in found
        ]
        write_table(grid(("size", "modified", "key"), rows, right=("size",)))
    else:
        write_lines([f"There are no objects in {place}."])
    return 0


def put(*, path: str, place: str) -> int:
    """Upload a file or a folder."""
    with _located(place) as (storage, bucket, key):
        count = storage.upload(bucket, path, key or None)
    say(f"{_objects(count)} written to {place}.")
    return 0


def get(*, place: str, path: str | None = None) -> int:
    """Download an object, or all below a key."""
    with _located(place) as (storage, bucket, key):
        count = storage.download(bucket, key, path)
    say(f"{count} {'file' if count == 1 else 'files'} written from {place}.")
    return 0


def remove(*, place: str, recursive: bool = False, yes: bool = False) -> int:
    """Delete an object, or all below a key."""
    with _located(place) as (storage, bucket, key):
        if not key.strip("/"):
            raise SpecError(f"{place} names no object: give its key, since the whole bucket is too easily meant.")
        what = f"all objects below {place}" if recursive else place
        if not ask(f"Delete {what}?", yes=yes):
            say("nothing was deleted.")
            return 1
        count = storage.rm(bucket, key, recursive)
    say(f"{_objects(count)} deleted.")
    return 0


def _objects(count: int) -> str:
    return f"{count} {'object' if count == 1 else 'objects'}"


@contextlib.contextmanager
def _located(place: str) -> "Iterator[tuple[Storage, str, str]]":
    """Give the storage, the bucket and the key of a place; errors in the block say if a storage's name is missing.

    Raises:
        SpecError: it is none, or names a storage that skyward.toml does not have.
    """
    from skyward.config import load
    from skyward.specs.storage import Storage, checked_bucket

    found = _PLACE.fullmatch(place)
    try:
        checked_bucket(found and found["bucket"], "bucket")
    except SpecError:
        found = None
    if found is None:
        raise SpecError(
            f"{place!r} is no place in a bucket: write s3://BUCKET/KEY, or NAME://BUCKET/KEY for a storage of "
            "skyward.toml."
        )
    match (found["storage"] or "s3").lower():
        case "s3":
            storage = Storage.s3()
        case "gs":
            storage = Storage.gcs()
        case _:
            storage = load().storage(found["storage"])
    try:
        with warnings.catch_warnings(record=True, action="always", category=UserWarning) as left_out:
            yield storage, found["bucket"], found["key"] or ""
        for each in left_out:
            say(_as_typed(str(each.message), found))
    except StorageError as error:
        text = _as_typed(str(error), found)
        if error.code == NO_BUCKET:
            text += _with_storage(place, found)
        raise StorageError(text, code=error.code, names=error.names) from None
    except CredentialsError as error:
        raise CredentialsError(f"{error}{_with_storage(place, found)}") from None


def _as_typed(text: str, found: re.Match[str]) -> str:
    """Return a sentence with the storage of the place as it was typed, and with the option in place of the argument."""
    bucket = found["bucket"]
    return text.replace(f"s3://{bucket}", f"{found['storage'] or 's3'}://{bucket}").replace(
        "write recursive=True for", "give -r for"
    )


def _with_storage(place: str, found: re.Match[str]) -> str:
    """Return how to write a place whose storage is not named, if skyward.toml has storages; else ""."""
    from skyward.config import load

    if found["storage"] or not (names := load().storages):
        return ""
    others = " or ".join(f"{name}://{place}" for name in names)
    return f" A place without the name of a storage is at AWS: write {others} for a table of skyward.toml."
