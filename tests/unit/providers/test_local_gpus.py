"""GPUs of local nodes: those of this machine, whatever the spec requests."""

import asyncio
from pathlib import Path
from types import MappingProxyType

import pytest

import skyward as sky
from skyward.control.act.machines.offers import SourceOffer
from skyward.control.decide.machines.sources import MachineSource
from skyward_providers.local_gpus import GPUs, find_gpus, parse, visible

CARD = GPUs("RTX_4090", 1, 24.0)
OTHER = GPUs("T4", 1, 15.0)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with the output of `nvidia-smi` on this machine."""
    command, listed = tmp_path / "bin" / "nvidia-smi", tmp_path / "listed"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\n[ "$1" = --query-gpu=name,memory.total ] && cat {listed}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return listed


def offered(spec: sky.Spec) -> SourceOffer:
    config = sky.Local()
    provider = config.create_provider()

    async def first() -> SourceOffer:
        (offer,) = [each async for each in provider.offers()]
        return SourceOffer(MachineSource("local"), provider, spec, offer, config)

    return asyncio.run(first())


def test_output_of_nvidia_smi_is_parsed() -> None:
    message = "NVIDIA GeForce RTX 4090, 24564\nTesla T4, 15360\nNVIDIA Unknown 9, [N/A]\n\nno comma\n"
    assert list(parse(message)) == [CARD, OTHER, GPUs("NVIDIA Unknown 9", 1)]


@pytest.mark.parametrize(
    ("asked", "seen"),
    [
        (None, [CARD, OTHER]),
        ("1", [OTHER]),
        ("1,0", [OTHER, CARD]),
        ("", []),
        ("-1", []),
        ("0,7,1", [CARD]),
        ("GPU-8932", [CARD]),
    ],
)
def test_visible_gpus_follow_cuda_visible_devices(asked: str | None, seen: list[GPUs]) -> None:
    environ = {} if asked is None else {"CUDA_VISIBLE_DEVICES": asked}
    assert list(visible((CARD, OTHER), MappingProxyType(environ))) == seen


def test_machine_without_nvidia_smi_has_no_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asyncio.run(find_gpus()) is None
    assert offered(sky.Spec(accelerator="A100:2")).accelerators == ""


def test_failing_nvidia_smi_counts_as_no_gpus(machine: Path) -> None:
    assert asyncio.run(find_gpus()) is None


@pytest.mark.parametrize(
    ("listed", "asked", "has", "note"),
    [
        ("", None, "", ""),
        ("", "A100", "", "asked for A100, a local node has none, and runs without it"),
        ("", "A100:4", "", "asked for A100:4, a local node has none, and runs without it"),
        ("Tesla T4, 15360\n" * 2, None, "T4:2", ""),
        ("Tesla T4, 15360\n" * 2, "T4", "T4:2", ""),
        ("Tesla T4, 15360\n", "T4:2", "T4", "asked for T4:2, a local node has T4, and runs with T4"),
        (
            "NVIDIA Unknown 9, 100\n",
            "A100",
            "NVIDIA Unknown 9",
            "asked for A100, a local node has NVIDIA Unknown 9, and runs with NVIDIA Unknown 9",
        ),
    ],
)
def test_note_states_the_actual_gpus_and_the_requested_ones(
    machine: Path, listed: str, asked: str | None, has: str, note: str
) -> None:
    machine.write_text(listed)
    found = offered(sky.Spec(accelerator=asked))
    notes = (f"Local nodes run on this machine as it is; {note}.",) if note else ()
    assert (found.accelerators, found.notes) == (has, notes)


def test_ignored_fields_are_in_the_same_note(machine: Path) -> None:
    machine.write_text("")
    (note,) = offered(sky.Spec(accelerator="A100", vcpus=64, image=sky.Image(apt=["ffmpeg"]))).notes
    assert note == (
        "Local nodes run on this machine as it is; asked for A100, a local node has none, and runs without it; "
        "not acted on: image.apt, vcpus."
    )
