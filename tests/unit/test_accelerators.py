"""Catalogue of accelerators, and parsing of their names."""

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from skyward import Accelerator, SpecError, accelerators
from skyward.accelerators import (
    A100,
    H100,
    H200,
    L4,
    V100,
    Custom,
    catalogue_name,
    describe,
    from_name,
    names,
    parse_accelerator,
)

pytestmark = pytest.mark.unit

CATALOGUE = {name: value for name, value in vars(accelerators).items() if name in accelerators._CATALOGUE}


def test_catalogue_is_complete_and_public() -> None:
    assert len(CATALOGUE) == 113  # and Custom
    assert CATALOGUE == accelerators._CATALOGUE


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_model_of_the_catalogue_is_found_by_name(name: str) -> None:
    accelerator = CATALOGUE[name]()
    assert (accelerator.name, accelerator.count) == (name, 1)
    assert accelerator.memory_gb is None if name == "MI300B" else accelerator.memory_gb > 0
    assert accelerator.metadata["manufacturer"]
    assert from_name(name) == from_name(name.lower().replace("_", " ")) == accelerator
    assert parse_accelerator(str(accelerator.with_count(2))) == CATALOGUE[name](count=2)
    assert pickle.loads(pickle.dumps(accelerator)) == accelerator


def test_variants_of_a_model_are_distinct() -> None:
    assert (A100().memory, A100(memory="40GB").memory) == ("80GB", "40GB")
    assert (V100().memory, V100(memory="32GB").memory) == ("16GB", "32GB")
    assert (H100().memory, H100(form_factor="NVL").memory, H100(memory="40GB").memory) == ("80GB", "94GB", "40GB")
    assert dict(H100(form_factor="SXM").metadata or {})["form_factor"] == "SXM"
    assert H200(form_factor="NVL") != H200()
    assert L4(count=0.25).count == 0.25
    assert A100().with_count(4) == A100(count=4)


def test_custom_accelerator_is_described() -> None:
    custom = Custom("Z1", memory="12 gb", count=2, cuda_min="12.0")
    assert custom == Accelerator("Z1", "12GB", 2, {"cuda_min": "12.0"})
    assert Custom("Z1").metadata is None


@pytest.mark.parametrize(
    ("text", "accelerator"),
    [
        ("A100", A100()),
        ("a100:4", A100(count=4)),
        ("4xA100", A100(count=4)),
        (" 4 x A100 ", A100(count=4)),
        ("0.5xL4", L4(count=0.5)),
        ("L4:0.25", L4(count=0.25)),
        ("A100-40GB", A100(memory="40GB")),
        ("A100-SXM4-40GB:8", A100(memory="40GB", count=8)),
        ("NVIDIA H100 80GB HBM3", H100()),
        ("NVIDIA H100 PCIe", H100(form_factor="PCIe")),
        ("H100-NVL", H100(form_factor="NVL")),
        ("Tesla V100-SXM2-16GB", V100()),
        ("L4-24GB", L4()),
        ("4090", accelerators.RTX_4090()),
        ("NVIDIA GeForce RTX 3090 Ti", accelerators.RTX_3090_Ti()),
        ("RTX 6000 Ada", accelerators.RTX_6000_Ada()),
        ("rtx-pro-6000", accelerators.RTX_PRO_6000()),
        ("A6000:2", accelerators.RTX_A6000(count=2)),
        ("MI25", accelerators.Instinct_MI25()),
        ("TPUv5e-4", accelerators.TPUv5e_4()),
    ],
)
def test_text_is_parsed(text: str, accelerator: Accelerator) -> None:
    assert parse_accelerator(text) == accelerator


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "close": (
        lambda: parse_accelerator("A1000"),
        "There is no accelerator 'A1000'; did you mean A100 or RTX_A6000 or RTX_A5000; "
        "use `sky.accelerators.Custom(...)` for any other model.",
    ),
    "far": (
        lambda: from_name("banana split"),
        "There is no accelerator 'banana split'; see `sky.accelerators` for the names; "
        "use `sky.accelerators.Custom(...)` for any other model.",
    ),
    "empty": (
        lambda: parse_accelerator(""),
        "accelerator must be NAME, NAME:COUNT or COUNTxNAME, such as A100:4, but got ''.",
    ),
    "count twice": (
        lambda: parse_accelerator("2xA100:4"),
        "accelerator must be NAME, NAME:COUNT or COUNTxNAME, such as A100:4, but got '2xA100:4'.",
    ),
    "count": (
        lambda: parse_accelerator("A100:four"),
        "accelerator must be NAME, NAME:COUNT or COUNTxNAME, such as A100:4, but got 'A100:four'.",
    ),
    "zero": (
        lambda: parse_accelerator("A100:0"),
        "Accelerator count must be a positive number, but got 0.",
    ),
    "variant": (lambda: from_name("A100", memory="64GB"), "A100 comes with 40GB or 80GB, but got '64GB'."),
    "memory": (lambda: parse_accelerator("L4-40GB"), "L4 does not come with memory '40GB'; it has 24GB."),
    "form": (lambda: from_name("L4", form_factor="SXM"), "L4 does not come with form_factor 'SXM'; it takes count."),
    "form value": (lambda: H200(form_factor="PCIe"), "H200 comes as SXM or NVL, but got 'PCIe'."),  # type: ignore[arg-type]
    "memory type": (
        lambda: Accelerator("x", 80),  # type: ignore[arg-type]
        "Accelerator memory must be a string such as '80GB', but got 80.",
    ),
    "name": (lambda: Accelerator(""), "Accelerator name must be a string, such as 'A100', but got ''."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_accelerators_are_refused(case: str) -> None:
    act, expected = REFUSED[case]
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        act()


# --- the table of gpuhunt, a package of others ---


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVIDIA GeForce RTX 4090", "RTX_4090"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("H100 NVL", "H100-NVL"),
        ("nvidia-l4", "L4"),
    ],
)
def test_name_of_a_known_model_is_one_that_can_be_asked_for(text: str, name: str) -> None:
    assert catalogue_name(text) == name
    assert parse_accelerator(name).name == describe(text).model


def test_unknown_model_keeps_its_text() -> None:
    assert catalogue_name("Quantum Card 7") == "Quantum Card 7"


CAPABILITIES: dict[str, set[float]] = {
    "Pascal": {6},
    "Volta": {7.0},
    "Turing": {7.5},
    "Ampere": {8.0, 8.6},
    "Ada Lovelace": {8.9},
    "Hopper": {9.0},
    "Blackwell": {10.0, 12.0},
}
THEIRS_ONLY = {"A4500", "B300", "GB300", "RTX2000Ada", "RTX4000Ada", "MI308X", "MI325X", "MI350X", "MI355X"}


def test_models_have_the_memory_and_the_architecture_that_gpuhunt_states() -> None:
    gpuhunt = pytest.importorskip("gpuhunt", reason="gpuhunt is not installed")
    theirs = [*gpuhunt.KNOWN_NVIDIA_GPUS, *gpuhunt.KNOWN_AMD_GPUS]
    models = {each.name: describe(each.name).model for each in theirs}
    assert {name for name, model in models.items() if model not in names()} <= THEIRS_ONLY
    sizes: dict[str, set[float]] = {}
    for each in theirs:
        sizes.setdefault(models[each.name], set()).add(float(each.memory))
    for name, model in models.items():
        if model not in names():
            continue
        ours = from_name(model)
        assert ours.memory_gb in sizes[model], f"{model}: {ours.memory}, but gpuhunt has {sizes[model]}"
        assert ours.metadata is not None
        for each in gpuhunt.KNOWN_NVIDIA_GPUS:
            if each.name == name:
                major, minor = each.compute_capability
                assert float(f"{major}.{minor}") in CAPABILITIES[ours.metadata["architecture"]], model
