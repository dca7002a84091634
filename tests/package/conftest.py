"""The archives of the package, as they are published."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.package.environment import ROOT
from tests.ui.conftest import browser, browser_network

__all__ = ["Archives", "browser", "browser_network"]


@dataclass(frozen=True, slots=True)
class Archives:
    """The wheel and the source archive."""

    wheel: Path
    sdist: Path

    @property
    def version(self) -> str:
        """Version of both."""
        return self.wheel.name.split("-")[1]


def build(project: Path, folder: Path, *targets: str, python: str = sys.executable) -> list[Path]:
    """Build archives of a project into `folder`, by the hatchling beside `python`."""
    words = [word for target in targets for word in ("--target", target)]
    command = [python, "-m", "hatchling", "build", "--directory", str(folder), *words]
    done = subprocess.run(command, cwd=project, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Both archives, built from the files of the repository as they are."""
    wheel, sdist = build(ROOT, tmp_path_factory.mktemp("archives"), "wheel", "sdist")
    return Archives(wheel, sdist)
