"""The directory of this user's Unix sockets."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from skyward.link.connection.transport import LinkError, socket_directory

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_directory_with_another_mode_is_refused(temporary: Path) -> None:
    socket_directory().chmod(0o755)
    with pytest.raises(LinkError, match="must be a directory that only you can access"):
        socket_directory()


def test_directory_that_is_a_link_is_refused(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir(mode=0o700)
    (temporary / f"sky-ssh-{os.getuid()}").symlink_to(temporary / "elsewhere")
    with pytest.raises(LinkError, match="must be a directory that only you can access"):
        socket_directory()


def test_old_sockets_of_killed_clients_are_removed() -> None:
    directory = socket_directory()
    with (
        socket.socket(socket.AF_UNIX) as listens,
        socket.socket(socket.AF_UNIX) as old,
        socket.socket(socket.AF_UNIX) as new,
    ):
        for each, name in ((listens, "listens"), (old, "old"), (new, "new")):
            each.bind(str(directory / name))
        listens.listen()
        for name in ("listens", "old"):
            os.utime(directory / name, (0, 0))
        assert {path.name for path in socket_directory().iterdir()} == {"listens", "new"}
