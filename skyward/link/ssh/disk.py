"""Check for a full disk as the cause of an error on a machine."""

import asyncio

from skyward.bootstrap.script import root
from skyward.link.connection.transport import LinkError
from skyward.link.ssh.connect import SSHLink
from skyward.providers.protocol import RemoteAccess

__all__ = ["full_disk"]

_CHECK = """
{root}
existing=$root
while [ ! -d "$existing" ]; do existing=$(dirname "$existing"); done
echo "$root $(df -Pk "$existing" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
"""

_CHECK_WITHIN = 5.0

_FULL = 1024
_TIGHT = 1024 * 1024
"""Free space, in KiB, below which a disk counts as full: in any case, and where a program has reported a full disk. A
program removes the file that it could not finish."""


async def full_disk(access: RemoteAccess, link: SSHLink, error: str) -> str:
    """Return one sentence if the disk under our directory is full; "" otherwise. `error`: the error to explain."""
    try:
        async with asyncio.timeout(_CHECK_WITHIN):
            done = await link.run("sh", _CHECK.format(root=root(access.directory)).encode())
        path, left = done.out.strip().rsplit(" ", 1)
        most = _TIGHT if "No space left" in error else _FULL
        if int(left) > most:
            return ""
    except (LinkError, TimeoutError, ValueError):
        return ""
    return (
        f"the disk of {access.target} is full: {path} has {int(left):,} KiB left; free some space, or use another "
        "directory with `directory=`"
    )
