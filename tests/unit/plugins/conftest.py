"""Fixtures of the tests of plugins."""

from pathlib import Path

import pytest

from tests.unit.plugins.stand_ins import Machine


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with all commands, whose variables this process has too."""
    made = Machine.make(tmp_path, "nvidia-smi", "nvidia-cuda-mps-control", "hf")
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SKYWARD_POOL", "train-1")
    return made
