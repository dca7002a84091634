"""Fixtures for both sides of a cell's files."""

from pathlib import Path

import pytest

from tests.unit.files.folders import Sides


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    made = Sides(tmp_path)
    made.here.mkdir()
    return made
