"""Deletion of objects, by the thousand where the store can."""

from collections.abc import Iterable, Iterator
from itertools import islice

from skyward.storage.client import BucketClient
from skyward.storage.location import BucketLocation

__all__ = ["delete"]

_BATCH = 1000


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


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    found = iter(keys)
    while batch := list(islice(found, _BATCH)):
        yield batch


async def _delete(client: BucketClient, keys: list[str]) -> None:
    await client.ask("delete", keys[0] if len(keys) == 1 else None, lambda store: store.delete_async(keys))
