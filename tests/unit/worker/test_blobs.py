"""The blob store of a node: each task reads or maps a copy of its own, and neither memory nor descriptors leak."""

import mmap
import os
import resource
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward.worker.blobs import store as blobs
from skyward.worker.blobs.store import BlobStore, read_place
from tests.unit.worker.blob_files import memory_held, open_blobs

pytestmark = pytest.mark.unit

OWN = 4096
"""Bytes from which a blob has a file of its own in these tests."""


@pytest.fixture(autouse=True, scope="module")
def _small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "OWN_FROM", OWN)
        yield


@given(st.lists(st.binary(min_size=1, max_size=10_000), max_size=5))
@settings(max_examples=40)
def test_kept_buffers_can_be_mapped_and_dropped(parts: list[bytes]) -> None:
    before, held = open_blobs(), memory_held()
    store = BlobStore()
    keys = [store.keep(memoryview(part)) for part in parts]
    assert len(set(keys)) == len(parts)
    assert [bytes(store.read(key)) for key in keys] == parts
    assert [store.get(key).size for key in keys] == [len(part) for part in parts]
    assert open_blobs() == before + sum(len(part) >= OWN for part in parts) + any(len(part) < OWN for part in parts)
    store.drop(tuple(keys))
    assert memory_held() == held
    del store
    assert open_blobs() == before


def test_writes_to_a_map_are_private() -> None:
    store = BlobStore()
    key = store.keep(memoryview(b"abc"))
    one, other = store.read(key), store.read(key)
    one[0] = ord("X")
    assert (bytes(one), bytes(other), bytes(store.read(key))) == (b"Xbc", b"abc", b"abc")
    store.drop((key,))


def test_sizes_list_sent_blobs_and_no_results() -> None:
    """A new client would take results for arguments, and drop them before it has fetched them."""
    store = BlobStore()
    store.publish(b"k", store.reserve(3))
    result = store.keep(memoryview(b"abc"))
    adopted = store.adopt(store.get(result).place)
    assert store.sizes() == {b"k": 3}
    store.drop((b"k", result, adopted))
    assert store.sizes() == {}


def test_map_outlives_its_blob() -> None:
    store = BlobStore()
    key = store.keep(memoryview(b"abc"))
    view = store.read(key)
    store.drop((key, key, b"unknown"))
    assert bytes(view) == b"abc"
    with pytest.raises(KeyError):
        store.read(key)
    with pytest.raises(KeyError):
        store.get(key)


def test_multidimensional_buffers_are_kept_flat() -> None:
    store = BlobStore()
    grid = memoryview(bytes(range(12))).cast("B", (3, 4))
    key = store.keep(grid)
    assert bytes(store.read(key)) == bytes(range(12))
    store.drop((key,))


def publish(store: BlobStore, key: bytes, data: bytes) -> None:
    blob = store.reserve(len(data))
    blob.write(memoryview(data), 0)
    store.publish(key, blob)


@pytest.mark.parametrize("data", [b"content", b"content" * OWN], ids=["shared", "own"])
class TestHolding:
    def test_repeated_blob_is_stored_once(self, data: bytes) -> None:
        held = memory_held()
        store = BlobStore()
        publish(store, b"key", data)
        once, place = memory_held(), store.get(b"key").place
        publish(store, b"key", data)
        assert store.get(b"key").place == place  # another process may be about to open it
        assert memory_held() == once
        store.drop((b"key",))
        assert memory_held() == held

    def test_held_blob_outlives_its_drop_until_the_last_release(self, data: bytes) -> None:
        held = memory_held()
        store = BlobStore()
        publish(store, b"key", data)
        assert store.hold([b"key", b"unknown", b"key"]) == [b"key", b"key"]
        store.drop([b"key"])
        store.release([b"key"])
        assert bytes(store.read(b"key")) == data
        store.release([b"key"])
        assert memory_held() == held
        with pytest.raises(KeyError):
            store.get(b"key")

    def test_publishing_a_held_blob_cancels_its_drop(self, data: bytes) -> None:
        store = BlobStore()
        publish(store, b"key", data)
        store.hold([b"key"])
        store.drop([b"key"])
        publish(store, b"key", data)
        store.release([b"key"])
        assert bytes(store.read(b"key")) == data

    def test_incomplete_blob_frees_its_memory(self, data: bytes) -> None:
        held = memory_held()
        store = BlobStore()
        blob = store.reserve(2 * len(data))
        blob.write(memoryview(data), 0)
        assert memory_held() > held
        del blob
        assert memory_held() == held

    def test_dropped_blob_stays_valid_for_its_readers(self, data: bytes) -> None:
        """Its memory is neither freed nor reused while it has a reader."""
        store = BlobStore()
        publish(store, b"key", data)
        read, blob = store.read(b"key"), store.get(b"key")
        store.drop([b"key"])
        publish(store, b"other", bytes(len(data)))
        assert os.pread(blob.fd, blob.size, blob.start) == data
        assert bytes(read) == data
        del blob
        assert bytes(read) == data

    def test_forked_process_does_not_free_blobs_of_its_parent(self, data: bytes) -> None:
        """It shares the memory, and its exit, which finalizes all objects, must not free the blobs."""
        store = BlobStore()
        publish(store, b"key", data)
        child = os.fork()
        if child == 0:
            store.drop([b"key"])
            del store
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert bytes(store.read(b"key")) == data


def test_small_blobs_share_one_descriptor() -> None:
    before, held = open_blobs(), memory_held()
    store = BlobStore()
    keys = [store.keep(memoryview(b"%d" % number * 100)) for number in range(1000)]
    assert open_blobs() == before + 1
    store.drop(keys[1:])
    assert memory_held() - held <= 2 * mmap.PAGESIZE
    assert bytes(store.read(keys[0])) == b"0" * 100


def test_large_blobs_past_the_descriptor_limit_are_stored_like_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blobs, "_limit", {resource.RLIMIT_NOFILE: 40, resource.RLIMIT_FSIZE: sys.maxsize}.get)
    before, held = open_blobs(), memory_held()
    store = BlobStore()
    parts = [bytes([number]) * OWN for number in range(30)]
    keys = [store.keep(memoryview(part)) for part in parts]
    assert open_blobs() - before == 40 // 4 + 1
    assert [bytes(store.read(key)) for key in keys] == parts
    adopted = store.adopt(store.get(keys[0]).place)
    assert open_blobs() - before == 40 // 4 + 1
    assert bytes(store.read(adopted)) == parts[0]
    store.drop([*keys, adopted])
    assert open_blobs() - before == 1
    assert memory_held() == held
    store.keep(memoryview(parts[0]))
    assert open_blobs() - before == 2


def test_maps_hold_no_descriptors() -> None:
    if sys.version_info < (3, 13):
        pytest.skip("a map of Python 3.12 holds a descriptor")
    store = BlobStore()
    key = store.keep(memoryview(bytes(OWN)))
    before = open_blobs()
    kept = [store.read(key) for _ in range(100)]
    assert open_blobs() == before
    assert len(kept) == 100


def test_file_size_limit_starts_another_shared_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "_limit", {resource.RLIMIT_FSIZE: 3 * mmap.PAGESIZE}.get)
    before = open_blobs()
    store = BlobStore()
    keys = [store.keep(memoryview(b"%d" % number)) for number in range(10)]
    assert [bytes(store.read(key)) for key in keys] == [b"%d" % number for number in range(10)]
    assert open_blobs() - before == 4
    store.drop(keys)
    assert open_blobs() - before == 1


def test_blob_beyond_free_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = memory_held()
    store = BlobStore()
    monkeypatch.setattr(blobs, "free_memory", lambda: 200 * 2**20)
    with pytest.raises(MemoryError, match="500,000,000 bytes are needed, and 75,497,472 bytes of memory are free"):
        store.reserve(500_000_000)
    assert store.reserve(50 * 2**20).size == 50 * 2**20
    monkeypatch.setattr(blobs, "free_memory", lambda: 0)
    with pytest.raises(MemoryError):
        for _ in range(1000):  # small blobs add up, too
            store.keep(memoryview(bytes(100_000)))
    assert memory_held() - held < 10_000_000


def test_blob_of_another_process_is_adopted() -> None:
    child, store = BlobStore(), BlobStore()
    theirs = child.keep(memoryview(b"result"))
    blob = child.get(theirs)
    key = store.adopt(blob.place)
    child.drop((theirs,))
    del blob
    assert bytes(store.read(key)) == b"result"
    store.drop((key,))


@pytest.mark.parametrize("data", [b"shared", b"own" * OWN], ids=["shared", "own"])
def test_location_is_valid_for_any_process_of_the_node(data: bytes) -> None:
    store = BlobStore()
    store.keep(memoryview(b"before it"))
    key = store.keep(memoryview(data))
    view = read_place(store.get(key).place)
    view[0] = ord("X")
    assert bytes(view[1:]) == data[1:]
    assert bytes(store.read(key)) == data


def test_file_of_another_size_is_not_taken_over() -> None:
    store = BlobStore()
    place = store.get(store.keep(memoryview(bytes(OWN)))).place
    with pytest.raises(EOFError):
        store.take_over(place._replace(size=OWN + 1))


def test_retaining_a_held_blob_cancels_its_drop() -> None:
    store = BlobStore()
    key = store.keep(memoryview(b"bytes"))
    held = store.hold([key])
    store.drop([key])
    assert store.retain(key)
    store.release(held)
    assert bytes(store.read(key)) == b"bytes"
    store.drop([key])
    assert not store.retain(key)


@pytest.mark.parametrize("data", [b"shared", b"own" * OWN], ids=["shared", "own"])
def test_owned_memory_can_be_read_and_shared(data: bytes) -> None:
    """The first read stores it, once, and releases the memory."""
    store = BlobStore()
    key = store.own(memoryview(data))
    assert bytes(store.owned(key) or b"") == data
    first = store.read(key)
    first[:1] = b"x"
    assert bytes(store.read(key)) == data, "each reader has a copy of its own"
    assert store.owned(key) is None
    assert bytes(read_place(store.get(key).place)) == data
    assert key not in store.sizes(), "results are not listed"
    store.drop([key])
    with pytest.raises(KeyError):
        store.get(key)


def test_owned_memory_stays_while_a_task_holds_it() -> None:
    store = BlobStore()
    key = store.own(memoryview(b"result"))
    assert store.hold([key, b"unknown"]) == [key]
    store.drop([key])
    assert bytes(store.read(key)) == b"result"
    store.release([key])
    with pytest.raises(KeyError):
        store.read(key)
    other = store.own(memoryview(b"result"))
    store.drop([other])
    assert store.owned(other) is None


def test_owned_memory_is_stored_once_for_concurrent_readers() -> None:
    store = BlobStore()
    data = bytes(range(256)) * 4096
    key = store.own(memoryview(data))
    with ThreadPoolExecutor(8) as threads:
        assert all(bytes(view) == data for view in threads.map(lambda _: store.read(key), range(16)))
    assert len({id(store.get(key)) for _ in range(3)}) == 1
