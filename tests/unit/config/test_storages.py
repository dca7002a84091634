"""Tables of storages, and volumes that name them."""

import pytest

from skyward.config import load
from skyward.config.pools import configured_values
from skyward.errors import SpecError, UsageError
from skyward.pool.compute import Compute
from skyward.specs import Spec, Storage, Volume
from skyward.specs.storage import VariableCredential
from skyward_jupyter.options.cell_options import parse_cell
from tests.unit.config.conftest import Write

pytestmark = pytest.mark.unit

LAB = """
[storages.lab]
type = "minio"
endpoint = "http://10.0.0.1:9000"
access_key = "key"
secret_key = {env = "LAB_SECRET"}
"""
STORAGE = Storage.minio("http://10.0.0.1:9000", "key", VariableCredential("LAB_SECRET"))


def test_storage_of_a_table(project: Write, user: Write) -> None:
    user("[storages.lab]\nregion = 'here'")
    project(LAB + "[storages.own]\nendpoint = 'https://host'\npath_style = true\n")
    config = load()
    assert config.storages == ("lab", "own")
    assert config.storage("lab") == Storage.minio(STORAGE.endpoint, "key", STORAGE.secret_key, "here")
    assert config.storage("own") == Storage("https://host", path_style=True)
    assert "key" not in repr(config)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "type = 'mini'",
            r"^skyward\.toml:2, storages\.lab\.type: there is no such type of storage; did you mean 'mini",
        ),
        (
            "region = 'x'",
            r"^skyward\.toml:2, storages\.lab\.region: the table needs `type`, one of s3, gcs, r2, minio, ",
        ),
        ("type = 'r2'", r"^skyward\.toml:2, storages\.lab\.type: the table lacks account_id\."),
        (
            "type = 's3'\nacces_key = 'x'",
            r"^skyward\.toml:3, storages\.lab\.acces_key: a storage has no key 'acces_key' here; did you mean",
        ),
        (
            "type = 's3'\naccess_key = 'x'",
            r"^skyward\.toml:3, storages\.lab\.access_key: Storage got access_key without",
        ),
        (
            "type = 's3'\naccess_key = {var = 'x'}\nsecret_key = 'hidden'",
            r"^skyward\.toml:3, storages\.lab\.access_key: it must be a text, or a variable of the environment as",
        ),
    ],
)
def test_wrong_table_is_refused_with_its_place(project: Write, text: str, expected: str) -> None:
    project(f"[storages.lab]\n{text}")
    with pytest.raises(SpecError, match=expected) as caught:
        load().storage("lab")
    assert "hidden" not in str(caught.value)


def test_volumes_of_a_pool_name_storages(project: Write) -> None:
    project(
        LAB + "[[pools.x.volumes]]\nbucket = 'b'\nmount = '/data'\nstorage = 'lab'\nmode = 'copy'\n"
        "[pools.y]\nvolumes = ['lab://b/p:/data:rw', 's3://c:/other']"
    )
    assert configured_values("x") == {"volumes": (Volume("b", "/data", storage="lab", mode="copy"),)}
    (volume,) = Compute(name="x").spec.volumes
    assert volume == Volume("b", "/data", storage=STORAGE, mode="copy")
    assert Compute(name="y").spec.volumes == (
        Volume("b", "/data", "p", read_only=False, storage=STORAGE),
        Volume("c", "/other"),
    )


def test_storage_without_a_table_is_refused(project: Write) -> None:
    project(LAB)
    with pytest.raises(SpecError, match=r"^There is no storage 'labb': write a table `\[storages\.labb\]` in skyward"):
        Compute(Spec(volumes=[Volume("b", "/data", storage="labb")]))


def test_wrong_volume_of_a_file_is_refused_with_its_place(project: Write) -> None:
    project("[pools.x]\nvolumes = [{bucket = 'b', mount = 'data'}]")
    with pytest.raises(SpecError, match=r"^skyward\.toml:2, pools\.x\.volumes: Volume mount must be an absolute path"):
        configured_values("x")


def test_volumes_of_a_cell(project: Write) -> None:
    project(LAB)
    options = parse_cell("--volume s3://b/p:/data --volume lab://c:/out:rw:sync")
    assert options.spec_fields() == {
        "volumes": (
            Volume("b", "/data", "p"),
            Volume("c", "/out", read_only=False, storage=STORAGE, mode="sync"),
        )
    }
    for line, expected in (
        ("--volume b:/data", "A volume must be written as"),
        ("--volume none://b:/data", "There is no storage 'none'"),
    ):
        with pytest.raises(UsageError, match=expected):
            parse_cell(line)
