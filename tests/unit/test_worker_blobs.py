"""The blobs of a node: each task maps a copy of its own, and nothing stays open that was dropped."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyward.worker.blobs import BlobStore, map_private

pytestmark = pytest.mark.unit


def open_blobs() -> int:
    """How many descriptors of blobs this process has."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except FileNotFoundError:  # the descriptor that lists them
            continue
    return sum("skyward-blob" in link for link in links)


@given(st.lists(st.binary(min_size=1, max_size=10_000), max_size=5))
@settings(deadline=None, max_examples=40)
def test_what_is_kept_can_be_mapped_and_dropped(parts: list[bytes]) -> None:
    before = open_blobs()
    store = BlobStore()
    keys = [store.keep(memoryview(part)) for part in parts]
    assert len(set(keys)) == len(parts)
    assert [bytes(store.map(key)) for key in keys] == parts
    assert [store.get(key).size for key in keys] == [len(part) for part in parts]
    assert open_blobs() == before + len(parts)
    store.drop(tuple(keys))
    assert open_blobs() == before


def test_a_task_that_writes_to_its_map_changes_nobody_elses() -> None:
    store = BlobStore()
    key = store.keep(memoryview(b"abc"))
    one, other = store.map(key), store.map(key)
    one[0] = ord("X")
    assert (bytes(one), bytes(other), bytes(store.map(key))) == (b"Xbc", b"abc", b"abc")
    store.drop((key,))


def test_a_new_client_is_told_of_what_was_brought_and_not_of_results() -> None:
    """It would take those for blobs of calls to come, and drop them for others before it has fetched them."""
    store = BlobStore()
    store.publish(b"k", store.reserve(3))
    result = store.keep(memoryview(b"abc"))
    adopted = store.adopt(store.get(result).path, 3)
    assert store.sizes() == {b"k": 3}
    store.drop((b"k", result, adopted))
    assert store.sizes() == {}


def test_a_map_outlives_its_blob() -> None:
    store = BlobStore()
    key = store.keep(memoryview(b"abc"))
    view = store.map(key)
    store.drop((key, key, b"never there"))
    assert bytes(view) == b"abc"
    with pytest.raises(KeyError):
        store.map(key)
    with pytest.raises(KeyError):
        store.get(key)


def test_buffers_of_more_dimensions_are_kept_flat() -> None:
    store = BlobStore()
    grid = memoryview(bytes(range(12))).cast("B", (3, 4))
    key = store.keep(grid)
    assert bytes(store.map(key)) == bytes(range(12))
    store.drop((key,))


def come(store: BlobStore, key: bytes, data: bytes) -> None:
    blob = store.reserve(len(data))
    os.write(blob.fd, data)
    store.publish(key, blob)


def test_a_blob_that_comes_again_is_kept_once() -> None:
    before = open_blobs()
    store = BlobStore()
    come(store, b"key", b"content")
    path = store.get(b"key").path
    come(store, b"key", b"content")
    assert store.get(b"key").path == path  # which another process may be about to open
    assert open_blobs() == before + 1
    store.drop((b"key",))
    assert open_blobs() == before


def test_what_is_held_outlives_its_drop_and_goes_with_its_last_holder() -> None:
    before = open_blobs()
    store = BlobStore()
    come(store, b"key", b"content")
    assert store.hold([b"key", b"never there", b"key"]) == [b"key", b"key"]
    store.drop([b"key"])
    store.release([b"key"])
    assert bytes(store.map(b"key")) == b"content"
    store.release([b"key"])
    assert open_blobs() == before
    with pytest.raises(KeyError):
        store.get(b"key")


def test_what_comes_again_while_it_is_held_is_dropped_no_more() -> None:
    before = open_blobs()
    store = BlobStore()
    come(store, b"key", b"content")
    store.hold([b"key"])
    store.drop([b"key"])
    come(store, b"key", b"content")
    store.release([b"key"])
    assert bytes(store.map(b"key")) == b"content"
    store.drop([b"key"])
    assert open_blobs() == before


def test_a_blob_that_did_not_come_whole_is_given_up() -> None:
    before = open_blobs()
    store = BlobStore()
    blob = store.reserve(100)
    os.write(blob.fd, b"half")
    store.discard(blob)
    assert open_blobs() == before


def test_a_blob_of_another_process_is_taken_over() -> None:
    child, store = BlobStore(), BlobStore()
    theirs = child.keep(memoryview(b"result"))
    blob = child.get(theirs)
    key = store.adopt(blob.path, blob.size)
    child.drop((theirs,))
    assert bytes(store.map(key)) == b"result"
    store.drop((key,))


def test_the_path_of_a_blob_is_good_for_any_process_of_the_node() -> None:
    store = BlobStore()
    key = store.keep(memoryview(b"shared"))
    blob = store.get(key)
    fd = os.open(blob.path, os.O_RDWR)
    view = map_private(fd, blob.size)
    os.close(fd)
    view[0] = ord("X")
    assert bytes(store.map(key)) == b"shared"
    store.drop((key,))
