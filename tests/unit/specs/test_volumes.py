"""Volumes and storages: their texts, and the values that are refused."""

import pickle
from typing import Any

import pytest

from skyward.errors import CredentialsError, SpecError
from skyward.specs import Spec, Storage, Volume
from skyward.specs.storage import VariableCredential

pytestmark = pytest.mark.unit

GCS = Storage.gcs()


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("s3://b:/data", Volume("b", "/data")),
        ("s3://b/:/data", Volume("b", "/data")),
        ("s3://b/p/q/:/data/x", Volume("b", "/data/x", "p/q")),
        ("s3://b/p:1/q:/data:rw", Volume("b", "/data", "p:1/q", read_only=False)),
        ("s3://b:/data:ro:copy", Volume("b", "/data", mode="copy")),
        ("s3://b:/data:copy", Volume("b", "/data", mode="copy")),
        ("s3://b:/data:sync", Volume("b", "/data", read_only=False, mode="sync")),
        ("s3://b:/data:rw:mount", Volume("b", "/data", read_only=False, mode="mount")),
        ("S3://b:/data:mount", Volume("b", "/data", mode="mount")),
        ("gs://b/p:/data", Volume("b", "/data", "p", storage=GCS)),
        ("my-lab://b/p:/data", Volume("b", "/data", "p", storage="my-lab")),
    ],
)
def test_text_of_a_volume(text: str, volume: Volume) -> None:
    assert Volume.parse(text) == volume
    if volume.storage is not GCS:
        assert Volume.parse(str(volume)) == volume


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "b:/data",
            r"^A volume must be written as 's3://bucket/prefix:/data', with ':rw' or a mode such as ':copy' after",
        ),
        ("s3://b", r"^A volume must be written as"),
        ("s3://b:data", r"^A volume must be written as"),
        ("s3://:/data", r"^A volume must be written as"),
        (
            "s3://b:/data:write",
            r"^A volume ends with its mount, then 'ro' or 'rw', then one of auto, mount, copy, sync, ",
        ),
        ("s3://b:/data:rw:ro", r"^A volume ends with its mount"),
        ("s3://b:/data:copy:sync", r"^A volume ends with its mount"),
        ("s3://b/a:/b:/data", r"^The prefix of a volume must have no ':/' in it"),
        ("s3://b:/data:rw:copy", r"^Volume mode 'copy' is for reading only: use mode='sync' to upload what tasks have"),
        ("s3://b:/data:ro:sync", r"^Volume mode 'sync' uploads what tasks have changed: write read_only=False, or use"),
        ("s3://b:/etc", r"^Volume mount '/etc' would hide a folder that the node needs"),
        ("s3://b/../c:/data", r"^Volume prefix must have no part that is empty, '\.' or '\.\.', but got '\.\./c'"),
        (None, r"^A volume must be written as"),
    ],
)
def test_text_that_is_no_volume_is_refused(text: Any, expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        Volume.parse(text)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"bucket": "s3://b"}, r"^Volume bucket must be the name of a bucket only, without '://', but got 's3://b'\.$"),
        ({"bucket": "a/b"}, r"^Volume bucket must be the name of a bucket, but got 'a/b'\.$"),
        ({"mount": "/dev/x"}, r"would hide a folder that the node needs"),
        ({"mount": "/data\n"}, r"^Volume mount must have no control characters, but got '/data\\n'\.$"),
        ({"prefix": "a//b"}, r"^Volume prefix must have no part that is empty"),
        ({"prefix": "a\tb"}, r"^Volume prefix must have no control characters"),
        ({"prefix": 3}, r"^Volume prefix must be str"),
        ({"mode": "stream"}, r"^Volume mode must be one of 'auto', 'mount', 'copy', 'sync', but got 'stream'\.$"),
        ({"storage": 3}, r"^Volume storage must be Storage or str, as in"),
        ({"read_only": 1}, r"^Volume read_only must be bool"),
    ],
)
def test_wrong_fields_of_a_volume_are_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected):
        Volume(**{"bucket": "b", "mount": "/data", **fields})


def test_prefix_is_normalized() -> None:
    assert Volume("b", "/data", prefix="/a/b/").prefix == "a/b"
    assert Volume("b", "/data", prefix="/").prefix == ""


def test_mounts_of_a_spec_are_beside_each_other() -> None:
    with pytest.raises(SpecError, match="^volumes mount '/data/x' below '/data', where it would hide files: give them"):
        Spec(volumes=[Volume("a", "/data/x"), Volume("b", "/data")])
    beside = [Volume("a", "/data2"), Volume("b", "/data"), Volume("c", "/data-x")]
    assert [volume.mount for volume in Spec(volumes=beside).volumes] == ["/data", "/data-x", "/data2"]
    assert Spec(volumes=beside) == Spec(volumes=beside[::-1])
    assert Spec(volumes=Volume("a", "/data")).volumes == (Volume("a", "/data"),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("storage", "endpoint", "region", "path_style"),
    [
        (Storage.s3("eu-west-1"), "", "eu-west-1", False),
        (GCS, "https://storage.googleapis.com", "auto", False),
        (Storage.r2("acc1"), "https://acc1.r2.cloudflarestorage.com", "auto", False),
        (Storage.r2("acc1", jurisdiction="eu"), "https://acc1.eu.r2.cloudflarestorage.com", "auto", False),
        (Storage.minio("http://10.0.0.1:9000/"), "http://10.0.0.1:9000", "", True),
        (Storage.wasabi("eu-central-2"), "https://s3.eu-central-2.wasabisys.com", "eu-central-2", False),
        (Storage.backblaze("us-west-004"), "https://s3.us-west-004.backblazeb2.com", "us-west-004", False),
        (Storage.hyperstack("https://objects.invalid"), "https://objects.invalid", "CANADA-1", True),
    ],
)
def test_presets(storage: Storage, endpoint: str, region: str, path_style: bool) -> None:
    assert (storage.endpoint, storage.region, storage.path_style) == (endpoint, region, path_style)
    assert pickle.loads(pickle.dumps(storage)) == storage


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"endpoint": "host:9000"},
            r"^Storage endpoint must be an address, such as 'https://host:9000', but got 'host:",
        ),
        ({"endpoint": "ftp://host"}, r"^Storage endpoint must be an address"),
        (
            {"endpoint": "https://u:hidden@host"},
            r"^Storage endpoint must have no user and no password: give access_key",
        ),
        ({"endpoint": "u:hidden@host"}, r"^Storage endpoint must be an address, .* but got '\.\.\.@host'\.$"),
        (
            {"access_key": "k"},
            r"^Storage got access_key without secret_key: give both, or neither to use those of this",
        ),
        ({"secret_key": "k"}, r"^Storage got secret_key without access_key"),
        ({"session_token": "k"}, r"^Storage got session_token without access_key and secret_key: give all three"),
        ({"access_key": "k", "secret_key": " hidden"}, r"^Storage secret_key must be a text without spaces around it"),
        ({"access_key": "k", "secret_key": 3}, r"^Storage secret_key must be a text"),
        ({"path_style": "yes"}, r"^Storage path_style must be bool"),
    ],
)
def test_wrong_fields_of_a_storage_are_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError, match=expected) as caught:
        Storage(**fields)
    assert "hidden" not in str(caught.value)


def test_wrong_parts_of_presets_are_refused() -> None:
    with pytest.raises(SpecError, match="^account_id must be the identifier of the account"):
        Storage.r2("https://acc")
    with pytest.raises(SpecError, match="^region must be a region of Wasabi, such as 'us-east-1', but got ''"):
        Storage.wasabi("")
    with pytest.raises(SpecError, match=r"^Storage\.minio needs the address of the server"):
        Storage.minio("")


def test_variable_is_read_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage("https://host", "", VariableCredential("KEY_OF_LAB"), VariableCredential("SECRET_OF_LAB"))
    assert pickle.loads(pickle.dumps(storage)) == storage
    monkeypatch.setenv("KEY_OF_LAB", "k")
    with pytest.raises(CredentialsError, match="^The environment variable SECRET_OF_LAB is not set"):
        storage.location("bucket")
    monkeypatch.setenv("SECRET_OF_LAB", "s")
    assert storage.location("bucket", "/p/").secret_key == "s"
    assert storage.location("bucket", "/p/").prefix == "p"


@pytest.mark.parametrize("given", [["lab://b/p:/data:sync"], "lab://b/p:/data:sync"])
def test_text_in_place_of_a_volume_is_refused_with_its_fix(given: Any) -> None:
    with pytest.raises(SpecError, match="text only in skyward.toml and --volume: write volumes=.sky.Volume.parse") as e:
        Spec(volumes=given)
    fix = str(e.value).rpartition("sky.Volume.parse('")[2].removesuffix("')].")
    assert Volume.parse(fix) == Volume("b", "/data", "p", read_only=False, storage="lab", mode="sync")


@pytest.mark.parametrize(
    "text", ["lab://b/p:/data:sync", "lab://b:/data:rw", "lab://b:/data:rw:mount", "lab://b:/data:copy"]
)
def test_volume_is_shown_as_it_was_written(text: str) -> None:
    assert str(Volume.parse(text)) == text
