"""The keys of machines whose SSH server is up before our start script has run.

Until then the server has another host key, and does not know ours, which a client must take for an attack. So the
script also makes the server announce itself by a mark, in the first line of each connection (RFC 4253, 4.2), and a
machine counts as running only once its line has the mark. The mark proves nothing; the host key does.
"""

import asyncio
import contextlib
import hashlib
import shlex
from typing import Final

from skyward.providers import KeyPair

__all__ = ["answers_as", "mark_of", "sshd_setup"]

_PASSED: Final = "PATH LD_LIBRARY_PATH CUDA_HOME CUDA_VERSION NVIDIA_VISIBLE_DEVICES"
"""Variables of a container's image that programs need in sessions too."""

_TRIES: Final = 10
"""Seconds for which the script waits for a server that may be about to start, before it starts one."""

_LONGEST_LINE: Final = 512


def mark_of(public_key: str) -> str:
    """Return the mark of a machine with that public host key."""
    return f"skyward-{hashlib.sha256(public_key.encode()).hexdigest()[:16]}"


def sshd_setup(public_key: str, host_key: KeyPair) -> str:
    """Return a shell script that gives a running sshd our keys and the mark. It needs root, and may run again.

    Keys of the machine's owner stay valid. The variables of the script's environment that programs of a container need
    are passed on to sessions.
    """
    return f"""\
umask 077
mkdir -p /run/sshd /etc/skyward
printf '%s\\n' {shlex.quote(public_key)} >/etc/skyward/authorized_keys
printf '%s' {shlex.quote(host_key.private)} >/etc/skyward/host_key
until [ -s /etc/ssh/sshd_config ]; do sleep 1; done
passed=
for name in {_PASSED}; do
  eval "value=\\${{$name:-}}"
  [ -n "$value" ] && passed="$passed \\"$name=$value\\""
done
{{
  echo 'HostKey /etc/skyward/host_key'
  echo 'AuthorizedKeysFile /etc/skyward/authorized_keys .ssh/authorized_keys'
  echo 'PermitRootLogin prohibit-password'
  echo 'MaxStartups 100:30:200'
  echo 'VersionAddendum {mark_of(host_key.public)}'
  [ -z "$passed" ] || echo "SetEnv$passed"
  grep -iv '^ *HostKey ' /etc/ssh/sshd_config
}} >/etc/skyward/sshd_config
cat /etc/skyward/sshd_config >/etc/ssh/sshd_config
if [ -d /run/systemd/system ]; then
  systemctl restart ssh || systemctl restart sshd
else
  tries=0
  until listeners=$(grep -ls 'ssh[d].*listener' /proc/[0-9]*/cmdline) || [ "$tries" -ge {_TRIES} ]; do
    sleep 1
    tries=$((tries + 1))
  done
  for each in $listeners; do each=${{each#/proc/}}; kill -HUP "${{each%/cmdline}}"; done
  [ -n "$listeners" ] || /usr/sbin/sshd
fi
"""


async def answers_as(host: str, port: int, mark: str, within: float = 3.0) -> bool:
    """Return whether the SSH server at an address announces itself by a mark; False if none answers in time."""
    try:
        async with asyncio.timeout(within):
            reader, writer = await asyncio.open_connection(host, port, limit=_LONGEST_LINE)
            try:
                return mark.encode() in (await reader.readline()).split()
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, ValueError):  # TimeoutError is an OSError; a ValueError is a line that is too long
        return False
