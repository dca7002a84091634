"""Stores that are slow, busy, cut off or wrong, and transfers that are interrupted."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skyward.errors import StorageError
from skyward.storage.client import BucketClient
from skyward.storage.deletion import delete
from skyward.storage.download import download
from skyward.storage.listing import check, list_objects
from skyward.storage.part_file import PART_SUFFIX, RANGE
from skyward.storage.trees import download_many
from skyward.storage.upload import PART, upload
from tests.fakes.storage import FakeStore, FaultyProxy, Mistake
from tests.fakes.storage.proxy import xml_error

BUSY = xml_error("SlowDown")

OPEN = """
import sys
from pathlib import Path
from skyward.storage.location import BucketLocation
from skyward.storage.{module} import {verb}
location = BucketLocation({bucket!r}, "", {url!r}, "us-east-1", True, "k", "s")
try:
    {call}
except KeyboardInterrupt:
    import threading
    print("interrupted", [each.name for each in threading.enumerate()], flush=True)
"""


def interrupted(mistake: Mistake, program: str) -> str:
    """Run a program, interrupt it when the mistake holds it, and return what it prints."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert mistake.held.wait(60)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    return out.strip()


def test_busy_store_is_asked_again(store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    location, path = store.location(bucket, endpoint=proxy.url), tmp_path / "file"
    path.write_bytes(os.urandom(2 * PART))
    for method, path_part in (("PUT", "partNumber=2"), ("POST", "uploads"), ("GET", "k$"), ("GET", "list-type")):
        proxy.add(Mistake(method, path_part, times=2, status=503, body=BUSY))
    proxy.add(Mistake("PUT", "small", times=2, status=429, body=xml_error("TooManyRequests")))
    upload(location, path, "k")
    (tmp_path / "small").write_bytes(b"x")
    upload(location, tmp_path / "small", "small")
    assert [entry.key for entry in list_objects(location)] == ["k", "small"]
    download(location, "k", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == path.read_bytes()
    assert all(mistake.times == 0 for mistake in proxy.mistakes)


def test_store_that_stays_busy_is_given_up(store: FakeStore, bucket: str, proxy: FaultyProxy) -> None:
    proxy.add(Mistake("GET", status=503, body=BUSY))
    with pytest.raises(StorageError, match=r"could not list s3://bucket-\w+ \(HTTP status 503, SlowDown\), and kept"):
        check(store.location(bucket, endpoint=proxy.url), within=1)


def test_connection_that_breaks_off_is_continued(
    store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    content = os.urandom(2 * RANGE + 999)
    store.put(bucket, k=content, small=content[:5000])
    proxy.add(Mistake("GET", "k$", times=4, cut_after=1_000_000))
    proxy.add(Mistake("GET", "small$", times=2, cut_after=10))
    location = store.location(bucket, endpoint=proxy.url)
    moved: list[int] = []
    download_many(location, list_objects(location), tmp_path / "back", progress=moved.append)
    assert (tmp_path / "back" / "k").read_bytes() == content
    assert (tmp_path / "back" / "small").read_bytes() == content[:5000]
    assert sum(moved) == len(content) + 5000


def test_version_that_the_store_does_not_look_at_is_compared(
    store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    store.put(bucket, k=b"x")
    proxy.add(Mistake("GET", "k$", etag='"another"'))
    with pytest.raises(StorageError, match="was changed while it was downloaded") as caught:
        download(store.location(bucket, endpoint=proxy.url), "k", tmp_path / "file")
    assert caught.value.names == ("k",)
    assert list(tmp_path.iterdir()) == []


def test_interrupted_download_is_continued(store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    content = os.urandom(4 * RANGE)
    store.put(bucket, k=content)
    held = proxy.add(Mistake("GET", f"{bucket}/k$", times=0, hold_after=1000))
    call = f'download(location, "k", Path({str(tmp_path / "file")!r}), workers=1, progress=lambda size: None)'
    program = OPEN.format(module="download", verb="download", bucket=bucket, url=proxy.url, call=call)
    proxy.mistakes.insert(0, Mistake("GET", f"{bucket}/k$", times=2, cut_after=None))  # the first two ranges come
    held.times = 1
    assert interrupted(held, program) == "interrupted ['MainThread']"
    assert not (tmp_path / "file").exists()
    (part,) = tmp_path.iterdir()
    assert part.name.endswith(PART_SUFFIX)
    before = proxy.count("GET", "k$")
    download(store.location(bucket, endpoint=proxy.url), "k", tmp_path / "file")
    assert proxy.count("GET", "k$") - before == 2
    assert (tmp_path / "file").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_part_file_of_another_version_is_not_continued(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    store.put(bucket, k=b"x" * (3 * RANGE))
    location = store.location(bucket)

    class EnoughError(Exception):
        pass

    def stop(size: int) -> None:
        raise EnoughError

    with pytest.raises((EnoughError, StorageError)):
        download(location, "k", tmp_path / "file", workers=1, progress=stop)
    store.put(bucket, k=b"y" * (3 * RANGE))
    download(location, "k", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"y" * (3 * RANGE)


def test_interrupted_upload_leaves_no_parts(store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(40 * PART))
    held = proxy.add(Mistake("PUT", "partNumber=3&", times=1, hold_after=0))
    call = f'upload(location, Path({str(tmp_path / "file")!r}), "k")'
    program = OPEN.format(module="upload", verb="upload", bucket=bucket, url=proxy.url, call=call)
    assert interrupted(held, program) == "interrupted ['MainThread']"
    held.release.set()
    assert store.keys(bucket) == []
    assert store.uploads(bucket) == []


def test_upload_that_the_store_refuses_leaves_no_parts(
    store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(os.urandom(3 * PART))
    proxy.add(Mistake("PUT", "partNumber=2&", status=403, body=xml_error("AccessDenied")))
    with pytest.raises(StorageError, match=r"The credentials may not write s3://bucket-\w+/k: give them") as caught:
        upload(store.location(bucket, endpoint=proxy.url), tmp_path / "file", "k")
    assert caught.value.code == "AccessDenied"
    assert store.uploads(bucket) == []


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (403, xml_error("InvalidAccessKeyId"), r"does not know the access key: check access_key, and that it is one"),
        (403, xml_error("SignatureDoesNotMatch"), r"refused the signature: check that secret_key belongs to access_"),
        (400, xml_error("ExpiredToken"), r"no longer accepts the session token: sign in again, or get new"),
        (403, xml_error("RequestTimeTooSkewed"), r"^The clock of this machine is too far from that of http"),
        (403, xml_error("AccessDenied"), r"^The credentials may not list s3://bucket-\w+: give them that permission"),
        (403, b"", r"^The credentials may not list s3://bucket-\w+"),
        (400, xml_error("TeaPot", "<Secret>hunter2</Secret>"), r"refused to list s3://\S+ \(HTTP status 400, TeaPot\)"),
        (301, xml_error("PermanentRedirect"), r"is in another region than 'us-east-1': set its region"),
        (200, b"<html>hunter2</html>", r"^http\S+ does not answer as an object store does: check the endpoint"),
    ],
)
def test_refusals_are_one_sentence(
    store: FakeStore, bucket: str, proxy: FaultyProxy, status: int, body: bytes, expected: str
) -> None:
    proxy.add(Mistake("" if status == 200 else "GET", status=status, body=body))
    with pytest.raises(StorageError, match=expected) as caught:
        check(store.location(bucket, endpoint=proxy.url), within=2)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_region_is_taken_from_the_store_if_none_is_given(store: FakeStore, bucket: str, proxy: FaultyProxy) -> None:
    from dataclasses import replace

    wrong = xml_error("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")
    given = store.location(bucket, endpoint=proxy.url)
    proxy.add(Mistake("GET", times=2, status=400, body=wrong))
    with pytest.raises(StorageError, match=r"is in region 'eu-west-1', not in 'us-east-1': set region='eu-west-1'\."):
        check(given)
    assert check(replace(given, region="")).region == "eu-west-1"
    assert "eu-west-1" in proxy.requests[-1][2]["authorization"]


def test_keys_that_are_given_are_not_mixed_with_a_token_of_the_environment(
    store: FakeStore, bucket: str, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another account")
    check(store.location(bucket, endpoint=proxy.url))
    assert "x-amz-security-token" not in proxy.requests[-1][2]


def test_forked_process_refuses_instead_of_hanging(store: FakeStore, bucket: str) -> None:
    program = f"""
import os, warnings
warnings.simplefilter("ignore")
from skyward.storage.listing import check
from skyward.storage.location import BucketLocation
location = BucketLocation({bucket!r}, "", {store.url!r}, "us-east-1", True, "k", "s")
check(location)
pid = os.fork()
if not pid:
    try:
        check(location)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("StorageError Object stores do not work in a process that was forked from one that")


def test_client_refuses_requests_once_it_is_stopped(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    store.put(bucket, k=b"x")
    with BucketClient(store.location(bucket)) as client:
        client.stop()
        with pytest.raises(StorageError, match="^The transfer was stopped before its end"):
            download_many(client.location, list(list_objects(client.location)), tmp_path, client=client)


def test_full_disk_is_told_with_its_numbers(store: FakeStore, bucket: str, tmp_path: Path) -> None:
    """A file system of one MiB, in a mount namespace of its own."""
    store.put(bucket, k=b"x" * (2 << 20), large=b"x" * (2 * RANGE))
    mount = tmp_path / "small"
    mount.mkdir()
    program = f"""
import subprocess
from pathlib import Path
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", {str(mount)!r}], check=True)
from skyward.errors import StorageError
from skyward.storage.download import download
from skyward.storage.location import BucketLocation
location = BucketLocation({bucket!r}, "", {store.url!r}, "us-east-1", True, "k", "s")
for key in ("k", "large"):
    try:
        download(location, key, Path({str(mount)!r}, key))
    except StorageError as error:
        print(error.code, error, sorted(path.name for path in Path({str(mount)!r}).iterdir()), flush=True)
"""
    command = ["unshare", "--mount", sys.executable, "-c", program]
    if os.geteuid() or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounts need root")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("DiskFull s3://")
    assert "(no space left on device): free some space, then start again. []" in first
    assert "bytes are needed and" in second
    assert second.endswith("[]")


@pytest.mark.parametrize("body", [b"", xml_error("NotImplemented")])
def test_store_that_cannot_delete_several_objects_at_once(
    store: FakeStore, bucket: str, proxy: FaultyProxy, body: bytes
) -> None:
    store.put(bucket, a=b"x", b=b"x", c=b"x")
    proxy.add(Mistake("POST", "delete", status=501, body=body))
    with BucketClient(store.location(bucket, endpoint=proxy.url)) as client:
        assert delete(client.location, ["a", "b"], client=client) == 2
        assert store.keys(bucket) == ["c"]
        asked = proxy.count("POST", "delete")
        assert delete(client.location, ["c"], client=client) == 1
    assert store.keys(bucket) == []
    assert proxy.count("POST", "delete") == asked


def test_object_that_may_not_be_deleted_is_told(store: FakeStore, bucket: str, proxy: FaultyProxy) -> None:
    body = (
        b"<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code><Message>hunter2</Message></Error></DeleteResult>"
    )
    proxy.add(Mistake("POST", "delete", status=200, body=body))
    with pytest.raises(StorageError, match=r"^The credentials may not delete s3://bucket-\w+: give them") as caught:
        delete(store.location(bucket, endpoint=proxy.url), ["a", "b"])
    assert "hunter2" not in str(caught.value)
