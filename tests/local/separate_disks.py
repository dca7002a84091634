"""Nodes on this machine with a separate working folder, as nodes of other machines have."""

import sys
from dataclasses import dataclass
from pathlib import Path

from skyward.providers.protocol import Access, ExecAccess, Provider
from skyward_providers.local import _ENTER, Local, _LocalProvider

__all__ = ["SeparateDisks"]


@dataclass(frozen=True, slots=True)
class SeparateDisks(Local):
    """Local nodes that are entered by a command, and do not share the disk of their client."""

    outlives: bool = True

    @property
    def shares_files(self) -> bool:
        return False

    def create_provider(self) -> Provider:
        return _Apart(self)


class _Apart(_LocalProvider):
    def _access(self, host: str, directory: Path) -> Access:
        command = (sys.executable, "-ISc", _ENTER)
        return ExecAccess(command, f"this machine ({directory.name})", str(directory), python=sys.executable)
