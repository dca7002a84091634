"""Whose connection it is that came to one of our ports."""

import socket
from pathlib import Path

import pytest

from skyward.link.connection.connection_owner import is_of_this_user

pytestmark = [pytest.mark.unit, pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")]


def connection(host: str, family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    """Both ends, the accepted one first."""
    with socket.create_server((host, 0), family=family) as listener:
        caller = socket.create_connection(listener.getsockname()[:2])
        return listener.accept()[0], caller


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connection_of_this_user_passes_until_it_is_gone(host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("there is no IPv6 here")
    accepted, caller = connection(host, socket.AF_INET6 if ":" in host else socket.AF_INET)
    with accepted, caller:
        assert is_of_this_user(accepted)


def test_connection_of_another_user_or_of_nobody_known_does_not_pass(tmp_path: Path) -> None:
    accepted, caller = connection("127.0.0.1", socket.AF_INET)
    with accepted, caller:
        port, here = caller.getsockname()[1], accepted.getsockname()[1]
        row = (
            f"   0: 0100007F:{port:04X} 0100007F:{here:04X} 01 00000000:00000000 00:00000000 00000000 {{}}        0 1\n"
        )
        table = tmp_path / "tcp"
        table.write_text(row.format(54321))
        assert not is_of_this_user(accepted, (str(table),))
        table.write_text(row.format(0))
        assert is_of_this_user(accepted, (str(table),)), "root may do as it likes"
        table.write_text("")
        assert not is_of_this_user(accepted, (str(table),))
        assert is_of_this_user(accepted, (str(tmp_path / "none"),)), "a system that does not tell"


def test_connection_closed_by_its_caller_does_not_pass() -> None:
    """The kernel shows such a socket as one of root."""
    accepted, caller = connection("127.0.0.1", socket.AF_INET)
    with accepted:
        caller.close()
        assert not is_of_this_user(accepted)


def test_half_closed_connection_of_this_user_passes() -> None:
    accepted, caller = connection("127.0.0.1", socket.AF_INET)
    with accepted, caller:
        caller.shutdown(socket.SHUT_WR)
        assert is_of_this_user(accepted)


def test_unix_socket_passes() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_of_this_user(one)
