"""How a person gets to a machine: the command that opens a shell there, to the very machine that the pool has."""

from skyward.link.ssh.openssh import identity, pinned
from skyward.providers.protocol import SSHAccess

__all__ = ["login"]


def login(access: SSHAccess) -> list[str]:
    """The words of the command, for a terminal. What the pool does not say is as the user's configuration has it."""
    return ["ssh", "-t", *identity(access), *(pinned(access) or ()), "--", access.host]
