"""Objects below a location: listed page by page, looked up, and the check that a store answers."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from skyward.errors import StorageError
from skyward.formatting import size_text
from skyward.storage.client import BucketClient
from skyward.storage.failures import NO_KEY, Refusal
from skyward.storage.location import BucketLocation, printable

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Store

__all__ = ["ObjectEntry", "check", "find", "find_object", "head", "list_objects", "marker_text", "safe_key"]

_PAGE = 1000
_CHECK_WITHIN = 15.0
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """Object of a store.

    Attributes:
        key: relative to the prefix of its location.
        size: in bytes.
        etag: version tag of its content, with its quotes; "" if the store has none.
        modified: time of its last change, seconds since the epoch; 0 if not known.

    Example:
        >>> for entry in sky.Storage.s3().ls("datasets", "train/"):
        ...     print(entry.key, entry.size)
    """

    key: str
    size: int
    etag: str = ""
    modified: float = 0.0


def list_objects(
    location: BucketLocation,
    start: str = "",
    *,
    client: BucketClient | None = None,
    on_marker: Callable[[ObjectEntry], object] | None = None,
) -> Iterator[ObjectEntry]:
    """Yield the objects below a location, in the order of their keys, as pages arrive.

    Objects whose keys end with a slash only mark a folder, and are left out, also if they have content.

    Args:
        start: text that the keys, relative to the prefix, begin with; it need not end with a part of them.
        on_marker: called with each object that is left out, with its key without the slash.

    Raises:
        StorageError: the store refuses, or there is a key that could not be a file below a folder.
    """
    if client is None:
        with BucketClient(location) as own:
            yield from list_objects(location, start, client=own, on_marker=on_marker)
        return
    folder, _, name = start.rpartition("/")
    if name and (own_entry := find(location, start, client=client)) is not None:
        yield own_entry
    below = (location.root + folder).strip("/")
    pages = _pages(client, location, below, location.root + start if name else None)
    while (page := client.run(_next(pages))) is not None:
        for entry, is_there in page:
            if not is_there:
                if on_marker is not None:
                    on_marker(entry)
                continue
            if not entry.key.startswith(start):
                return  # keys come in order
            yield entry


def marker_text(location: BucketLocation, marker: ObjectEntry) -> str:
    """Return a sentence on a marker that is left out although it has content; "" if it has none."""
    if not marker.size:
        return ""
    return (
        f"{location.address(marker.key)}/ is left out with its {size_text(marker.size)}: an object whose key ends with "
        "a slash only marks a folder."
    )


type _Page = list[tuple[ObjectEntry, bool]]
"""Objects, each with whether there is one of this key."""


async def _next(pages: AsyncIterator[_Page]) -> _Page | None:
    return await anext(pages, None)


async def _pages(client: BucketClient, location: BucketLocation, below: str, after: str | None) -> AsyncIterator[_Page]:
    """Yield pages of the objects below a key and after another one."""
    stream: Any = None
    has_begun = False

    async def page(store: "S3Store") -> "list[ObjectMeta] | None":
        nonlocal stream
        if stream is None:
            stream = store.list(below or None, offset=after, chunk_size=_PAGE)
        try:
            return await anext(stream, None)
        except Exception as error:
            stream = None  # it is at its end
            if has_begun:  # another one would begin with the first page
                raise Refusal.of(error).error(location, "list", below or None) from None
            raise

    held: list[ObjectEntry] = []  # the last one of a page: the next page may begin with what is below it
    last = ""
    while found := await client.ask("list", below or None, page):
        has_begun = True
        entries = held + [entry_of(each, location.root) for each in found]
        held = [entries.pop()]
        if entries:
            yield await _looked_at(client, location, entries, last, held[0])
            last = entries[-1].key
    if held:
        yield await _looked_at(client, location, held, last, None)


async def _looked_at(
    client: BucketClient, location: BucketLocation, entries: list[ObjectEntry], before: str, after: ObjectEntry | None
) -> _Page:
    """Return objects, each with whether it is there: obstore lists "folder/" as "folder".

    Args:
        before: the key that was listed before these; "" if there was none.
        after: the object that is listed after them, if there is one.
    """
    keys = [before, *(each.key for each in entries), "" if after is None else after.key]
    doubtful = {
        place: entry
        for place, entry in enumerate(entries)
        if not entry.size or not entry.key or keys[place + 2].startswith(f"{entry.key}/")
    }
    room = asyncio.Semaphore(16)

    async def is_there(place: int, entry: ObjectEntry) -> bool:
        if not entry.key or entry.key in keys[: place + 1]:  # "folder/" comes after "folder"
            return False
        async with room:
            return await find_object(client, location, entry.key) is not None

    there = dict(zip(doubtful, await asyncio.gather(*(is_there(*each) for each in doubtful.items())), strict=True))
    return [(entry, there.get(place, True)) for place, entry in enumerate(entries)]


def find(location: BucketLocation, key: str, *, client: BucketClient | None = None) -> ObjectEntry | None:
    """Return an object; None if there is none of this key.

    Args:
        key: relative to the prefix.

    Raises:
        StorageError: the store refuses, or there is no such bucket.
    """
    if client is None:
        with BucketClient(location) as own:
            return find(location, key, client=own)
    return client.run(_find(client, location, key))


async def _find(client: BucketClient, location: BucketLocation, key: str) -> ObjectEntry | None:
    found = await find_object(client, location, key)
    if found is None:
        await _first_page(client, None)  # is there such a bucket? A reply to HEAD does not say
    return found


async def find_object(client: BucketClient, location: BucketLocation, key: str) -> ObjectEntry | None:
    """Return an object; None if there is none of this key, or no such bucket."""
    whole = location.root + key
    meta = await client.ask("read", whole, lambda store: store.head_async(whole), missing=_MISSING)
    return None if meta is _MISSING else entry_of(meta, location.root)


def head(location: BucketLocation, key: str, *, client: BucketClient | None = None) -> ObjectEntry:
    """Return an object.

    Args:
        key: relative to the prefix.

    Raises:
        StorageError: there is no such object, or the store refuses.
    """
    found = find(location, key, client=client)
    if found is None:
        raise StorageError(
            f"There is no object {location.address(key)}: check its key, which is case-sensitive.", code=NO_KEY
        )
    return found


def entry_of(meta: "ObjectMeta", root: str) -> ObjectEntry:
    """Return the object that obstore describes; `root` is cut from its key."""
    return ObjectEntry(meta["path"][len(root) :], meta["size"], meta["e_tag"] or "", meta["last_modified"].timestamp())


def check(location: BucketLocation, *, within: float = _CHECK_WITHIN) -> BucketLocation:
    """Check that the store answers, and that the credentials may list the prefix. Return the location with its region.

    Args:
        within: seconds that it may take.

    Raises:
        StorageError: it does not: one sentence about the endpoint, the region, the bucket or the credentials.
    """
    with BucketClient(location, first_reply=within, patience=within) as client:
        client.run(_first_page(client, location.prefix or None))
        client.run(_is_a_store(client, location))
        return replace(location, region=client.region)


async def _is_a_store(client: BucketClient, location: BucketLocation) -> None:
    """Check that there is no object of a random key: a page of a website, or of a proxy, would be taken for a listing.

    Raises:
        StorageError: there is one.
    """
    try:
        found = await find_object(client, location, f"skyward-check-{os.urandom(8).hex()}")
    except StorageError as error:
        if error.code != "AccessDenied":  # these credentials may list only
            raise
        found = None
    if found is not None:
        raise StorageError(
            f"{location.store} does not answer as an object store does: check the endpoint, and that no proxy answers "
            "in its place."
        )


async def _first_page(client: BucketClient, prefix: str | None) -> None:
    async def page(store: "S3Store") -> object:
        return await anext(store.list(prefix, chunk_size=1), None)

    await client.ask("list", prefix, page)


def safe_key(location: BucketLocation, key: str) -> str:
    """Return a relative key that may be the path of a file below a folder.

    Raises:
        StorageError: it may not: it would be a file elsewhere, or the same file as that of another key.
    """
    if any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
        raise StorageError(
            f"The object {location.address(key)!r} cannot be a file below a folder, because a part of its key is "
            "empty, '.' or '..': rename it in the store, or choose a prefix without it.",
            names=(printable(key),),
        )
    return key
