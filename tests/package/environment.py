"""Fresh virtual environments with the package in them."""

import email
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from zipfile import ZipFile

__all__ = ["Environment", "Resolution", "find_python", "requirements"]

ROOT = Path(__file__).parents[2]

UV = Path(sys.executable).with_name("uv")

type Resolution = Literal["oldest", "newest"]
"""Versions of the direct dependencies: the lowest that the package allows, or the newest that there are."""

NOTEBOOK_7 = "notebook>=7.2"
"""Requirement for Notebook 7, which is no dependency: 7.2 is the release that goes with JupyterLab 4.2."""


def find_python(version: str) -> str:
    """Return the path of a CPython of a version, such as "3.12"; empty if there is none on this machine."""
    find = ["sh", "scripts/setup.sh", "--find", version]
    return subprocess.run(find, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def requirements(wheel: Path, extra: str) -> list[str]:
    """Return the requirements of a wheel with an extra."""
    with ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(path))
    of_extra = f"; extra == '{extra}'"
    stated: list[str] = metadata.get_all("Requires-Dist", [])
    return [text.removesuffix(of_extra) for text in stated if "; extra ==" not in text or text.endswith(of_extra)]


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment.

    Attributes:
        folder: its folder.
    """

    folder: Path

    @property
    def python(self) -> str:
        """Path of its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of its processes: those of the tests, without what leads to another environment.

        They write bytecode, unlike those of other tests: most of their time would be the compilation of their packages.
        """
        others = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
        return {name: value for name, value in os.environ.items() if name not in others}

    def run(self, program: str, *arguments: str, at: Path | None = None, given: str = "") -> str:
        """Run a program of the environment, outside of the repository, and return its output.

        Args:
            program: its name.
            *arguments: its arguments.
            at: its working directory.
            given: its standard input.
        """
        command = [str(self.folder / "bin" / program), *arguments]
        done = subprocess.run(
            command,
            cwd=at or self.folder,
            env=self.variables,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @classmethod
    def create(cls, folder: Path, python: str) -> "Environment":
        """Create an environment with pip only."""
        environment = cls(folder)
        environment._uv("venv", "--quiet", "--seed", "--python", python, str(folder))
        return environment

    def install(self, *wanted: str, resolution: Resolution = "newest") -> None:
        """Install packages by uv, which has them in its cache and links them."""
        chosen = {"oldest": "lowest-direct", "newest": "highest"}[resolution]
        self._uv("pip", "install", "--quiet", "--python", self.python, "--resolution", chosen, *wanted)

    def _uv(self, *arguments: str) -> None:
        done = subprocess.run([UV, *arguments], capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"uv {' '.join(arguments)}: {done.stderr}"
