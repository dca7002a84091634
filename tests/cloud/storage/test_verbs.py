"""The verbs of `sky.Storage`, as users call them."""

import os
from pathlib import Path

import pytest

import skyward as sky
from skyward.storage.part_file import RANGE
from skyward.transfers import manifest
from tests.cloud.storage.test_transfers import tree
from tests.fakes.storage import FakeStore, FaultyProxy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of four files."""
    found = tmp_path / "folder"
    (found / "below").mkdir(parents=True)
    for name in ("a", "b", "below/c", "below/d"):
        (found / name).write_bytes(name.encode())
    return found


def test_folder_is_sent_once_and_then_only_what_has_changed(
    store: FakeStore, bucket: str, proxy: FaultyProxy, folder: Path
) -> None:
    storage = store.storage(proxy.url)
    assert storage.upload(bucket, folder, "run") == 4
    assert storage.upload(bucket, folder, "run") == 0
    (folder / "a").write_bytes(b"other")
    store.client.put_object(Bucket=bucket, Key="run/b", Body=b"by another")
    before = proxy.count("PUT")
    assert storage.upload(bucket, folder, "run/") == 2
    assert proxy.count("PUT") - before == 2
    assert store.get(bucket, "run/a") == b"other"
    assert store.get(bucket, "run/b") == b"b"
    assert storage.upload(bucket, folder) == 4
    assert "folder/below/c" in store.keys(bucket)


def test_file_of_the_same_size_and_time_is_sent_if_its_content_was_changed(
    store: FakeStore, bucket: str, folder: Path
) -> None:
    storage = store.storage()
    storage.upload(bucket, folder, "run")
    before = (folder / "a").stat()
    (folder / "a").write_bytes(b"A")
    os.utime(folder / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert storage.upload(bucket, folder, "run") == 1
    assert store.get(bucket, "run/a") == b"A"


def test_folder_comes_once_and_then_only_what_has_changed(
    store: FakeStore, bucket: str, folder: Path, tmp_path: Path
) -> None:
    storage, target = store.storage(), tmp_path / "target"
    storage.upload(bucket, folder, "run")
    assert storage.download(bucket, "run", target) == 4
    assert storage.download(bucket, "run", target) == 0
    store.client.put_object(Bucket=bucket, Key="run/a", Body=b"other")
    (target / "b").write_bytes(b"changed here")
    (target / "below" / "c").unlink()
    assert storage.download(bucket, "run", target) == 3
    assert tree(target) == {"a": b"other", "b": b"b", "below/c": b"below/c", "below/d": b"below/d"}


def test_manifest_that_cannot_be_read_or_kept_costs_only_time(
    store: FakeStore, bucket: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = store.storage()
    storage.upload(bucket, folder, "run")
    (found,) = (tmp_path / "cache" / "transfers").iterdir()
    found.write_bytes(b"\xff not JSON")
    assert storage.upload(bucket, folder, "run") == 4
    (tmp_path / "file").touch()
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "file"))
    assert storage.upload(bucket, folder, "run") == 4
    assert manifest.__all__ == ["FolderManifest"]


def test_object_and_its_places(store: FakeStore, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, path = store.storage(), tmp_path / "file.bin"
    path.write_bytes(b"x")
    assert storage.upload(bucket, path) == 1
    assert storage.upload(bucket, str(path), "data/") == 1
    assert storage.upload(bucket, path, "data/other") == 1
    assert [entry.key for entry in storage.ls(bucket)] == ["data/file.bin", "data/other", "file.bin"]

    monkeypatch.chdir(tmp_path)
    path.unlink()
    assert storage.download(bucket, "data/file.bin") == 1
    assert path.read_bytes() == b"x"
    (tmp_path / "into").mkdir()
    storage.download(bucket, "data/other", "into")
    storage.download(bucket, "data/other", "new/deep/name")
    storage.download(bucket, "data/")
    assert {"into/other", "new/deep/name", "data/other", "data/file.bin"} <= tree(tmp_path).keys()


def test_ls_takes_the_begin_of_keys(store: FakeStore, bucket: str) -> None:
    for key in ("img", "img-1", "img-2", "img/a", "img/b/c", "imh", "z"):
        store.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    storage = store.storage()

    def keys(prefix: str) -> list[str]:
        return [entry.key for entry in storage.ls(bucket, prefix)]

    assert keys("img") == ["img", "img-1", "img-2", "img/a", "img/b/c"]
    assert keys("img-") == ["img-1", "img-2"]
    assert keys("img/") == ["img/a", "img/b/c"]
    assert keys("img/b") == ["img/b/c"]
    assert keys("img/b/c") == ["img/b/c"]
    assert keys("none") == keys("z/") == []
    assert len(keys("")) == 7


def test_exists_of_objects_and_of_folders(store: FakeStore, bucket: str) -> None:
    store.client.put_object(Bucket=bucket, Key="a/b", Body=b"x")
    storage = store.storage()
    assert [storage.exists(bucket, key) for key in ("a/b", "a", "a/", "", "b", "a/b/c")] == [
        *(True, True, True, True),
        *(False, False),
    ]
    with pytest.raises(sky.StorageError, match="^There is no bucket 'nobucket'"):
        storage.exists("nobucket", "a")


def test_rm_of_an_object_and_of_all_below_a_key(store: FakeStore, bucket: str) -> None:
    for key in ("a", "a/b", "a/c/d", "ab", "z"):
        store.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    storage = store.storage()
    with pytest.raises(sky.StorageError, match=r"There is no object s3://bucket-\w+/a/c: check its key, or write rec"):
        storage.rm(bucket, "a/c")
    with pytest.raises(sky.SpecError, match="^rm needs a key: name the objects to delete, since the whole bucket"):
        storage.rm(bucket, "/", recursive=True)
    assert storage.rm(bucket, "z") == 1
    assert storage.rm(bucket, "a/", recursive=True) == 2
    assert store.keys(bucket) == ["a", "ab"]
    assert storage.rm(bucket, "a", recursive=True) == 1
    with pytest.raises(
        sky.StorageError, match=r"There is no object s3://bucket-\w+/a, and none below it: check the key"
    ):
        storage.rm(bucket, "a", recursive=True)


@pytest.mark.filterwarnings("default")
def test_objects_with_a_slash_at_the_end_of_their_keys_are_left_out_and_named_but_deleted(
    store: FakeStore, bucket: str, tmp_path: Path
) -> None:
    for key in ("é ü", "m/dir", "m/dir/", "m/dir/f", "m/e/", "m/none/", "m/sub%20/+~/", "m/sub%20/+~/x", "m/", "n/"):
        store.client.put_object(Bucket=bucket, Key=key, Body=b"" if "none" in key else b"xy")
    storage = store.storage()
    with pytest.warns(
        UserWarning, match=r"/m/sub%20/\+~/ is left out with its 2 B: an object whose key ends with a slash"
    ):
        listed = [each.key for each in storage.ls(bucket, "m/sub")]
    assert listed == ["m/sub%20/+~/x"]
    store.client.delete_object(Bucket=bucket, Key="m/dir")
    with (
        pytest.warns(UserWarning, match="only marks a folder") as warned,
        pytest.raises(sky.StorageError, match="or its key ends with a slash") as e,
    ):
        storage.download(bucket, "m", tmp_path / "all")
    assert e.value.names == ("e",)
    assert sorted(tree(tmp_path / "all")) == ["dir/f", "sub%20/+~/x"]
    assert len(warned) == 3
    store.client.put_object(Bucket=bucket, Key="m/dir", Body=b"xy")
    assert storage.rm(bucket, "m", recursive=True) == 8
    assert store.keys(bucket) == ["n/", "é ü"]
    assert storage.rm(bucket, "n/", recursive=True) == 1
    assert store.keys(bucket) == ["é ü"]


def test_missing_key_and_empty_bucket(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    storage = store.storage()
    assert storage.download(bucket, "", tmp_path / "all") == 0
    with pytest.raises(
        sky.StorageError, match=r"^There is no object s3://bucket-\w+/none, and none below it"
    ) as caught:
        storage.download(bucket, "none", tmp_path / "x")
    assert caught.value.code == "NoSuchKey"
    with pytest.raises(sky.SpecError, match=r"bucket must be the name of a bucket only, without '://', but got 's3://"):
        storage.ls("s3://bucket")


def test_object_that_changes_meanwhile_is_downloaded_anew(
    store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """The listing of the first attempt is of the version before."""
    store.put(bucket, k=b"x" * 10)
    storage = store.storage(proxy.url)
    from tests.fakes.storage import Mistake

    proxy.add(Mistake("HEAD", "k$", times=1, etag='"before"'))
    assert storage.download(bucket, "k", tmp_path / "k") == 1
    assert (tmp_path / "k").read_bytes() == b"x" * 10
    assert proxy.count("HEAD", "k$") == 2


def test_progress_is_shown_if_asked_for(
    store: FakeStore, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.bin").write_bytes(os.urandom(2 * RANGE))
    storage = store.storage()
    storage.upload(bucket, tmp_path / "file.bin")
    assert capsys.readouterr() == ("", "")
    storage.download(bucket, "file.bin", tmp_path / "back", progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "file.bin:" in shown.err
    assert "16.0M" in shown.err


def test_functions_give_the_keys_at_each_use(store: FakeStore, bucket: str, proxy: FaultyProxy) -> None:
    calls: list[str] = []

    def access_key() -> str:
        calls.append("access_key")
        return f"key{len(calls)}"

    async def secret_key() -> str:
        return "secret"

    storage = sky.Storage.minio(proxy.url, access_key, secret_key)
    assert calls == []
    for number in (1, 2):
        assert storage.ls(bucket) == []
        assert f"Credential=key{number}/" in proxy.requests[-1][2]["authorization"]


def test_keys_of_the_environment_are_used_if_none_are_given(
    store: FakeStore, bucket: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = sky.Storage.minio(proxy.url)
    with pytest.raises(sky.CredentialsError, match="^No credentials for the object store were found: give the storage"):
        storage.ls(bucket)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "fromenv")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert storage.ls(bucket) == []
    assert "Credential=fromenv/" in proxy.requests[-1][2]["authorization"]
    assert proxy.requests[-1][2]["x-amz-security-token"] == "token"


def test_verbs_work_in_a_thread_with_a_running_loop(store: FakeStore, bucket: str) -> None:
    import asyncio

    store.put(bucket, k=b"x")

    async def cell() -> bool:
        return store.storage().exists(bucket, "k")

    assert asyncio.run(cell())


def test_folder_for_a_bucket_that_does_not_exist_is_refused_once(store: FakeStore, folder: Path) -> None:
    with pytest.raises(sky.StorageError, match="There is no bucket 'nosuchbucket'") as raised:
        store.storage().upload("nosuchbucket", folder)
    assert "files failed" not in str(raised.value)
    assert raised.value.code == "NoSuchBucket"
    assert raised.value.names == ()


def test_all_files_that_failed_are_named(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    for key in ("a", "a/x", "b", "b/x"):
        store.client.put_object(Bucket=bucket, Key=key, Body=b"x")
    with pytest.raises(sky.StorageError, match=r"^2 files failed\. The first one: .+ The other: \S+\.$") as raised:
        store.storage().download(bucket, "", tmp_path / "target")
    assert len(raised.value.names) == 2
    assert all(name in str(raised.value) for name in raised.value.names)


@pytest.mark.parametrize("name", ["ab", "x", "b" * 64, f"a.{'b' * 64}"])
def test_name_that_no_bucket_can_have_is_refused(store: FakeStore, name: str) -> None:
    with pytest.raises(sky.SpecError, match="3 to 63 characters"):
        store.storage().ls(name)
