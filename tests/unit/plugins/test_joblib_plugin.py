"""The plugins for joblib and scikit-learn as values: what they add to the environment of nodes."""

import importlib.metadata
import pickle
from dataclasses import replace
from typing import Any

import pytest

import skyward as sky
from skyward.plugins.joblib_plugin import Joblib, Sklearn

pytestmark = pytest.mark.unit

VERSIONS = {"joblib": "1.6.0", "scikit-learn": "1.9.1", "threadpoolctl": "3.8.0"}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The packages of the client."""
    here = dict(VERSIONS)

    def version(package: str) -> str:
        if package not in here:
            raise importlib.metadata.PackageNotFoundError(package)
        return here[package]

    monkeypatch.setattr(importlib.metadata, "version", version)
    return here


@pytest.mark.parametrize(
    ("plugin", "pip"),
    [
        (Joblib(), ("joblib==1.6.0", "threadpoolctl==3.8.0")),
        (Joblib(version="1.5.2"), ("joblib==1.5.2", "threadpoolctl==3.8.0")),
        (Sklearn(), ("scikit-learn==1.9.1", "joblib==1.6.0")),
        (Joblib(version="latest"), ("joblib", "threadpoolctl==3.8.0")),
        (Sklearn(version=">=1.8"), ("scikit-learn>=1.8", "joblib==1.6.0")),
        (Sklearn(version="latest"), ("scikit-learn", "joblib==1.6.0")),
    ],
)
def test_nodes_get_the_versions_of_the_client_unless_one_is_given(
    plugin: Joblib | Sklearn, pip: tuple[str, ...]
) -> None:
    image = plugin.image(sky.Image(pip=["pandas"]), sky.Spec())
    assert image.pip == ("pandas", *pip)
    assert plugin.image(image, sky.Spec()) == image
    assert pickle.loads(pickle.dumps(plugin)) == plugin == replace(plugin)


def test_version_of_a_package_is_given_once() -> None:
    """The installation would fail with two versions."""
    for plugins in ([Joblib(version="1.4.0"), Sklearn()], [Sklearn(), Joblib(version="1.4.0")]):
        pip = sky.Compute(provider="aws", plugins=plugins).spec.image.pip
        assert pip == ("joblib==1.4.0", "threadpoolctl==3.8.0", "scikit-learn==1.9.1")
    own = sky.Image(pip=["joblib >= 1.3", "joblib-stubs==1"])
    assert Sklearn().image(own, sky.Spec()).pip == (*own.pip, "scikit-learn==1.9.1")
    other = sky.Image(pip=["joblib", "joblib-stubs==1"])
    assert Sklearn().image(other, sky.Spec()).pip == (*other.pip, "scikit-learn==1.9.1", "joblib==1.6.0")


def test_package_that_the_client_lacks_is_refused_or_taken_in_any_version(installed: dict[str, str]) -> None:
    del installed["threadpoolctl"]
    assert Joblib().image(sky.Image(), sky.Spec()).pip == ("joblib==1.6.0", "threadpoolctl")
    del installed["joblib"]
    for plugin in (Joblib(), Joblib(version="1.5.2"), Sklearn()):
        with pytest.raises(
            sky.SpecError, match=r"^The plugin needs joblib on this machine too: `pip install joblib`\.$"
        ):
            plugin.image(sky.Image(), sky.Spec())


@pytest.mark.parametrize(("here", "is_old"), [("0.17.0", True), ("1.4.2", True), ("1.5.0", False), ("1.10.0", False)])
def test_old_joblib_of_the_client_is_refused_before_nodes_are_rented(
    installed: dict[str, str], here: str, is_old: bool
) -> None:
    installed["joblib"] = here
    if not is_old:
        assert f"joblib=={here}" in Joblib().image(sky.Image(), sky.Spec()).pip
        return
    with pytest.raises(sky.SpecError, match=rf"needs joblib 1\.5 or newer, but {here} is installed"):
        Joblib().image(sky.Image(), sky.Spec())


@pytest.mark.parametrize("version", [1.5, "", "newest", "==latest"])
@pytest.mark.parametrize("kind", [Joblib, Sklearn])
def test_version_must_be_one(kind: Any, version: Any) -> None:
    with pytest.raises(sky.SpecError, match="version must be a version"):
        kind(version=version)
