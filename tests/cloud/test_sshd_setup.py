"""The mark by which a machine tells that its start script has run."""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from skyward.providers import key_pair
from skyward_providers.cloud import answers_as, mark_of, sshd_setup
from tests.free_port import free_port

pytestmark = pytest.mark.cloud

MARK = "skyward-0123456789abcdef"


async def answered(line: bytes | None, within: float = 3.0) -> bool:
    """Return what is made of a server that says `line`, or nothing."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if line is None:
            await reader.read()
        else:
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        return await answers_as(host, port, MARK, within)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"SSH-2.0-OpenSSH_9.6 {MARK}\r\n".encode(), True),
        (f"SSH-2.0-OpenSSH_9.6p1 Debian-3 {MARK}\r\n".encode(), True),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False),
        (f"SSH-2.0-OpenSSH_9.6 {MARK}0\r\n".encode(), False),
        (b"x" * 100_000, False),
        (b"", False),
    ],
)
def test_server_is_known_by_its_mark(line: bytes, expected: bool) -> None:
    assert asyncio.run(answered(line)) is expected


def test_silent_server_is_not_waited_for() -> None:
    assert not asyncio.run(answered(None, within=0.2))


def test_closed_port_is_no_server() -> None:
    assert not asyncio.run(answers_as("127.0.0.1", free_port(), MARK))


def test_marks_differ_by_machine_and_script_is_valid(tmp_path: Path) -> None:
    first, second = key_pair("seed", "1"), key_pair("seed", "2")
    assert mark_of(first.public) != mark_of(second.public)
    script = sshd_setup("ssh-ed25519 AAAA it's mine", first)
    assert re.search(rf"VersionAddendum {mark_of(first.public)}\b", script)
    file = tmp_path / "script"
    file.write_text(script)
    subprocess.run(["sh", "-n", str(file)], check=True, timeout=20)
