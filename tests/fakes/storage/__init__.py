"""An object store over HTTP: moto's, in this process, and a proxy in front of it that makes mistakes."""

from tests.fakes.storage.proxy import FaultyProxy, Mistake
from tests.fakes.storage.store import ACCESS_KEY, SECRET_KEY, FakeStore, object_store

__all__ = ["ACCESS_KEY", "SECRET_KEY", "FakeStore", "FaultyProxy", "Mistake", "object_store"]
