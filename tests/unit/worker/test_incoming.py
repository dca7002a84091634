"""Incoming blobs: complete before they are in the store, readable before that, and never leaked."""

import contextlib
import threading
from collections.abc import Iterator

import pytest

from skyward.worker.blobs.incoming import IncomingBlobs
from skyward.worker.blobs.store import BlobStore
from tests.unit.worker.blob_files import memory_held

pytestmark = pytest.mark.unit

KEY = b"key"
DATA = bytes(range(200))
SOON = 10.0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobStore]:
    monkeypatch.setattr("skyward.worker.blobs.incoming.KEEP", 1.0)
    before, threads = memory_held(), set(threading.enumerate())
    store = BlobStore()
    yield store
    for thread in set(threading.enumerate()) - threads:  # threads that clean up incomplete blobs
        thread.join(SOON)
        del thread  # it refers to the blob that it dropped
    store.drop([KEY])
    assert memory_held() == before


def interrupt_transfer(incoming: IncomingBlobs, upto: int) -> None:
    with contextlib.suppress(EOFError), incoming.writing(KEY, len(DATA)) as arrival:
        arrival.write(memoryview(DATA)[:upto], 0)
        raise EOFError


def test_blob_is_published_when_it_is_complete(store: BlobStore) -> None:
    incoming = IncomingBlobs(store)
    with incoming.writing(KEY, len(DATA)) as arrival:
        arrival.write(memoryview(DATA)[:50], 0)
        assert not incoming.has(KEY)
        arrival.write(memoryview(DATA)[50:], 50)
    assert bytes(store.read(KEY)) == DATA


def test_incoming_blob_can_be_read_up_to_the_bytes_received(store: BlobStore) -> None:
    incoming = IncomingBlobs(store)
    with incoming.writing(KEY, len(DATA)) as arrival, incoming.reading(KEY, 0) as source:
        assert source is not None
        assert source.reached(0, within=0) == 0
        arrival.write(memoryview(DATA)[:70], 0)
        assert source.reached(0, within=0) == 70
        assert bytes(source.blob.read())[:70] == DATA[:70]
        arrival.write(memoryview(DATA)[70:], 70)
        assert source.reached(70, within=0) == len(DATA)


def test_early_reader_waits_for_the_transfer(store: BlobStore) -> None:
    incoming = IncomingBlobs(store)
    found = list[int]()

    def read() -> None:
        with incoming.reading(KEY, SOON) as source:
            assert source is not None
            found.append(source.reached(len(DATA) - 1, SOON))

    reader = threading.Thread(target=read)
    reader.start()
    with incoming.writing(KEY, len(DATA)) as arrival:
        arrival.write(memoryview(DATA), 0)
    reader.join(SOON)
    assert found == [len(DATA)]
    with incoming.reading(b"another", 0) as source:
        assert source is None


def test_second_transfer_resumes_the_first_and_readers_continue(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyward.worker.blobs.incoming.KEEP", 1.0)
    incoming = IncomingBlobs(store)
    interrupt_transfer(incoming, 120)
    with incoming.reading(KEY, 0) as source, incoming.writing(KEY, len(DATA)) as arrival:
        assert source is not None
        assert arrival.reached == source.reached(0, 0) == 120
        arrival.write(memoryview(DATA)[120:], 120)
        assert source.reached(120, 0) == len(DATA)
        assert bytes(source.blob.read())[: len(DATA)] == DATA
    assert bytes(store.read(KEY)) == DATA


def test_concurrent_transfers_of_one_blob_share_their_progress(store: BlobStore) -> None:
    incoming = IncomingBlobs(store)
    with incoming.writing(KEY, len(DATA)) as first, incoming.writing(KEY, len(DATA)) as second:
        first.write(memoryview(DATA)[:120], 0)
        second.write(memoryview(DATA)[:60], 0)
        assert first.reached == second.reached == 120
        first.write(memoryview(DATA)[120:], 120)
        second.write(memoryview(DATA)[60:], 60)
    assert bytes(store.read(KEY)) == DATA


def test_incomplete_blob_is_given_up_after_a_while(store: BlobStore) -> None:
    incoming = IncomingBlobs(store)
    interrupt_transfer(incoming, 120)
    with incoming.reading(KEY, 0) as source:
        assert source is not None
        with pytest.raises(EOFError, match="was given up"):
            source.reached(120, SOON)
    assert not incoming.has(KEY)


def test_corrupt_blob_is_transferred_from_the_front(store: BlobStore) -> None:
    incoming = IncomingBlobs(store)
    with incoming.reading(KEY, 0) as absent, contextlib.suppress(EOFError):
        assert absent is None
        with incoming.writing(KEY, len(DATA)) as arrival:
            arrival.write(memoryview(bytes(len(DATA))), 0)
            incoming.spoil(KEY, arrival)
            raise EOFError
    assert not incoming.has(KEY)
    with incoming.writing(KEY, len(DATA)) as arrival:
        assert arrival.reached == 0
        arrival.write(memoryview(DATA), 0)
    assert bytes(store.read(KEY)) == DATA


def test_blob_of_another_process_replaces_a_transfer(store: BlobStore) -> None:
    incoming = IncomingBlobs(store)
    interrupt_transfer(incoming, 10)
    elsewhere = BlobStore()
    complete = elsewhere.keep(memoryview(DATA))
    with incoming.reading(KEY, 0) as source:
        assert source is not None
        incoming.adopt(KEY, elsewhere.get(complete).place)
        with pytest.raises(EOFError):
            source.reached(10, 0)
    elsewhere.drop([complete])
    assert bytes(store.read(KEY)) == DATA
