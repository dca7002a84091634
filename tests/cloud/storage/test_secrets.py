"""Keys of a store are in no text that anything but the store sees."""

import logging
import pickle
import subprocess
import sys
import traceback
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

import skyward as sky
from skyward.journal.sealing import JournalSeal
from skyward.storage.client import BucketClient
from skyward.storage.listing import check
from skyward.storage.scoped import scoped_credentials
from skyward.transfers.credentials import StoreKeys
from tests.fakes.storage import FakeStore, FaultyProxy, Mistake
from tests.fakes.storage.proxy import xml_error
from tests.fakes.storage.store import SECRET_KEY

TOKEN = "session+token/of+the+store=="
SECRETS = (SECRET_KEY, TOKEN)


def clean(text: str | bytes) -> bool:
    found = text.encode() if isinstance(text, str) else text
    return not any(secret.encode() in found for secret in SECRETS)


def full_storage(url: str) -> sky.Storage:
    return sky.Storage(url, "us-east-1", "AKIAKEY", SECRET_KEY, TOKEN, path_style=True)


def test_texts_of_values_show_no_secret(store: FakeStore, bucket: str) -> None:
    storage = full_storage(store.url)
    volume = sky.Volume(bucket, "/data", storage=storage)
    location = storage.location(bucket, "p")
    assert (location.secret_key, location.session_token) == SECRETS
    values = (storage, volume, sky.Spec(volumes=[volume]), location, StoreKeys("k", SECRET_KEY, TOKEN))
    for value in (*values, sky.Storage(store.url, "", "k", partial(str, SECRET_KEY)), location.describe):
        assert clean(repr(value))
        assert clean(str(value))
        assert clean(f"{value}")
    with BucketClient(location) as client:
        assert clean(repr(client.store()))
        assert clean(repr(vars(client)))


def test_environment_of_nodes_does_not_depend_on_volumes_and_journal_is_sealed(store: FakeStore) -> None:
    spec = sky.Spec(volumes=[sky.Volume("b", "/data", storage=full_storage(store.url))])
    assert spec.image.content_hash() == sky.Spec().image.content_hash()
    seal = JournalSeal(bytes(32))
    packed = seal.pack(spec)
    assert clean(packed)
    assert seal.unpack(packed) == spec
    assert "***" in repr(JournalSeal().unpack(packed))


def test_function_with_a_secret_is_left_behind(store: FakeStore) -> None:
    """Its closure would be stored in the clear."""
    secret = SECRET_KEY
    storage = sky.Storage(store.url, "", "key", lambda: secret)
    for dumps in (cloudpickle.dumps, pickle.dumps, JournalSeal(bytes(32)).pack):
        assert clean(dumps(storage))
    copy = pickle.loads(cloudpickle.dumps(storage))
    with pytest.raises(sky.CredentialsError, match="were given by a function that exists only in the process that mad"):
        copy.ls("bucket")
    named = sky.Storage(store.url, "", "key", full_storage_key)
    assert pickle.loads(pickle.dumps(named)) == named


def full_storage_key() -> str:
    return SECRET_KEY


def test_log_and_errors_show_no_secret(
    store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store repeats what it got, and breaks off."""
    caplog.set_level(logging.DEBUG)
    told = xml_error("SignatureDoesNotMatch", f"<StringToSign>{SECRET_KEY} {TOKEN}</StringToSign>")
    storage = full_storage(proxy.url)
    (tmp_path / "f").write_bytes(b"x")
    proxy.add(Mistake("", times=1, status=503, body=told))
    assert storage.ls(bucket) == []
    proxy.add(Mistake("", status=403, body=told))
    for act in (
        lambda: storage.ls(bucket),
        lambda: storage.upload(bucket, tmp_path / "f"),
        lambda: storage.download(bucket, "f", tmp_path / "g"),
        lambda: storage.rm(bucket, "f"),
        lambda: check(storage.location(bucket)),
    ):
        with pytest.raises(sky.StorageError) as caught:
            act()
        assert clean("".join(traceback.format_exception(caught.value)))
        assert clean(repr(vars(caught.value)))
    assert clean(caplog.text)


def test_failing_function_of_a_key_is_not_repeated(store: FakeStore) -> None:
    def failing() -> str:
        raise ValueError(f"wrong: {SECRET_KEY}")

    with pytest.raises(sky.CredentialsError, match="^The function that returns access_key failed with ValueError") as e:
        sky.Storage(store.url, "", failing, "s").ls("bucket")
    assert clean("".join(traceback.format_exception(e.value)))
    with pytest.raises(
        sky.CredentialsError, match="^The function that returns access_key must return a text, but it r"
    ):
        sky.Storage(store.url, "", lambda: None, "s").ls("bucket")  # type: ignore[arg-type]
    with pytest.raises(sky.SpecError, match="its value is not shown here") as wrong:
        sky.Storage(store.url, "", "k", f"{SECRET_KEY}\n")
    assert clean(str(wrong.value))


def test_processes_have_no_secret_in_their_arguments_or_files(
    store: FakeStore, bucket: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    """A transfer that is held in the middle, with everything it has written."""
    store.put(bucket, k=b"x" * (20 << 20))
    held = proxy.add(Mistake("GET", "k$", times=1, hold_after=1000))
    program = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
import skyward as sky
url, bucket, path = sys.argv[1:]
secret, token = sys.stdin.read().split()
sky.Storage(url, "us-east-1", "AKIAKEY", secret, token, path_style=True).download(bucket, "k", path)
"""
    command = [sys.executable, "-c", program, proxy.url, bucket, str(tmp_path / "files" / "k")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        assert process.stdin is not None
        process.stdin.write(" ".join(SECRETS).encode())
        process.stdin.close()
        assert held.held.wait(60)
        listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, check=True).stdout
        assert b"k" in listed
        assert clean(listed)
        written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        assert written
        assert all(map(clean, written))
        held.release.set()
        assert process.stdout is not None
        assert clean(process.stdout.read())
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close() if process.stdout is not None else None
        process.wait()


def test_short_lived_credentials_are_of_the_prefix_only(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from skyward.storage.location import BucketLocation

    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", store.url)
    location = BucketLocation("bucket", "run", "", "eu-west-1", False, "AKIAKEY", SECRET_KEY)
    made = scoped_credentials(location, True, 60)
    assert (made.bucket, made.prefix, made.region) == ("bucket", "run", "eu-west-1")
    assert made.session_token
    assert made.secret_key != SECRET_KEY
    assert made.access_key != location.access_key
    assert scoped_credentials(made, True, 60) is made
    other = store.location("bucket")
    assert scoped_credentials(other, True, 60) is other
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    with pytest.raises(sky.StorageError, match=r"^AWS made no short-lived credentials for s3://bucket/run \(Endpoint"):
        scoped_credentials(location, True, 60)
