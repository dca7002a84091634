"""`skyward ssh`: a shell on a node."""

import os

from skyward.cli.pools.access import find_pool, nodes_of_pool, terminal
from skyward.errors import UsageError

__all__ = ["ssh"]


def ssh(*, pool: str, node: int = 0) -> int:
    """Replace this process by a shell on a node, so that its exit status is that of the shell.

    Raises:
        UsageError: there is no such node, or no way to open a shell on it.
    """
    found = find_pool(pool)
    words = terminal(nodes_of_pool(found, node)[0], found.name)
    try:
        os.execvp(words[0], words)
    except FileNotFoundError:
        raise UsageError(f"A shell on this node needs the command `{words[0]}`: install it.") from None
