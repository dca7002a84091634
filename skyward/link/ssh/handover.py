"""Handing a machine from one pool to another: everything of the first pool is removed from it, except environments.

Between the two pools a process of ours stands in for the worker. The watchdog of a rented machine, which ends the
machine when it has no worker, thus leaves it alone until its deadline is near.
"""

import asyncio

from skyward.bootstrap.script import root
from skyward.errors import NodeStartError
from skyward.link.connection.transport import LinkError, run_to_completion
from skyward.link.ssh.connect import SSHLink
from skyward.link.ssh.worker import WORKER_FUNCTIONS
from skyward.providers.protocol import RemoteAccess

__all__ = ["WATCHDOG", "clean_machine"]

WATCHDOG = 120
"""Seconds without a worker after which the watchdog of a rented machine ends it. The stand-in ends so much earlier."""

_ANSWER_WITHIN = 20.0
_CLEAN_WITHIN = 60.0
"""Seconds for the connection, and for the script."""

_END_ALL = """
set -u
umask 077
{root}
for node in "$root/nodes/"* "$root/nodes/".[!.]*; do
  if [ -d "$node" ]; then end; fi
done
set -e
rm -rf "${{root:?}}/nodes"
"""
"""End of everything that runs for a pool, and of the process that stands in."""

_CLEAN = """
[ -e "$root/began" ] || { echo 'it is not known since when the machine is used'; exit 3; }
for name in run logs trees blobs trash; do rm -rf "${root:?}/$name"; done
for state in "$root/state/"*; do
  rm -rf "$state/project" "$state/tried" "$state/values"
  if [ -s "$state/environment" ]; then rm -f "$state/environment" "$state/ready"; fi
done
home=${HOME:-/}
set -- /tmp
if [ "$home" != / ]; then set -- "$@" "$home"; fi
for each in /var/tmp /dev/shm; do if [ -d "$each" ]; then set -- "$@" "$each"; fi; done
mine=
[ "$(id -u)" = 0 ] || mine="-user $(id -un)"
remove() {
  # shellcheck disable=SC2086  # options
  find "$@" -xdev \\( -path "$root" -o -path "$home/.ssh/authorized_keys" \\) -prune -o \\
    ! -type d $mine -cnewer "$root/began" -exec rm -f {} +
}
remove "$@" || { sleep 1; remove "$@"; }  # a file that vanished meanwhile is an error
# shellcheck disable=SC2086  # options
find "$@" -xdev -path "$root" -prune -o \\
  -type d $mine -cnewer "$root/began" -print | sort -r | while read -r each; do rmdir "$each" 2>/dev/null || :; done
if [ "$home" != / ]; then
  if ! [ -e "$root/authorized_keys" ]; then rm -f "$home/.ssh/authorized_keys"
  elif ! cmp -s "$root/authorized_keys" "$home/.ssh/authorized_keys"; then
    cat "$root/authorized_keys" >"$home/.ssh/authorized_keys"
  fi
fi
rm -f "$root/authorized_keys" "$root/began"
"""
"""Removal of what a pool left: its scripts, logs and requirements, which may have secrets, its modules, and all files
that were made or changed in temporary folders and the home since its first worker. The keys that may log in are as they
were then. Environments and caches remain; those with variables, which may be secret, are checked again by the next
pool."""

_STAND_IN = """
node=$root/nodes/warm
mkdir -p "$node"
setsid sh -c 'trap "kill \\$!; exit" TERM; sleep {seconds} & wait' skyward.worker.warm </dev/null >/dev/null 2>&1 &
echo "$! $(start_time $!)" >"$node/pid"
"""
"""A process that stands in for the worker, and ends by itself. It is ended as a worker is."""


async def clean_machine(access: RemoteAccess, keep: float = 0.0) -> None:
    """Remove everything of earlier pools from a machine, and have it wait for the next one.

    Args:
        access: the machine.
        keep: seconds for which it waits; 0 if the next pool is here.

    Raises:
        NodeStartError: the machine cannot be reached, or something of a pool is left on it.
    """
    seconds = max(1, int(keep) - WATCHDOG)
    script = WORKER_FUNCTIONS + _END_ALL.format(root=root(access.directory))
    if keep:
        script += _CLEAN + _STAND_IN.format(seconds=seconds)
    link = await SSHLink.open(access, _ANSWER_WITHIN)
    try:
        done = await asyncio.wait_for(link.run("sh", script.encode()), _CLEAN_WITHIN)
        if done.status:
            raise NodeStartError(f"{access.target} could not be cleaned: {(done.out + done.err).strip()[-500:]}")
    except (LinkError, TimeoutError) as error:
        raise NodeStartError(f"{access.target} did not answer: {error}") from None
    finally:
        await run_to_completion(link.close())
