"""Fixtures for the files of a project and of a user, in a working directory per test."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

type Write = Callable[[str], Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Function that writes `skyward.toml` into the working directory."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def write(text: str) -> Path:
        path = folder / "skyward.toml"
        path.write_text(dedent(text))
        return path

    return write


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Function that writes the user's own file."""

    def write(text: str) -> Path:
        path = tmp_path / "home" / "defaults.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(text))
        monkeypatch.setenv("SKYWARD_DEFAULTS", str(path))
        return path

    return write
