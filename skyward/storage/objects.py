"""Objects of a location: listing, and transfers in parts."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from skyward.errors import StorageError
from skyward.storage.location import BucketLocation


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object: its key below the prefix, its size, its ETag, and its modification time."""

    key: str
    size: int
    etag: str
    modified: float


@lru_cache(32)
def _store(location: BucketLocation) -> Any:
    from obstore.store import S3Store

    keys: dict[str, Any] = {}
    if location.access_key:
        keys = {"access_key_id": location.access_key, "secret_access_key": location.secret_key}
    if location.session_token:
        keys["session_token"] = location.session_token
    if location.endpoint:
        keys["endpoint"] = location.endpoint
    return S3Store(
        location.bucket,
        prefix=location.prefix or None,
        region=location.region or "us-east-1",
        virtual_hosted_style_request=not location.path_style,
        client_options={"allow_http": True, "connect_timeout": "5s", "timeout": "60s"},
        retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=20)},
        **keys,
    )


def _failed(location: BucketLocation, key: str, error: Exception) -> StorageError:
    return StorageError(f"{location.address(key)}: {type(error).__name__}: {str(error).splitlines()[0][:200]}")


def list_objects(location: BucketLocation) -> Iterator[ObjectEntry]:
    """Yield the objects."""
    import obstore

    try:
        for page in obstore.list(_store(location)):
            for each in page:
                yield ObjectEntry(each["path"], each["size"], each["e_tag"] or "", each["last_modified"].timestamp())
    except Exception as error:
        raise _failed(location, "", error) from error


def check(location: BucketLocation) -> None:
    """Check that the bucket answers."""
    next(list_objects(location), None)


def find(location: BucketLocation, key: str) -> ObjectEntry | None:
    """Return an object; None if there is none."""
    import obstore

    try:
        each = obstore.head(_store(location), key)
    except FileNotFoundError:
        return None
    except Exception as error:
        raise _failed(location, key, error) from error
    return ObjectEntry(key, each["size"], each["e_tag"] or "", each["last_modified"].timestamp())


def download(location: BucketLocation, entry: ObjectEntry, target: Path, progress: Callable[[int], None]) -> None:
    """Download an object."""
    import obstore

    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        got = obstore.get(_store(location), entry.key, options={"if_match": entry.etag})
        with part.open("wb") as file:
            for chunk in got.stream(min_chunk_size=1 << 20):
                file.write(memoryview(chunk))
                progress(len(chunk))
    except OSError:
        raise
    except Exception as error:
        raise _failed(location, entry.key, error) from error
    os.replace(part, target)


def download_many(
    location: BucketLocation, entries: Sequence[ObjectEntry], folder: Path, progress: Callable[[int], None]
) -> None:
    """Download objects."""
    with ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(download, location, each, folder / each.key, progress) for each in entries]:
            done.result()


def upload(location: BucketLocation, path: Path, key: str) -> ObjectEntry:
    """Upload a file."""
    import obstore

    try:
        size = path.stat().st_size
        done = obstore.put(_store(location), key, path)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise _failed(location, key, error) from error
    return ObjectEntry(key, size, done["e_tag"] or "", 0.0)


def delete(location: BucketLocation, keys: Sequence[str]) -> None:
    """Delete objects."""
    import obstore

    try:
        obstore.delete(_store(location), list(keys))
    except Exception as error:
        raise _failed(location, "", error) from error
