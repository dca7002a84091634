"""A store for the tests of a file, and a clean environment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.storage import FakeStore, FaultyProxy, object_store


@pytest.fixture(scope="module")
def stores() -> Iterator[FakeStore]:
    """The store of a file of tests."""
    with object_store() as store:
        yield store


@pytest.fixture
def store(stores: FakeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """The store, for a process without credentials of its own."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    return stores


@pytest.fixture
def bucket(store: FakeStore) -> str:
    """An empty bucket."""
    return store.bucket()


@pytest.fixture
def proxy(store: FakeStore) -> Iterator[FaultyProxy]:
    """A proxy in front of the store."""
    with FaultyProxy(store.url) as found:
        yield found
