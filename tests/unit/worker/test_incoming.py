"""Blobs on their way in: whole before they are in the store, readable before that, and never left open."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skyward.worker.blobs.incoming import IncomingBlobs
from skyward.worker.blobs.store import BlobStore

pytestmark = pytest.mark.unit

KEY = b"key"
DATA = bytes(range(200))
SOON = 10.0


def memory_held() -> int:
    """Return the bytes of memory in the files of blobs."""
    held = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor that lists them
            if "skyward-blob" in os.readlink(entry):
                held += os.stat(entry).st_blocks * 512
    return held


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobStore]:
    monkeypatch.setattr("skyward.worker.blobs.incoming.KEEP", 1.0)
    before, threads = memory_held(), set(threading.enumerate())
    store = BlobStore()
    yield store
    for thread in set(threading.enumerate()) - threads:  # those that clear up what did not come
        thread.join(SOON)
        del thread  # it refers to what it has given up
    store.drop([KEY])
    assert memory_held() == before


def break_off(arrivals: IncomingBlobs, upto: int) -> None:
    with contextlib.suppress(EOFError), arrivals.writing(KEY, len(DATA)) as arrival:
        arrival.write(memoryview(DATA)[:upto], 0)
        raise EOFError


def test_a_blob_is_in_the_store_when_it_is_whole(store: BlobStore) -> None:
    arrivals = IncomingBlobs(store)
    with arrivals.writing(KEY, len(DATA)) as arrival:
        arrival.write(memoryview(DATA)[:50], 0)
        assert not arrivals.has(KEY)
        arrival.write(memoryview(DATA)[50:], 50)
    assert bytes(store.read(KEY)) == DATA


def test_it_is_read_as_far_as_it_has_come(store: BlobStore) -> None:
    arrivals = IncomingBlobs(store)
    with arrivals.writing(KEY, len(DATA)) as arrival, arrivals.reading(KEY, 0) as source:
        assert source is not None
        assert source.reached(0, within=0) == 0
        arrival.write(memoryview(DATA)[:70], 0)
        assert source.reached(0, within=0) == 70
        assert bytes(source.blob.read())[:70] == DATA[:70]
        arrival.write(memoryview(DATA)[70:], 70)
        assert source.reached(70, within=0) == len(DATA)


def test_who_comes_first_waits_for_it_to_begin(store: BlobStore) -> None:
    arrivals = IncomingBlobs(store)
    found = list[int]()

    def read() -> None:
        with arrivals.reading(KEY, SOON) as source:
            assert source is not None
            found.append(source.reached(len(DATA) - 1, SOON))

    reader = threading.Thread(target=read)
    reader.start()
    with arrivals.writing(KEY, len(DATA)) as arrival:
        arrival.write(memoryview(DATA), 0)
    reader.join(SOON)
    assert found == [len(DATA)]
    with arrivals.reading(b"another", 0) as source:
        assert source is None


def test_another_goes_on_where_one_stopped_and_who_reads_notices_nothing(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward.worker.blobs.incoming.KEEP", 1.0)
    arrivals = IncomingBlobs(store)
    break_off(arrivals, 120)
    with arrivals.reading(KEY, 0) as source, arrivals.writing(KEY, len(DATA)) as arrival:
        assert source is not None
        assert arrival.reached == source.reached(0, 0) == 120
        arrival.write(memoryview(DATA)[120:], 120)
        assert source.reached(120, 0) == len(DATA)
        assert bytes(source.blob.read())[: len(DATA)] == DATA
    assert bytes(store.read(KEY)) == DATA


def test_one_from_the_front_beside_one_in_the_middle(store: BlobStore) -> None:
    arrivals = IncomingBlobs(store)
    with arrivals.writing(KEY, len(DATA)) as first, arrivals.writing(KEY, len(DATA)) as second:
        first.write(memoryview(DATA)[:120], 0)
        second.write(memoryview(DATA)[:60], 0)
        assert first.reached == second.reached == 120
        first.write(memoryview(DATA)[120:], 120)
        second.write(memoryview(DATA)[60:], 60)
    assert bytes(store.read(KEY)) == DATA


def test_what_does_not_come_is_given_up_after_a_while(store: BlobStore) -> None:
    arrivals = IncomingBlobs(store)
    break_off(arrivals, 120)
    with arrivals.reading(KEY, 0) as source:
        assert source is not None
        with pytest.raises(EOFError, match="does not come"):
            source.reached(120, SOON)
    assert not arrivals.has(KEY)


def test_what_is_not_the_blob_begins_anew(store: BlobStore) -> None:
    arrivals = IncomingBlobs(store)
    with arrivals.reading(KEY, 0) as nothing, contextlib.suppress(EOFError):
        assert nothing is None
        with arrivals.writing(KEY, len(DATA)) as arrival:
            arrival.write(memoryview(bytes(len(DATA))), 0)
            arrivals.spoil(KEY, arrival)
            raise EOFError
    assert not arrivals.has(KEY)
    with arrivals.writing(KEY, len(DATA)) as arrival:
        assert arrival.reached == 0
        arrival.write(memoryview(DATA), 0)
    assert bytes(store.read(KEY)) == DATA


def test_one_that_is_whole_elsewhere_is_taken_over(store: BlobStore) -> None:
    arrivals = IncomingBlobs(store)
    break_off(arrivals, 10)
    elsewhere = BlobStore()
    whole = elsewhere.keep(memoryview(DATA))
    with arrivals.reading(KEY, 0) as source:
        assert source is not None
        arrivals.adopt(KEY, elsewhere.get(whole).place)
        with pytest.raises(EOFError):
            source.reached(10, 0)
    elsewhere.drop([whole])
    assert bytes(store.read(KEY)) == DATA
