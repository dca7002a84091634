"""A bucket for tests of volumes, in a store that runs in this process."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import skyward as sky
from tests.fakes import storage

__all__ = ["SECRET_KEY", "Bucket", "object_store"]

SECRET_KEY = storage.SECRET_KEY


@dataclass(frozen=True)
class Bucket:
    """A bucket of a store.

    Attributes:
        name: its name.
        store: the store.
    """

    name: str
    store: storage.FakeStore

    def storage(self, host: str = "127.0.0.1") -> sky.Storage:
        """Return the store as users write it, at an address of this host, or at an endpoint."""
        endpoint = host if "://" in host else f"http://{host}:{urlsplit(self.store.url).port}"
        return self.store.storage(endpoint)

    def put(self, key: str, data: bytes | str) -> None:
        """Write an object."""
        self.store.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        """Read an object."""
        return self.store.get(self.name, key)

    def clear(self) -> None:
        """Delete all objects."""
        while keys := self.store.keys(self.name):  # a page of them
            for key in keys:
                self.store.client.delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of the objects, without those that mark folders."""
        return sorted(key for key in self.store.keys(self.name) if key.startswith(prefix) and not key.endswith("/"))


@contextlib.contextmanager
def object_store(host: str = "127.0.0.1", name: str = "bucket") -> Iterator[Bucket]:
    """Run a store with an empty bucket, which listens at an address of this host.

    All stores of this process have the same buckets, so the bucket is removed at the end.
    """
    with storage.object_store(host) as store:
        store.client.create_bucket(Bucket=name)
        bucket = Bucket(name, store)
        yield bucket
        with contextlib.suppress(store.client.exceptions.NoSuchBucket):
            bucket.clear()
            store.client.delete_bucket(Bucket=name)
