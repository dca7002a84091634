"""The command that opens a shell on a machine of a pool, for the user's terminal."""

from skyward.link.ssh.openssh import identity, pinned
from skyward.providers.protocol import SSHAccess

__all__ = ["login"]


def login(access: SSHAccess) -> list[str]:
    """Return the words of the command. Options that the pool does not set come from the user's configuration."""
    return ["ssh", "-t", *identity(access), *(pinned(access) or ()), "--", access.host]
