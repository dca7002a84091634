"""Fixtures of the tests of plugins."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.plugins.stand_ins import Machine, is_alive

__all__ = ["machine"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine with all commands, whose variables this process has too. Daemons that a failed test left are ended."""
    made = Machine.make(tmp_path, "nvidia-smi", "nvidia-cuda-mps-control", "hf")
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SKYWARD_POOL", "train-1")
    yield made
    for daemon in filter(is_alive, made.daemons):
        os.kill(daemon, signal.SIGKILL)
