"""Fields of a spec with an effect, by provider, compared with the fields of `Spec` and `Image`."""

from dataclasses import fields
from typing import Any

import pytest

import skyward as sky
from skyward.control.act.machines.offers import SourceOffer
from skyward.control.decide.machines.sources import MachineSource
from skyward.providers.protocol import (
    PROVIDER_FIELDS,
    SETUP_FIELDS,
    SKYWARD_FIELDS,
    UNSUPPORTED_FIELDS,
    InstanceType,
    Offer,
    ProviderConfig,
    acts_on,
    find_provider,
    not_acted_on,
    provider_names,
)
from skyward.specs import Image, PipIndex, Spec

SET: dict[str, Any] = {
    "accelerator": "A100",
    "vcpus": 2,
    "memory_gb": 4,
    "disk_gb": 100,
    "architecture": "arm64",
    "region": "here",
    "ttl": 60,
    "warm": 60,
}
SET_IN_IMAGE: dict[str, Any] = {
    "python": "3.12.1",
    "pip": ["numpy"],
    "pip_indexes": [PipIndex("https://index.invalid/simple", ["torch"])],
    "apt": ["git"],
    "shell_vars": {"NOW": "date"},
    "includes": ["."],
    "excludes": ["*.md"],
    "skyward_source": "pypi",
    "bootstrap_timeout": 10,
    "metrics": None,
}
"""A value for each field that depends on the provider, other than its default."""

SETTINGS: list[Any] = [
    sky.Local(),
    sky.SSH(hosts=["gpu1"]),
    sky.SSH(hosts=["gpu1"], python="/usr/bin/python3"),
    sky.Container(),
    sky.Container(python="/usr/bin/python3"),
    sky.Adapter(),
    sky.Slurm(host="login"),
    sky.Hyperstack(),
    sky.Lambda(),
    sky.VastAI(),
    sky.Verda(),
]


def note(spec: Spec, config: ProviderConfig) -> str:
    place, offer = MachineSource(config.name), Offer("o", InstanceType("m", 1, 1))
    return "".join(SourceOffer(place, config.create_provider(), spec, offer, config).notes)


def test_every_field_is_in_exactly_one_of_the_sets() -> None:
    of_spec = {field.name for field in fields(Spec)} - {"image"}
    of_image = {f"image.{field.name}" for field in fields(Image)}
    listed = [*SKYWARD_FIELDS, *PROVIDER_FIELDS, *UNSUPPORTED_FIELDS]
    assert sorted(listed) == sorted(of_spec | of_image)
    assert SETUP_FIELDS < PROVIDER_FIELDS
    assert {*SET, *(f"image.{name}" for name in SET_IN_IMAGE)} == PROVIDER_FIELDS | UNSUPPORTED_FIELDS


def test_every_own_provider_declares_its_fields() -> None:
    for name in provider_names():
        assert hasattr(find_provider(name), "acts_on"), name


@pytest.mark.parametrize("config", SETTINGS, ids=repr)
def test_declared_fields_depend_on_the_provider(config: ProviderConfig) -> None:
    assert acts_on(config).fields <= PROVIDER_FIELDS


@pytest.mark.parametrize("config", SETTINGS, ids=repr)
def test_every_field_has_an_effect_or_is_in_the_note(config: ProviderConfig) -> None:
    declared = acts_on(config)
    local = "asked for A100, a local node has none, and runs without it" if declared.knows_hardware else None
    for path in PROVIDER_FIELDS | UNSUPPORTED_FIELDS:
        outer, _, inner = path.partition(".")
        spec = Spec(image=Image(**{inner: SET_IN_IMAGE[inner]})) if inner else Spec(**{outer: SET[outer]})
        assert not_acted_on(spec, declared) == (() if path in declared.fields else (path,))
        said = local if path == "accelerator" and local else f"not acted on: {path}"
        assert (f"; {said}." in note(spec, config)) == (path not in declared.fields)
    assert note(Spec(), config) == ""


def test_note_of_each_provider_lists_its_ineffective_fields() -> None:
    spec = Spec(**SET, image=Image(**SET_IN_IMAGE))
    assert note(spec, sky.Local()) == (
        "Local nodes run on this machine as it is; asked for A100, a local node has none, and runs without it; "
        "not acted on: architecture, disk_gb, image.apt, image.metrics, image.skyward_source, memory_gb, region, ttl, "
        "vcpus, warm."
    )
    assert note(spec, sky.SSH(hosts=["gpu1"])) == (
        "SSH hosts are used as they are, and are not compared with the spec; not acted on: accelerator, "
        "architecture, disk_gb, image.metrics, memory_gb, region, vcpus, warm."
    )
    assert note(spec, sky.Container()) == (
        "Containers run on the machine of their engine; not acted on: disk_gb, image.metrics, region, warm."
    )
    assert "image.includes, image.metrics, image.pip" in note(spec, sky.SSH(hosts=["gpu1"], python="/usr/bin/python3"))


def test_provider_without_declaration_acts_on_all_supported_fields() -> None:
    class Undeclared:
        name = "undeclared"

        def create_provider(self) -> Any:
            raise NotImplementedError

    spec = Spec(**SET, image=Image(**SET_IN_IMAGE))
    assert not_acted_on(spec, acts_on(Undeclared())) == ("image.metrics",)


def test_auto_python_is_not_a_request() -> None:
    here = Spec(image=Image(python=Image().resolved_python))
    assert not_acted_on(here, acts_on(sky.Local())) == ()
