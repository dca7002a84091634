"""Transfers between files and objects, over real HTTP."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.deletion import delete
from skyward.storage.download import download
from skyward.storage.listing import ObjectEntry, check, find, head, list_objects
from skyward.storage.part_file import PART_SUFFIX, RANGE
from skyward.storage.trees import download_many, files_below, upload_many
from skyward.storage.upload import PART, upload
from tests.fakes.storage import FakeStore, FaultyProxy, Mistake

NAMES = ("plain", "a space", "üñï/çödé.txt", "%41", "q?m#h&=+", "~til*'()!", "deep/er/est", "empty", "x\\y")


def part_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.endswith(PART_SUFFIX)]


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of files with odd names, one of them empty, one in several parts."""
    folder = tmp_path / "files"
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if name == "empty" else name.encode())
    (folder / "large").write_bytes(os.urandom(2 * PART + 12_345))
    return folder


def test_folder_comes_back_as_it_was(store: FakeStore, bucket: str, files: Path, tmp_path: Path) -> None:
    location = store.location(bucket, "run/1")
    sent: list[ObjectEntry] = []
    upload_many(location, files_below(files), on_file=lambda path, entry: sent.append(entry))
    assert sorted(entry.key for entry in sent) == sorted((*NAMES, "large"))
    assert sorted(store.keys(bucket)) == sorted(f"run/1/{name}" for name in (*NAMES, "large"))
    listed = list(list_objects(location))
    assert {entry.key: (entry.size, entry.etag) for entry in listed} == {
        entry.key: (entry.size, entry.etag) for entry in sent
    }
    download_many(location, listed, tmp_path / "back", workers=4)
    assert tree(tmp_path / "back") == tree(files)


def test_large_object_is_moved_in_parts(store: FakeStore, bucket: str, files: Path, tmp_path: Path) -> None:
    location, counted = store.location(bucket), [0, 0]

    def count(place: int, size: int) -> None:
        counted[place] += size

    entry = upload(location, files / "large", "large", progress=lambda size: count(0, size))
    assert entry.etag.strip('"').endswith("-3")
    download(location, "large", tmp_path / "back", progress=lambda size: count(1, size))
    assert (tmp_path / "back").read_bytes() == (files / "large").read_bytes()
    assert counted == [entry.size, entry.size]
    assert part_files(tmp_path) == []
    assert store.uploads(bucket) == []


def test_key_that_is_also_a_folder_is_refused_by_name(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    for key in ("a", "a/b", "c"):
        store.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    location = store.location(bucket)
    with pytest.raises(StorageError, match="a file and a folder cannot have the same name") as caught:
        download_many(location, list_objects(location), tmp_path / "back", workers=1)
    assert caught.value.names == ("a/b",)
    assert tree(tmp_path / "back") == {"a": b"x", "c": b"x"}


def test_folder_markers_are_no_files(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    for key in ("d/", "d/e/", "d/f", "d/empty", "d/g", "d/g/"):
        store.client.put_object(Bucket=bucket, Key=key, Body=b"")
    location = store.location(bucket)
    assert [entry.key for entry in list_objects(location)] == ["d/empty", "d/f", "d/g"]
    download_many(location, list_objects(location), tmp_path / "back")
    assert sorted(tree(tmp_path / "back")) == ["d/empty", "d/f", "d/g"]


@pytest.mark.parametrize("key", ["x/../y", "..", "/lead", "a//b", "./dot", "a/./b", "tab\tx"])
def test_key_that_cannot_be_a_path_is_refused_in_one_sentence(store: FakeStore, bucket: str, key: str) -> None:
    store.client.put_object(Bucket=bucket, Key=f"p/{key}", Body=b"x")
    location = store.location(bucket, "p")
    with pytest.raises(StorageError, match=r"^s3://\S+ has a key with a part that is empty, '\.' or '\.\.', or "):
        list(list_objects(location))
    with pytest.raises(StorageError, match=r"has a key with a part that is empty"):
        find(location, key)


def test_keys_that_begin_alike_are_not_below_a_prefix(store: FakeStore, bucket: str) -> None:
    store.put(bucket, images=b"1", images2=b"2", imagesX=b"3")
    store.client.put_object(Bucket=bucket, Key="images/a", Body=b"x")
    assert [entry.key for entry in list_objects(store.location(bucket, "images"))] == ["a"]


def test_upload_again_replaces_the_object(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    location, path = store.location(bucket), tmp_path / "file"
    path.write_bytes(b"one")
    first = upload(location, path, "k")
    path.write_bytes(b"other")
    assert upload(location, path, "k").etag != first.etag
    assert store.get(bucket, "k") == b"other"


def test_two_uploads_to_one_key_leave_one_of_them(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    contents = [bytes([number]) * (2 * PART) for number in range(2)]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    location = store.location(bucket)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: upload(location, tmp_path / str(number), "k"), range(2)))
    assert store.get(bucket, "k") in contents
    assert store.uploads(bucket) == []


@pytest.mark.parametrize("parts", [1, 3])
def test_file_that_changes_during_its_upload_is_refused(
    store: FakeStore, bucket: str, tmp_path: Path, parts: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * (parts * PART - 100))
    location = store.location(bucket)

    def change(size: int) -> None:
        with path.open("ab") as file:
            file.write(b"more")

    if parts == 1:  # it is read at once
        upload(location, path, "k", progress=change)
        assert len(store.get(bucket, "k")) == parts * PART - 100
        return
    with pytest.raises(StorageError, match="file was changed while it was uploaded: upload it again when nothing"):
        upload(location, path, "k", progress=change)
    assert store.keys(bucket) == []
    assert store.uploads(bucket) == []


def test_object_that_changes_during_its_download_is_refused(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    store.put(bucket, k=b"x" * (3 * RANGE))
    location, entry = store.location(bucket), head(store.location(bucket), "k")
    changed = threading.Event()

    def change(size: int) -> None:
        if not changed.is_set():
            changed.set()
            store.put(bucket, k=b"y" * (3 * RANGE))

    with pytest.raises(StorageError, match=r"s3://bucket-\w+/k was changed while it was downloaded: start again\."):
        download(location, entry, tmp_path / "file", progress=change, workers=1)
    assert not (tmp_path / "file").exists()
    download(location, "k", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"y" * (3 * RANGE)
    assert part_files(tmp_path) == []


def test_object_that_is_gone_keeps_no_other_file_from_coming(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    store.put(bucket, a=b"a", b=b"b", c=b"c")
    location = store.location(bucket)
    entries = list(list_objects(location))
    delete(location, ["b"])
    with pytest.raises(StorageError, match=r"^s3://bucket-\w+/b was deleted after it had been listed, or") as caught:
        download_many(location, entries, tmp_path)
    assert caught.value.names == ("b",)
    assert tree(tmp_path) == {"a": b"a", "c": b"c"}


def test_links_are_followed_and_other_files_refused(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "file").write_bytes(b"there")
    (folder / "file").symlink_to(outside / "file")
    (folder / "below").symlink_to(outside)
    upload_many(store.location(bucket), files_below(folder))
    assert sorted(store.keys(bucket)) == ["below/file", "file"]

    (outside / "up").symlink_to(folder)
    with pytest.raises(StorageError, match="up leads back to a folder above it by a link: remove the link"):
        list(files_below(folder))
    (outside / "up").unlink()
    (folder / "gone").symlink_to(outside / "nothing")
    with pytest.raises(StorageError, match="gone is a link to a file that does not exist: remove it"):
        list(files_below(folder))
    (folder / "gone").unlink()
    (folder / "round").symlink_to("round")
    with pytest.raises(StorageError, match=r"round cannot be read \(too many levels of symbolic links\)"):
        list(files_below(folder))
    (folder / "round").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(StorageError, match=r"pipe is no regular file \(a pipe, socket or device\): remove it"):
        list(files_below(folder))
    with pytest.raises(StorageError, match=r"pipe cannot be read \(it is no regular file\)"):
        upload(store.location(bucket), folder / "pipe", "pipe")


def test_file_errors_name_the_file(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    store.put(bucket, k=b"x")
    location = store.location(bucket)
    with pytest.raises(StorageError, match=r"nothing cannot be read \(no such file or directory\)"):
        upload(location, tmp_path / "nothing", "k")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=r"k cannot be written to \S+folder \(is a directory\): a file and a folder"):
        download(location, "k", tmp_path / "folder")
    with pytest.raises(StorageError, match=r"cannot be written to \S+ \(file name too long\): a part of its key is"):
        download(location, "k", tmp_path / ("x" * 300))
    with pytest.raises(StorageError, match="The key 'folder/' names a folder: give the key of an object"):
        upload(location, tmp_path / "nothing", "folder/")
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.write_bytes(b"x")
    with pytest.raises(StorageError, match=r"udcff cannot be uploaded, because its name is not UTF-8: rename it"):
        upload_many(location, files_below(tmp_path))
    assert part_files(tmp_path) == []


def test_bad_key_of_an_upload_names_the_file_or_the_key_and_each_of_them_once(
    store: FakeStore, bucket: str, tmp_path: Path
) -> None:
    location = store.location(bucket)
    (tmp_path / "good").write_bytes(b"x")
    for key in ("a//b", "a\nb", "../a", "a" * 1025):
        with pytest.raises(StorageError, match=r"good cannot be uploaded to the key '.+', because that .+: change the"):
            upload(location, tmp_path / "good", key)
    upload(location, tmp_path / "good", "/é/b c%20\\")
    for name in ("bad\none", "bad\x7ftwo"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(StorageError, match=r"^2 files failed. The first one: ") as caught:
        upload_many(location, files_below(tmp_path))
    assert caught.value.names == ("bad\none", "bad\x7ftwo")
    assert str(caught.value).endswith(r"has control characters: rename it. The other: bad\x7ftwo.")
    assert str(caught.value).isprintable()
    assert store.keys(bucket) == ["good", "é/b c%20\\"]


def test_many_deletions_and_missing_objects(store: FakeStore, bucket: str) -> None:
    for number in range(5):
        store.put(bucket, **{f"k{number}": b"x"})
    assert delete(store.location(bucket), (f"k{number}" for number in range(7))) == 7
    assert store.keys(bucket) == []
    assert delete(store.location(bucket), []) == 0


def test_check_returns_the_region_and_names_what_is_wrong(store: FakeStore, bucket: str) -> None:
    assert check(store.location(bucket)) == store.location(bucket)
    assert check(store.location(bucket, "nothing/here")).prefix == "nothing/here"
    with pytest.raises(StorageError, match=r"^There is no bucket 'nobucket' at http://\S+: check its name") as caught:
        check(store.location("nobucket"))
    assert caught.value.code == "NoSuchBucket"
    with pytest.raises(StorageError, match=r"^http://127\.0\.0\.1:1 did not answer \(connection refused\): check the"):
        check(store.location(bucket, endpoint="http://127.0.0.1:1"), within=1)
    with pytest.raises(StorageError, match=r"did not answer \(its name was not found\)"):
        check(store.location(bucket, endpoint="http://no-such-host.invalid"), within=1)


def test_head_of_a_missing_object_and_of_a_missing_bucket(store: FakeStore, bucket: str) -> None:
    assert find(store.location(bucket), "none") is None
    with pytest.raises(StorageError, match=r"^There is no object s3://bucket-\w+/none: check its key"):
        head(store.location(bucket), "none")
    with pytest.raises(StorageError, match="^There is no bucket 'nobucket'"):
        head(store.location("nobucket"), "none")


def test_transfer_that_is_stopped_leaves_no_thread(
    store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    store.put(bucket, k=b"x" * (4 * RANGE))
    held = proxy.add(Mistake("GET", "k$", hold_after=1000))
    location = store.location(bucket, endpoint=proxy.url)
    with BucketClient(location) as client:

        def stop() -> None:
            held.held.wait(30)
            client.stop()

        threading.Thread(target=stop).start()
        with pytest.raises(StorageError, match="^The transfer was stopped before its end") as caught:
            download(location, "k", tmp_path / "f", client=client)
    assert caught.value.code == "Stopped"
    assert not [each for each in threading.enumerate() if each.name.startswith("skyward-storage")]
