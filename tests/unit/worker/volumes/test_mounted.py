"""Mounts by programs: the reason when one ends at once."""

from pathlib import Path

import pytest

from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.mounted import MountedVolume
from skyward.worker.volumes.places import Space
from skyward.worker.volumes.tools import Unflushed
from skyward.worker.volumes.volume import AttachError


class EndsAtOnce:
    """A program that ends before its last line, which a process that it has started writes."""

    name = "ends-at-once"
    rereads_on_hangup = False

    def command(self, volume: NodeVolume, folder: Path, state: Path) -> list[str]:
        return ["sh", "-c", "echo starting; { sleep 0.5; echo 'error: the keys are wrong'; } & exit 3"]

    def environment(self, volume: NodeVolume) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin"}

    def unflushed(self, volume: NodeVolume, state: Path) -> list[Unflushed]:
        return []


def test_last_line_of_a_program_that_has_ended_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.worker.volumes.places.spaces_folder", lambda: str(tmp_path / "spaces"))
    space = Space("worker")
    volume = NodeVolume("/data", "mount", True, BucketLocation("bucket", "", "https://store.invalid"))
    made = MountedVolume(volume, EndsAtOnce(), space, tmp_path / "state", lambda folder: folder, lambda: None)
    try:
        with pytest.raises(AttachError, match="ends-at-once could not mount it: error: the keys are wrong"):
            made.attach()
    finally:
        space.clear()
