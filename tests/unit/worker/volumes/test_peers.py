"""Copies from other nodes: over socket pairs, with a node that has all, has another copy, or ends."""

import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from skyward.process.clock import clock
from skyward.storage.listing import ObjectEntry
from skyward.wire.transport.bulk import read_exactly
from skyward.wire.transport.peers import REQUEST
from skyward.worker.volumes.peers import PeerFetcher, SharedFiles, file_key
from skyward.worker.volumes.trees import contents_of

ENTRIES = [ObjectEntry("a", 5, '"1"'), ObjectEntry("sub/b", 3_000_000, '"2"'), ObjectEntry("empty", 0, '"3"')]
CONTENTS = contents_of(ENTRIES)


class Store:
    """The other source: notes what is fetched from it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fetch(
        self, entries: Sequence[ObjectEntry], folder: Path, arrived: Callable[[int, bool], None], contents: str = ""
    ) -> None:
        self.asked += [each.key for each in entries]
        write(folder, entries)


def write(folder: Path, entries: Sequence[ObjectEntry]) -> None:
    for each in entries:
        path = folder / each.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * each.size)


def connect_to(shared: SharedFiles, threads: list[threading.Thread]) -> Callable[[str], socket.socket]:
    """Return a function that connects to a node with these files."""

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                _, key, _ = REQUEST.unpack(read_exactly(connection, REQUEST.size))
                shared.serve(connection, key, clock.sleep)
            except (OSError, EOFError):
                return  # the fetching end is gone

    def connect(_: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        threads.append(threading.Thread(target=serve, args=(theirs,)))
        threads[-1].start()
        return ours

    return connect


@pytest.fixture
def threads() -> list[threading.Thread]:
    return []


def fetched(
    shared: SharedFiles, threads: list[threading.Thread], folder: Path, during: Callable[[], None] = lambda: None
) -> tuple[Store, dict[bool, int]]:
    """Fetch all objects; return the other source, and the bytes by whether they came from the node."""
    store, counted = Store(), {True: 0, False: 0}
    lock = threading.Lock()

    def arrived(count: int, from_peer: bool) -> None:
        with lock:
            counted[from_peer] += count

    meanwhile = threading.Thread(target=during)
    meanwhile.start()
    PeerFetcher(["node"], connect_to(shared, threads), store).fetch(ENTRIES, folder, arrived, CONTENTS)
    meanwhile.join(10)
    for each in threads:
        each.join(10)
    return store, counted


def is_complete(folder: Path) -> bool:
    files = {each.relative_to(folder).as_posix(): each.stat().st_size for each in folder.rglob("*") if each.is_file()}
    return files == {each.key: each.size for each in ENTRIES}


def test_everything_comes_from_a_node_that_has_it(tmp_path: Path, threads: list[threading.Thread]) -> None:
    shared = SharedFiles()
    write(tmp_path / "tree", ENTRIES)
    shared.expect(CONTENTS, ENTRIES, tmp_path / "part", tmp_path / "tree")
    shared.attaching = False
    store, counted = fetched(shared, threads, tmp_path / "copy")
    assert (store.asked, counted[True]) == ([], 3_000_005)
    assert is_complete(tmp_path / "copy")


def test_objects_that_the_node_is_still_getting_are_waited_for(tmp_path: Path, threads: list[threading.Thread]) -> None:
    shared = SharedFiles()

    def arrive() -> None:
        shared.expect(CONTENTS, ENTRIES, tmp_path / "part", tmp_path / "tree")
        for each in ENTRIES:
            write(tmp_path / "new", [each])
            (tmp_path / "part" / each.key).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "new" / each.key).rename(tmp_path / "part" / each.key)
        shared.attaching = False

    store, _ = fetched(shared, threads, tmp_path / "copy", arrive)
    assert store.asked == []
    assert is_complete(tmp_path / "copy")


def test_object_that_arrives_while_it_is_looked_for_is_not_refused(tmp_path: Path) -> None:
    shared, entry = SharedFiles(), ENTRIES[0]

    class ArrivesMeanwhile:
        """A lock after whose release the object, the last one, has arrived."""

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            shared._lock = threading.Lock()
            shared.expect(CONTENTS, [entry], tmp_path / "part", tmp_path / "tree")
            write(tmp_path / "tree", [entry])
            shared.attaching = False

    shared._lock = ArrivesMeanwhile()  # type: ignore[assignment]  # has what is used of a lock
    key = file_key(CONTENTS, entry.key)
    assert shared.open(key) is None
    opened = shared.open(key)
    assert opened is not None
    file, size = opened
    with file:
        assert (len(file.read()), size) == (entry.size, entry.size)


def test_store_gives_what_a_node_with_another_copy_does_not(tmp_path: Path, threads: list[threading.Thread]) -> None:
    shared = SharedFiles()
    shared.expect("another list", ENTRIES, tmp_path / "part", tmp_path / "tree")
    shared.attaching = False
    store, counted = fetched(shared, threads, tmp_path / "copy")
    assert ({*store.asked} - {"empty"}, counted[True]) == ({"a", "sub/b"}, 0)
    assert is_complete(tmp_path / "copy")


def test_store_gives_the_rest_when_the_node_ends(tmp_path: Path) -> None:
    store = Store()

    def refuse(_: str) -> socket.socket:
        raise ConnectionRefusedError

    PeerFetcher(["node", "other"], refuse, store).fetch(ENTRIES, tmp_path, lambda *_: None, CONTENTS)
    assert {*store.asked} - {"empty"} == {"a", "sub/b"}
    assert is_complete(tmp_path)
