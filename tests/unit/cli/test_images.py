"""Command `skyward image`: what it asks for, lists and refuses; and the records of images."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.accelerators import L4
from skyward.cli.main import main
from skyward.journal import ImageRecord, ImageRecords, PoolRecord
from skyward.pool.account import images
from skyward.providers import ProviderImage

pytestmark = pytest.mark.unit

BUILT = sky.BuiltImage(
    "aws",
    "ami-1",
    "us-east-1",
    "x86_64",
    "0123456789ab",
    "Python 3.13, torch",
    100,
    5.0,
    datetime(2026, 11, 20, tzinfo=UTC),
)
RECORD = ImageRecord(BUILT, ProviderImage("ami-1", "us-east-1", 100, 5.0, {"pool": "p"}), "123 us-east-1", "p")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for the records, and no settings."""
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Recorded arguments of builds, none of which happens."""
    found: list[Any] = []

    def build_with(pool: str | None, fields: Any, report: Any, *, rebuild: bool) -> sky.BuiltImage:
        found.append((pool, fields, rebuild))
        return BUILT

    monkeypatch.setattr(images, "build_with", build_with)
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["image", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_options_become_fields_of_the_machine(data: Path, asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    (data / "needed.txt").write_text("# of the model\n\ntorch>=2  # newest\nnumpy\n")
    words = [
        "--provider",
        "aws",
        "--gpu",
        "L4",
        "--disk",
        "50",
        "--pip",
        "pandas, tqdm",
        "--requirements",
        "needed.txt",
    ]
    assert run(capsys, "build", *words, "--rebuild") == (0, "ami-1\n", "")
    assert run(capsys, "build", "--pool", "train")[0] == 0
    image = sky.Image(pip=["pandas", "tqdm", "torch>=2", "numpy"])
    assert asked == [
        (None, {"provider": "aws", "accelerator": L4(), "disk_gb": 50.0, "image": image}, True),
        ("train", {}, False),
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--pool", "x", "--pip", "y"],
            "Give --pool, or --pip, --requirements, --apt and --python: ",
        ),
        (["--requirements", "none.txt"], "--requirements none.txt cannot be read: No such file or directory."),
        (
            ["--requirements", "options.txt"],
            "has the option '--index-url https://host': only requirements",
        ),
    ],
)
def test_wrong_options_are_refused(
    data: Path, asked: list[Any], capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    (data / "options.txt").write_text("--index-url https://host\n")
    status, _, err = run(capsys, "build", *words)
    assert status == 2
    assert sentence in err
    assert asked == []


@pytest.mark.parametrize(
    ("fields", "error", "sentence"),
    [
        ({}, sky.SpecError, "An image is built at one provider: name it, as in `--provider aws` or `provider="),
        ({"provider": "aws,gcp"}, sky.SpecError, "An image is built at one provider"),
        ({"provider": "local"}, sky.ProvisioningError, "Provider 'local' cannot make images of machines; these can: "),
        ({"pool": "nothing"}, sky.SpecError, "skyward.toml has no pool 'nothing'; it has none."),
        (
            {"image": sky.Image(pip=["x @ git+https://${TOKEN}@host/x"], env={"TOKEN": "t"})},
            sky.SpecError,
            "so the value of TOKEN might stay in the image, readable to all who use it",
        ),
        (
            {"image": sky.Image(pip=["x @ https://me:secret@host/x.whl"])},
            sky.SpecError,
            "A requirement in pip has credentials in its address",
        ),
    ],
)
def test_images_that_cannot_be_built_are_refused(
    fields: dict[str, Any], error: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "image" in fields:
        fields = {"provider": sky.AWS(), **fields}
    with pytest.raises(error, match=r"^") as refused:
        sky.build_image(**fields)
    assert sentence in str(refused.value)
    assert "secret" not in str(refused.value)
    assert sky.orphans() == []


def test_pool_of_the_configuration_gives_its_machine_and_environment(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Any] = []

    def finished(record: PoolRecord, spec: sky.Spec, report: Any, *, rebuild: bool) -> sky.BuiltImage:
        record.end()
        found.append((spec, rebuild))
        return BUILT

    monkeypatch.setattr(images, "_finished", finished)
    (data / "skyward.toml").write_text(
        "[providers.mine]\ntype = 'aws'\nregion = 'eu-west-1'\n[pools.train]\nprovider = 'mine'\nnodes = '2:8'\n"
        "accelerator = 'L4'\nbudget = 5\ndisk_gb = 50\ncapabilities = ['highmem']\n[pools.train.image]\n"
        "pip = ['numpy']\napt = ['jq']\nenv = {API = 'topsecret123'}\nshell_vars = {A = 'echo a'}\n"
    )
    assert run(capsys, "build", "--pool", "train", "--disk", "70") == (0, "ami-1\n", "")
    [(spec, rebuild)] = found
    assert spec.image == sky.Image(pip=["numpy"], apt=["jq"], env={"API": "topsecret123"}, shell_vars={"A": "echo a"})
    assert (spec.provider, spec.disk_gb, rebuild) == (sky.AWS(region="eu-west-1"), 70.0, False)
    assert (spec.accelerator.name, spec.nodes) == ("L4", sky.Nodes(1))


def test_image_has_the_environment_that_plugins_need(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No node of the pool would start from another one."""
    built: list[sky.Spec] = []

    def finished(record: PoolRecord, spec: sky.Spec, report: Any, *, rebuild: bool) -> sky.BuiltImage:
        record.end()
        built.append(spec)
        return BUILT

    monkeypatch.setattr(images, "_finished", finished)
    (data / "skyward.toml").write_text(
        "[pools.train]\nprovider = 'aws'\naccelerator = 'A100'\nimage.pip = ['numpy']\n"
        "[pools.train.plugins]\ntorch = true\nmig = {profile = '1g.10gb'}\n"
    )
    assert run(capsys, "build", "--pool", "train") == (0, "ami-1\n", "")
    plugins = [sky.plugins.torch(), sky.plugins.mig(profile="1g.10gb")]
    fields: Any = {"accelerator": "A100", "image": sky.Image(pip=["numpy"]), "plugins": plugins}
    sky.build_image(provider=sky.AWS(), **fields)
    for spec in built:
        assert spec.image == sky.Compute(provider="aws", **fields).spec.image
        assert spec.image.pip == ("numpy", "torch")
        assert spec.plugins == (), "steps run on the machines of pools"


def test_providers_that_make_images_are_named() -> None:
    with pytest.raises(sky.ProvisioningError, match="`aws`") as refused:
        sky.build_image(provider=sky.SSH(hosts=["x"]))
    assert "ssh" in str(refused.value)
    assert "`verda`" not in str(refused.value)


def test_images_are_listed_until_they_are_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "list") == (0, "No images: `skyward image build` makes one.\n", "")
    records = ImageRecords()
    records.add(RECORD)
    assert records.all() == [RECORD] == records.of("aws", BUILT.environment)
    assert records.of("gcp", BUILT.environment) == records.of("aws", "another") == []
    assert sky.images() == [BUILT]
    status, out, _ = run(capsys, "list")
    assert status == 0
    assert "ami-1" in out
    assert "at most $5.00" in out
    status, _, err = run(capsys, "delete", "ami-2")
    assert (status, err) == (1, "skyward image: No image 'ami-2' is on record; these are: ami-1.\n")
    records.forget(RECORD)
    assert sky.images() == []


def test_damaged_records_are_named(data: Path) -> None:
    sky.images()
    (data / "data").mkdir(exist_ok=True)
    (data / "data" / "images.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(sky.JournalError, match="records the images of machines that it builds in .*images.db"):
        sky.images()
