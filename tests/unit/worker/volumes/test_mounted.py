"""Mounts by programs: the reason when one ends at once, and listings that one keeps."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from skyward.errors import StorageError
from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.mounted import MountedVolume
from skyward.worker.volumes.places import Space
from skyward.worker.volumes.tools import Rclone, Unflushed
from skyward.worker.volumes.volume import AttachError

VOLUME = NodeVolume("/data", "mount", True, BucketLocation("bucket", "", "https://store.invalid"))


class EndsAtOnce:
    """A program that ends before its last line, which a process that it has started writes."""

    name = "ends-at-once"

    def command(self, volume: NodeVolume, folder: Path, state: Path) -> list[str]:
        return ["sh", "-c", "echo starting; { sleep 0.5; echo 'error: the keys are wrong'; } & exit 3"]

    def environment(self, volume: NodeVolume) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin"}

    def unflushed(self, volume: NodeVolume, state: Path) -> list[Unflushed]:
        return []

    def has_control(self, volume: NodeVolume) -> bool:
        return False

    def control_address(self, line: str) -> str:
        return ""

    def forget(self, address: str, timeout: float) -> None:
        raise AssertionError


def test_last_line_of_a_program_that_has_ended_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.worker.volumes.places.spaces_folder", lambda: str(tmp_path / "spaces"))
    space = Space("worker")
    made = MountedVolume(VOLUME, EndsAtOnce(), space, tmp_path / "state", lambda folder: folder, lambda: None)
    try:
        with pytest.raises(AttachError, match="ends-at-once could not mount it: error: the keys are wrong"):
            made.attach()
    finally:
        space.clear()


class Refuses(EndsAtOnce):
    """A program that mounts nothing, keeps listings, and refuses to forget them."""

    name = "refuses"

    def command(self, volume: NodeVolume, folder: Path, state: Path) -> list[str]:
        return ["sleep", "1000"]

    def has_control(self, volume: NodeVolume) -> bool:
        return True

    def forget(self, address: str, timeout: float) -> None:
        raise OSError("it answered with status 500")


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MountedVolume]:
    monkeypatch.setattr("skyward.worker.volumes.places.spaces_folder", lambda: str(tmp_path / "spaces"))
    monkeypatch.setattr(MountedVolume, "_wait_mounted", lambda *_: None)
    space = Space("worker")
    made = MountedVolume(VOLUME, Refuses(), space, tmp_path / "state", lambda folder: folder, lambda: None)
    made.attach()
    yield made
    made.detach()
    space.clear()


def test_no_task_starts_with_former_listings(refusing: MountedVolume) -> None:
    with pytest.raises(StorageError) as caught:
        refusing.refresh()
    assert str(caught.value) == (
        "Volume s3://bucket at /data: refuses could not be told to list its folders again: it answered with status 500."
    )


def test_program_that_has_ended_keeps_no_listings(refusing: MountedVolume) -> None:
    refusing.detach()
    refusing.refresh()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "it answered with status 401"),
        (b"nonsense\r\n", "it broke off its answer"),
        (b"", "it broke off its answer|reset"),
    ],
)
def test_answer_other_than_success_is_an_error(answer: bytes, message: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                assert connection.recv(65536).startswith(b"POST /vfs/forget ")
                connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(OSError, match=message):
            Rclone("rclone").forget(f"127.0.0.1:{server.getsockname()[1]}", 30)
        serving.join()
