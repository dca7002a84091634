"""Synchronized folders against a store in memory: nothing that a task has written is lost, in any order of events."""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skyward.errors import StorageError
from skyward.process.clock import clock
from skyward.storage.failures import BAD_KEY, UNREACHABLE
from skyward.storage.listing import ObjectEntry
from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes import synced
from skyward.worker.volumes import volume as volume_module
from skyward.worker.volumes.synced import SyncedVolume
from skyward.worker.volumes.volume import AttachError, Unsaved

KEYS = st.sampled_from(["a", "b", "sub/c"])
CONTENTS = st.binary(max_size=5)


class Store:
    """Objects with version tags; `refusal` is raised by every write while it is set."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.refusal: StorageError | None = None
        self.refuse_writes_of = ""
        self._versions = itertools.count()

    def write(self, key: str, data: bytes) -> ObjectEntry:
        if self.refusal is not None:
            raise self.refusal
        if key == self.refuse_writes_of:
            raise StorageError("denied", code="AccessDenied")
        self.objects[key] = data, f'"{next(self._versions)}"'
        return self.entry(key)

    def entry(self, key: str) -> ObjectEntry:
        data, etag = self.objects[key]
        return ObjectEntry(key, len(data), etag)

    # The functions of the room of storage, and the source of objects.

    def list_objects(
        self, _: BucketLocation, *, on_marker: Callable[[ObjectEntry], object] | None = None
    ) -> Iterator[ObjectEntry]:
        yield from [self.entry(key) for key in sorted(self.objects)]

    def find(self, _: BucketLocation, key: str) -> ObjectEntry | None:
        return self.entry(key) if key in self.objects else None

    def upload_many(
        self,
        _: BucketLocation,
        files: Iterable[tuple[Path, str]],
        *,
        progress: Callable[[int], object],
        on_file: Callable[[Path, ObjectEntry], object],
    ) -> None:
        for path, key in files:
            on_file(path, self.write(key, path.read_bytes()))

    def delete(self, _: BucketLocation, keys: Iterable[str]) -> int:
        if self.refusal is not None:
            raise self.refusal
        return sum(self.objects.pop(key, None) is not None for key in keys)

    def fetch(
        self, entries: Sequence[ObjectEntry], folder: Path, arrived: Callable[[int, bool], None], contents: str = ""
    ) -> None:
        for entry in entries:
            (folder / entry.key).parent.mkdir(parents=True, exist_ok=True)
            new = folder / f"{entry.key}.new"
            new.write_bytes(self.objects[entry.key][0])
            new.replace(folder / entry.key)


def synchronized(store: Store, folder: Path, said: list[str]) -> SyncedVolume:
    """Return a volume that is attached."""
    location = BucketLocation("bucket", "", "https://store.invalid")
    volume = NodeVolume("/data", "sync", False, location)
    made = SyncedVolume(volume, folder, store, lambda each: each, lambda: None, said.append, lambda _: None)
    made.attach()
    return made


@pytest.fixture(autouse=True)
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Store:
    """Store in place of the real one."""
    return in_place(monkeypatch.setattr)


def in_place(replace: Callable[[Any, str, Any], None]) -> Store:
    store = Store()
    for name in ("list_objects", "find", "upload_many", "delete"):
        replace(synced, name, getattr(store, name))
    for name in ("list_objects", "find"):
        replace(volume_module, name, getattr(store, name))
    return store


class Synchronization(RuleBasedStateMachine):
    """Tasks and others write and remove files; the node saves and refreshes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.store = in_place(self.patch.setattr)
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)
        self.said: list[str] = []
        self.volume = synchronized(self.store, self.folder, self.said)
        self.written: dict[str, bytes | None] = {}
        self._stamps = itertools.count(1_000_000_000)

    def teardown(self) -> None:
        self.patch.undo()
        self.scratch.cleanup()

    @rule(key=KEYS, data=CONTENTS)
    def task_writes(self, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        stamp = next(self._stamps) * 10**9  # as if time had passed since the last change
        os.utime(path, ns=(stamp, stamp))
        self.written[key] = data

    @rule(key=KEYS)
    def task_removes(self, key: str) -> None:
        if (self.folder / key).exists():
            (self.folder / key).unlink()
            self.written[key] = None

    @rule(key=KEYS, data=CONTENTS)
    def other_writes(self, key: str, data: bytes) -> None:
        self.store.write(key, data)

    @rule(key=KEYS)
    def other_removes(self, key: str) -> None:
        self.store.objects.pop(key, None)

    @rule()
    def save(self) -> None:
        assert not self.volume.save(0.0)
        for key, data in self.written.items():
            if data is not None:
                assert self.store.objects[key][0] == data, f"what a task wrote to {key} is not in the store"
        self.written.clear()

    @rule()
    def save_fails(self) -> None:
        self.store.refusal = StorageError("denied", code="AccessDenied")
        left = self.volume.save(0.0).names
        self.store.refusal = None
        for key, data in self.written.items():
            if data is not None:
                assert f"s3://bucket/{key}" in left, f"{key} is not in the store, and not named"

    @precondition(lambda self: not self.written)
    @rule()
    def refresh(self) -> None:
        self.volume.refresh()
        assert self.found() == {key: data for key, (data, _) in self.store.objects.items()}

    @rule()
    def refresh_beside_changes(self) -> None:
        self.volume.refresh()

    @invariant()
    def what_tasks_wrote_is_on_the_node(self) -> None:
        found = self.found()
        for key, data in self.written.items():
            if data is not None:
                assert found.get(key) == data, f"what a task wrote to {key} was replaced"

    def found(self) -> dict[str, bytes]:
        files = [each for each in self.folder.rglob("*") if each.is_file()]
        return {each.relative_to(self.folder).as_posix(): each.read_bytes() for each in files}


TestSynchronization = Synchronization.TestCase
TestSynchronization.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_saving_goes_on_while_the_store_is_away(in_memory: Store, tmp_path: Path) -> None:
    volume = synchronized(in_memory, tmp_path, [])
    (tmp_path / "a").write_bytes(b"a")
    attempts = itertools.count()

    def upload_many(location: BucketLocation, files: Iterable[tuple[Path, str]], **callbacks: Any) -> None:
        if next(attempts) < 2:
            raise StorageError("no answer", code=UNREACHABLE)
        in_memory.upload_many(location, files, **callbacks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synced, "upload_many", upload_many)
        patch.setattr(synced, "_PAUSES", (0.0,))
        assert not volume.save(60.0)
    assert in_memory.objects["a"][0] == b"a"


def test_files_are_named_with_the_reason_when_the_store_stays_away(in_memory: Store, tmp_path: Path) -> None:
    volume = synchronized(in_memory, tmp_path, [])
    (tmp_path / "a").write_bytes(b"a")
    in_memory.refusal = StorageError("The store did not answer.", code=UNREACHABLE)
    assert volume.save(0.0) == Unsaved(("s3://bucket/a",), "The store did not answer")
    assert volume.state.unflushed == 1


def test_fetched_files_are_counted(in_memory: Store, tmp_path: Path) -> None:
    for key in ("a", "sub/b"):
        in_memory.write(key, b"x")
    volume = synchronized(in_memory, tmp_path, [])
    assert volume.state.files == 2
    in_memory.write("c", b"x")
    volume.refresh()
    assert volume.state.files == 3


def test_object_beside_its_folder_is_refused_by_its_names(in_memory: Store, tmp_path: Path) -> None:
    for key in ("a", "a-b", "a/x"):
        in_memory.write(key, b"x")
    with pytest.raises(AttachError, match="s3://bucket/a and s3://bucket/a/x would be a file and a folder") as raised:
        synchronized(in_memory, tmp_path, [])
    assert raised.value.is_final
    assert str(tmp_path) not in str(raised.value)


def test_reason_names_files_by_the_path_of_tasks(in_memory: Store, tmp_path: Path) -> None:
    volume = NodeVolume("/data", "sync", False, BucketLocation("bucket", "", "https://store.invalid"))
    made = SyncedVolume(volume, tmp_path, in_memory, lambda _: Path("/data"), lambda: None, print, lambda _: None)
    made.attach()
    (tmp_path / "a").write_bytes(b"a")
    in_memory.refusal = StorageError(f"{tmp_path / 'a'} cannot be read (permission denied).", names=("a",))
    why = "/data/a cannot be read (permission denied)"
    assert made.save(60.0) == Unsaved(("s3://bucket/a",), why, is_tried_again=False)


def test_link_to_a_folder_is_left_out_and_named_once(in_memory: Store, tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "files").mkdir()
    volume = synchronized(in_memory, tmp_path / "files", said)
    (tmp_path / "files" / "link").symlink_to(tmp_path)
    volume.save(0.0)
    volume.save(0.0)
    assert said == ["s3://bucket/link is not uploaded: it is a link to a folder."]
    assert in_memory.objects == {}


def test_other_content_of_the_same_size_and_time_is_uploaded(in_memory: Store, tmp_path: Path) -> None:
    """As `cp -p`, `rsync -t` and `tar` leave files."""
    in_memory.write("a", b"AAAA")
    volume = synchronized(in_memory, tmp_path, [])
    before = (tmp_path / "a").stat()
    (tmp_path / "new").write_bytes(b"BBBB")
    os.utime(tmp_path / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    (tmp_path / "new").replace(tmp_path / "a")
    assert not volume.save(0.0)
    assert in_memory.objects["a"][0] == b"BBBB"
    (tmp_path / "a").write_bytes(b"CCCC")
    os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not volume.save(0.0)
    assert in_memory.objects["a"][0] == b"CCCC"


@pytest.mark.parametrize(("before", "after"), [("dir/in", "dir"), ("dir", "dir/in")])
def test_file_may_take_the_name_of_a_folder_and_the_reverse(
    in_memory: Store, tmp_path: Path, before: str, after: str
) -> None:
    in_memory.write(before, b"before")
    volume = synchronized(in_memory, tmp_path, [])
    del in_memory.objects[before]
    in_memory.write(after, b"after")
    volume.refresh()
    assert (tmp_path / after).read_bytes() == b"after"


def test_file_with_a_name_that_no_object_can_have_holds_nothing_back_and_is_not_waited_for(
    in_memory: Store, tmp_path: Path
) -> None:
    for key in ("old", "data", "renamed"):
        in_memory.write(key, key.encode())
    volume = synchronized(in_memory, tmp_path, [])
    (tmp_path / "bad\nname").write_bytes(b"x")
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"y")
    (tmp_path / "old").unlink()
    (tmp_path / "renamed").rename(tmp_path / "new")
    (tmp_path / "data").unlink()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "part0").write_bytes(b"part")
    names, why = ("s3://bucket/bad\\nname", "s3://bucket/\\udcff"), "cannot be the key of an object: rename the file"
    left = volume.save(60.0)
    assert left == Unsaved(
        names,
        f"a name that has control characters {why} in the task; a name that is not UTF-8 {why} in the task",
        is_tried_again=False,
    )
    assert sorted(in_memory.objects) == ["data/part0", "new"]
    assert volume.state.unflushed == 2


def test_object_of_a_file_that_was_renamed_to_a_bad_name_is_kept_until_that_is_mended(
    in_memory: Store, tmp_path: Path
) -> None:
    for key in ("one", "two", "other"):
        in_memory.write(key, key.encode())
    volume = synchronized(in_memory, tmp_path, [])
    (tmp_path / "one").rename(tmp_path / "bad\none")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "part").write_bytes(b"x")
    (tmp_path / "two").rename(tmp_path / "bad\ntwo")
    (tmp_path / "other").unlink()
    left = volume.save(60.0)
    assert left.names == ("s3://bucket/bad\\none", "s3://bucket/bad\\ntwo", "s3://bucket/one/part")
    assert left.kept == ("s3://bucket/one", "s3://bucket/two")
    assert sorted(in_memory.objects) == ["one", "two"]
    (tmp_path / "bad\none").rename(tmp_path / "good")
    (tmp_path / "bad\ntwo").unlink()
    assert not volume.save(60.0)
    assert sorted(in_memory.objects) == ["good", "one/part"]


@pytest.mark.parametrize(("before", "after"), [("dir/in", "dir"), ("dir", "dir/in")])
def test_object_is_deleted_before_a_folder_of_its_name_is_uploaded_and_the_reverse(
    in_memory: Store, tmp_path: Path, before: str, after: str
) -> None:
    in_memory.write(before, b"before")
    said: list[str] = []
    volume = synchronized(in_memory, tmp_path, said)
    (tmp_path / before).unlink()
    if after == "dir":
        (tmp_path / "dir").rmdir()
    (tmp_path / after).parent.mkdir(exist_ok=True)
    (tmp_path / after).write_bytes(b"after")
    in_memory.write(before, b"by another")
    in_memory.refuse_writes_of = after
    assert volume.save(0.0).names == (f"s3://bucket/{after}",)
    assert in_memory.objects == {}
    in_memory.refuse_writes_of = ""
    assert not volume.save(0.0)
    assert list(in_memory.objects) == [after]
    assert [each.partition(" was written by another")[0] for each in said] == [f"s3://bucket/{before}"]


def test_deletions_wait_while_the_store_refuses_uploads_and_are_named(in_memory: Store, tmp_path: Path) -> None:
    in_memory.write("old", b"old")
    volume = synchronized(in_memory, tmp_path, [])
    (tmp_path / "old").unlink()
    (tmp_path / "new").write_bytes(b"new")
    in_memory.refuse_writes_of = "new"
    assert volume.save(0.0) == Unsaved(("s3://bucket/new",), "denied", ("s3://bucket/old",))
    assert list(in_memory.objects) == ["old"]


@pytest.mark.parametrize(("has_read", "since"), [(True, "after this node had read it"), (False, "meanwhile")])
def test_replaced_object_is_named_with_what_this_node_knew_of_it(
    in_memory: Store, tmp_path: Path, has_read: bool, since: str
) -> None:
    if has_read:
        in_memory.write("a", b"first")
    said: list[str] = []
    volume = synchronized(in_memory, tmp_path, said)
    in_memory.write("a", b"of another")
    (tmp_path / "a").write_bytes(b"of this node")
    assert not volume.save(0.0)
    assert [f"was written by another node or program {since}; the version" in each for each in said] == [True]


@pytest.mark.parametrize("changes", [3, 5])
def test_object_that_is_changed_while_it_is_fetched_is_fetched_anew_a_few_times(
    in_memory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    for key in ("busy", "gone", "rest"):
        in_memory.write(key, b"first")
    fetch, fetched = in_memory.fetch, list[str]()

    def fetch_while_others_write(entries: Sequence[ObjectEntry], *given: Any) -> None:
        entries = sorted(entries, key=lambda each: each.key, reverse=True)
        for entry in entries:
            if entry.key == "gone":
                in_memory.objects.pop("gone")
            if entry.key == "busy" and fetched.count("busy") < changes:
                fetched.append("busy")
                in_memory.write("busy", b"newer")
                names = tuple({each.key for each in entries} & {"busy", "gone"})
                raise StorageError("s3://bucket/busy was changed: start again.", code="PreconditionFailed", names=names)
            if entry.key != "gone":
                fetched.append(entry.key)
                fetch([entry], *given)

    monkeypatch.setattr(in_memory, "fetch", fetch_while_others_write)
    if changes == 5:
        with pytest.raises(
            AttachError, match="^s3://bucket/busy was changed during each of 5 downloads: start the pool"
        ):
            synchronized(in_memory, tmp_path, [])
        return
    volume = synchronized(in_memory, tmp_path, [])
    assert fetched == ["rest", "busy", "busy", "busy", "busy"]
    assert (tmp_path / "busy").read_bytes() == b"newer"
    assert volume.state.files == 2
    assert not volume.save(0.0)
    assert in_memory.objects.keys() == {"busy", "rest"}


def test_object_that_is_changed_while_it_is_looked_for_replaces_no_newer_one(
    in_memory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory.write("a", b"1")
    volume = synchronized(in_memory, tmp_path, [])
    in_memory.write("a", b"2")
    fetch = in_memory.fetch

    def fetch_once_changed(entries: Sequence[ObjectEntry], *given: Any) -> None:
        monkeypatch.setattr(in_memory, "fetch", fetch)
        in_memory.write("a", b"3")
        raise StorageError("changed", code="PreconditionFailed", names=("a",))

    monkeypatch.setattr(in_memory, "fetch", fetch_once_changed)
    volume.refresh()
    assert (tmp_path / "a").read_bytes() == b"3"
    assert not volume.save(0.0)
    assert in_memory.objects["a"][0] == b"3"


def test_object_of_others_with_a_key_that_cannot_be_listed_is_not_waited_for(
    in_memory: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = synchronized(in_memory, tmp_path, [])
    (tmp_path / "a").write_bytes(b"a")

    def find(_: BucketLocation, key: str) -> None:
        raise StorageError("The key of an object cannot be transferred.", code=BAD_KEY)

    def sleep(_: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(synced, "find", find)
    monkeypatch.setattr(clock, "sleep", sleep)
    assert volume.save(60.0).names == ("s3://bucket/a",)
