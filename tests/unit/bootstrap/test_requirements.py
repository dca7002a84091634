"""Requirements that other machines cannot have are refused before anything is launched."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import skyward as sky
from skyward.bootstrap.client_environment import check_requirements
from skyward.bootstrap.requirements import check_remote_requirements
from skyward.control.act.nodes.launching import launchers_of
from skyward.journal import PoolRecord
from skyward.providers import ActsOn, Offer

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "requirement",
    [
        "./nope",
        "../nope",
        ".",
        " ./nope ",
        "./nope[extra]",
        "./nope; python_version > '3'",
        "/abs/x-1.0-py3-none-any.whl",
        "~/x",
        "folder/x",
        "x-1.0-py3-none-any.whl",
        "X.tar.gz",
        "file:///abs/x.whl",
        "file:x.whl",
        "FILE:///abs/x.whl",
        "x @ file:///abs/x.whl",
        "x[all] @ file:x.whl",
        "x@./x.whl",
        "-e ./nope",
        "--editable=nope",
        "-e x @ file:///abs/x",
        "-r requirements.txt",
        "--find-links /wheels",
        "${FOLDER}/x.whl",
        "./${VERSION}/x.whl",
    ],
)
def test_local_paths_are_refused(requirement: str) -> None:
    image = sky.Image(pip=["numpy", requirement], env={"FOLDER": "/secret"}, shell_vars={"VERSION": "echo 1"})
    with pytest.raises(sky.SpecError, match=re.escape(f"Image.pip names the local path {requirement!r}, ")) as refused:
        check_remote_requirements(image)
    assert "Image(includes=[...])" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "requirement",
    [
        "numpy",
        "torch[all]>=2,<3; python_version > '3'",
        "a.b-c~=1.0",
        "x @ https://host/x.whl",
        "x[all]@https://host/x.whl",
        "https://host/x.whl",
        "git+https://host/x",
        "git+ssh://git@host/x",
        "x @ git+ssh://git@host/x",
        "-e git+https://host/x",
        "-r https://host/requirements.txt",
        "torch==${VERSION}",
        "${VERSION}",
        "${VERSION}/x.whl",
        "x @ ${VERSION}/x.whl",
        "${INDEX}/x.whl",
    ],
)
def test_packages_and_addresses_are_allowed(requirement: str) -> None:
    image = sky.Image(pip=[requirement], env={"INDEX": "https://host"}, shell_vars={"VERSION": "echo 1"})
    check_remote_requirements(image)


def test_computed_variable_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """`${ROOT}/folder` is not `/folder`, which may exist here."""
    check_requirements(sky.Image(pip=[f"${{ROOT}}{tmp_path}"], shell_vars={"ROOT": "echo /root"}))


@dataclass(frozen=True)
class Cloud:
    """Settings of a cloud that must not be asked for anything."""

    fields: frozenset[str] = frozenset({"image.pip"})
    name: str = "cloud"

    @property
    def acts_on(self) -> ActsOn:
        return ActsOn(self.fields, "This cloud")

    def create_provider(self) -> "Cloud":
        return self

    async def offers(self) -> AsyncIterator[Offer]:
        raise sky.NoOffersError("asked for offers")
        yield


@pytest.mark.parametrize(
    ("cloud", "error", "said"),
    [
        (Cloud(), sky.SpecError, "Image.pip names the local path './nope'"),
        (Cloud(frozenset()), sky.NoOffersError, "asked for offers"),
    ],
    ids=["sets up its machines", "ignores pip"],
)
def test_pool_is_refused_before_its_provider_is_asked(
    cloud: Cloud, error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))
    spec = sky.Spec(provider=cloud, image=sky.Image(pip=["./nope"]))
    record = PoolRecord.new("p", {"": (spec,)}, sky.Options(), spec.ttl)
    try:
        launcher = launchers_of(record, {"": [spec]}, sky.Options())[""]
        with pytest.raises(error, match=re.escape(said)):
            asyncio.run(launcher.prepare())
    finally:
        record.end()
