"""Whether a full disk is why something went wrong on a machine."""

import asyncio

from skyward.bootstrap.script import root
from skyward.link.connection.transport import LinkError
from skyward.link.ssh.connect import SSHLink
from skyward.providers.protocol import RemoteAccess

__all__ = ["full_disk"]

_LOOK = """
{root}
there=$root
while [ ! -d "$there" ]; do there=$(dirname "$there"); done
echo "$root $(df -Pk "$there" | tail -n 1 | tr -s ' ' | cut -d ' ' -f 4)"
"""

_LOOK_WITHIN = 5.0

_FULL = 1024
_TIGHT = 1024 * 1024
"""KiB left with which a disk counts as full, in any case and where a program has said so: it removes what was cut."""


async def full_disk(access: RemoteAccess, link: SSHLink, said: str) -> str:
    """One sentence, if the disk under our directory is full; "" otherwise. `said`: the error that came of it."""
    try:
        async with asyncio.timeout(_LOOK_WITHIN):
            done = await link.run("sh", _LOOK.format(root=root(access.directory)).encode())
        path, left = done.out.strip().rsplit(" ", 1)
        most = _TIGHT if "No space left" in said else _FULL
        if int(left) > most:
            return ""
    except (LinkError, TimeoutError, ValueError):
        return ""
    return (
        f"the disk of {access.target} is full: {path} has {int(left):,} KiB left; make room there, or name another "
        "place with `directory=`"
    )
