"""Deletion of objects, by the thousand where the store can."""

from collections.abc import Iterable, Iterator
from itertools import islice

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.listing import ObjectEntry, find, list_objects
from skyward.storage.location import BucketLocation

__all__ = ["delete", "delete_below"]

_BATCH = 1000
_TOGETHER_WITHIN = 3.0
"""Seconds for which a store is asked to delete several objects with one request, before it is asked for each."""

_NO_SUCH_REQUEST = frozenset({"MethodNotAllowed", "NotImplemented"})
_BUSY = frozenset({"InternalError", "ServiceUnavailable", "SlowDown", "Unreachable"})


def delete(location: BucketLocation, keys: Iterable[str], *, client: BucketClient | None = None) -> int:
    """Delete objects; those that are not there count as deleted. Return their number.

    Args:
        keys: relative to the prefix.

    Raises:
        StorageError: the store refuses. Some objects may have been deleted.
    """
    if client is None:
        with BucketClient(location) as own:
            return delete(location, keys, client=own)
    count = 0
    for batch in _batches(location.root + key for key in keys):
        client.run(_delete(client, batch))
        count += len(batch)
    return count


def delete_below(location: BucketLocation, *, client: BucketClient) -> int:
    """Delete all objects below a location, also those that only mark a folder; return their number.

    Raises:
        StorageError: the store refuses. Some objects may have been deleted.
    """
    listed, marked = set[str](), set[str]()

    def keys() -> Iterator[str]:
        for entry in list_objects(location, client=client, on_marker=lambda marker: marked.add(marker.key)):
            listed.add(entry.key)
            yield entry.key

    delete(location, keys(), client=client)
    markers: list[ObjectEntry] = []
    left = list(list_objects(location, client=client, on_marker=markers.append))
    markers += [each for each in left if find(location, each.key, client=client) is None]  # the others are new
    client.run(_delete_markers(client, [(location.root + each.key).rstrip("/") for each in markers]))
    return len(listed) + sum(each.key in marked or each.key not in listed for each in markers)


async def _delete_markers(client: BucketClient, keys: list[str]) -> None:
    for key in keys:
        await _delete_marker(client, key)


async def _delete_marker(client: BucketClient, key: str) -> None:
    await client.ask("delete", f"{key}/", lambda _: client.marker(key).delete_async(""))


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    found = iter(keys)
    while batch := list(islice(found, _BATCH)):
        yield batch


async def _delete(client: BucketClient, keys: list[str]) -> None:
    if client.deletes_together:
        try:
            return await _ask(client, keys, _TOGETHER_WITHIN)
        except StorageError as error:
            if error.code.startswith("HTTP") or error.code in _NO_SUCH_REQUEST:
                client.deletes_together = False
            elif error.code not in _BUSY:
                raise
    await _ask(client, keys)


async def _ask(client: BucketClient, keys: list[str], patience: float | None = None) -> None:
    key = keys[0] if len(keys) == 1 else None
    await client.ask("delete", key, lambda store: store.delete_async(keys), patience=patience)
