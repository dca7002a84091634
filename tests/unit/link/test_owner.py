"""Owner of a connection to one of our ports."""

import socket
from pathlib import Path

import pytest

from skyward.link.connection.owner import is_of_this_user

pytestmark = [pytest.mark.unit, pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux")]


def connection(host: str, family: socket.AddressFamily) -> tuple[socket.socket, socket.socket]:
    """Return both ends, the accepted one first."""
    with socket.create_server((host, 0), family=family) as listener:
        caller = socket.create_connection(listener.getsockname()[:2])
        return listener.accept()[0], caller


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connection_of_this_user_is_accepted(host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("there is no IPv6 here")
    accepted, caller = connection(host, socket.AF_INET6 if ":" in host else socket.AF_INET)
    with accepted, caller:
        assert is_of_this_user(accepted)


def test_connection_of_another_or_unknown_user_is_refused(tmp_path: Path) -> None:
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
        assert is_of_this_user(accepted, (str(table),)), "connections of root are accepted"
        table.write_text("")
        assert not is_of_this_user(accepted, (str(table),))
        assert is_of_this_user(accepted, (str(tmp_path / "none"),)), "a system without the table accepts all"


def test_connection_closed_by_its_peer_is_refused() -> None:
    """The kernel shows such a socket as root's."""
    accepted, caller = connection("127.0.0.1", socket.AF_INET)
    with accepted:
        caller.close()
        assert not is_of_this_user(accepted)


def test_half_closed_connection_of_this_user_is_accepted() -> None:
    accepted, caller = connection("127.0.0.1", socket.AF_INET)
    with accepted, caller:
        caller.shutdown(socket.SHUT_WR)
        assert is_of_this_user(accepted)


def test_unix_socket_is_accepted() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert is_of_this_user(one)
