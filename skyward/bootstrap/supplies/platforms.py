"""Platforms of machines, as uv names them."""

import platform
import re
from dataclasses import dataclass

__all__ = ["Platform"]

_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}

_MANYLINUX = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""Minor versions of glibc 2 for which uv selects wheels, newest first."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform.

    Attributes:
        system: "linux" or "macos".
        architecture: "x86_64" or "aarch64".
        glibc: minor version of glibc 2; None for another C library.
    """

    system: str
    architecture: str
    glibc: int | None

    @classmethod
    def of(cls, system: str, machine: str, libc: str) -> "Platform | None":
        """Return the platform of a machine, as `uname` and `getconf` describe it; None if uv has no name for it."""
        known = {"Linux": "linux", "Darwin": "macos"}.get(system)
        architecture = _ARCHITECTURES.get(machine.lower())
        return None if known is None or architecture is None else cls(known, architecture, _glibc(libc))

    @classmethod
    def of_client(cls) -> "Platform":
        """Return the platform of this process; one that runs nothing if uv has no name for it."""
        found = cls.of(platform.system(), platform.machine(), " ".join(platform.libc_ver()))
        return found or cls(platform.system(), platform.machine(), None)

    def runs_programs_of(self, other: "Platform") -> bool:
        """Return whether programs of another platform run on this one."""
        same = (self.system, self.architecture) == (other.system, other.architecture)
        if self.glibc is None or other.glibc is None:
            return same and self.glibc == other.glibc
        return same and other.glibc <= self.glibc

    def runs_wheel(self, name: str) -> bool:
        """Return whether a wheel runs there: uv selects those that do, but builds others for this machine."""
        tags = name.removesuffix(".whl").rpartition("-")[2].split(".")
        if tags[0].startswith("macosx"):
            return self.system == "macos"
        if tags[0].startswith("linux"):
            return self.runs_programs_of(Platform.of_client())
        return tags[0] == "any" or self.system == "linux"

    @property
    def for_wheels(self) -> str:
        """Its name for `uv pip --python-platform`."""
        if self.system == "macos":
            return f"{self.architecture}-apple-darwin"
        if self.glibc is None:
            return f"{self.architecture}-unknown-linux-musl"
        known = next((version for version in _MANYLINUX if version <= self.glibc), _MANYLINUX[-1])
        return f"{self.architecture}-manylinux_2_{known}"

    @property
    def for_python(self) -> str:
        """Its name in uv's names of Pythons."""
        libc = "none" if self.system == "macos" else "musl" if self.glibc is None else "gnu"
        return f"{self.system}-{self.architecture}-{libc}"


def _glibc(text: str) -> int | None:
    found = re.search(r"(?:glibc|GLIBC|GNU libc|GNU C Library)\D*2\.(\d+)", text)
    return int(found[1]) if found else None
