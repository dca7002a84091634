"""User data and start commands of machines: the keys of SSH, and a watchdog that ends a machine nobody uses.

The worker ends itself when its client is gone (its lease). The watchdog then ends the machine by the provider's own
means, so a machine never outlives its client, wherever the provider lets a machine end itself.
"""

import json
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from skyward.providers import KeyPair

__all__ = ["cloud_config", "container_start", "first_process", "pod_start", "watch_loop", "watchdog"]

STARTING: Final = 1200
"""Seconds that a machine waits for its first session: it may boot long before its client gets to it."""

IDLE: Final = 120
"""Seconds without a session and a worker after which a machine that had a worker ends."""

_SESSIONS: Final = r"sky[w]ard-session-\|ssh[d][-a-z]*: [^ ]*@notty"
"""Pattern of the command lines of sessions. Its brackets keep it from matching its own command. A shell that a person
has opened on the machine is no session: it must not keep a forgotten machine alive."""

_NO_FILES: Final[Mapping[str, str]] = MappingProxyType({})
_WORKER: Final = r"sky[w]ard\.worker"


def watch_loop(starting: int = STARTING, idle: int = IDLE, every: int = 5) -> str:
    """Return a shell loop that ends once the machine is not used any more. It needs `sh`, `grep` and `sleep`.

    Args:
        starting: seconds that it waits for the first session.
        idle: seconds without a session and a worker, after a worker was there.
        every: seconds between checks.
    """
    return f"""\
quiet=0 patience={starting}
while [ "$quiet" -lt "$patience" ]; do
  sleep {every}
  quiet=$((quiet + {every}))
  if grep -qs '{_SESSIONS}' /proc/[0-9]*/cmdline; then quiet=0; fi
  if grep -qs '{_WORKER}' /proc/[0-9]*/cmdline; then quiet=0 patience={idle}; fi
done
"""


def first_process(starting: int, idle: int) -> str:
    """Return a shell script that is the first process of a container: it ends with the container's last use."""
    return f"trap 'exit 0' TERM\n{watch_loop(starting, idle, 2)}"


def watchdog(end: str, starting: int = STARTING, idle: int = IDLE) -> str:
    """Return a shell script that runs the command `end` once the machine is not used any more, until that works."""
    return f"#!/bin/sh\n{watch_loop(starting, idle)}while :; do\n  {end}\n  sleep 30\ndone\n"


_PER_BOOT: Final = "/var/lib/cloud/scripts/per-boot/skyward-watchdog"
"""Script that cloud-init runs at the end of each boot: a restarted machine must have a watchdog, too."""


def cloud_config(public_key: str, host_key: KeyPair, script: str, files: Mapping[str, str] = _NO_FILES) -> str:
    """Return user data for cloud-init: the client's key for root, the host key, and a watchdog, started at each boot.

    Args:
        script: the watchdog's script; "" for none.
        files: content of further files by path, written before the network is up.
    """
    path = "/usr/local/sbin/skyward-watchdog"
    config: dict[str, object] = {
        "disable_root": False,
        "ssh_authorized_keys": [public_key],
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key.private, "ed25519_public": host_key.public},
    }
    written = [{"path": name, "content": content} for name, content in files.items()]
    if script:
        written.append({"path": path, "permissions": "0700", "content": script})
        starter = f"#!/bin/sh\nsetsid {path} </dev/null >/dev/null 2>&1 &\n"
        written.append({"path": _PER_BOOT, "permissions": "0700", "content": starter})
    if written:
        config["write_files"] = written
    return f"#cloud-config\n{json.dumps(config, indent=1)}\n"


def pod_start(public_key: str, host_key: KeyPair, end: str, port: int = 22) -> str:
    """Return a shell script that is the first process of a container which is entered over SSH.

    It installs an sshd if the image has none, starts it with our keys only, and ends the container with the command
    `end` once nobody uses it. Variables of the image that programs need (PATH, CUDA) are passed on to sessions.
    """
    return container_start(shlex.quote(public_key), shlex.quote(host_key.private), end, port)


def container_start(public_key: str, host_key: str, end: str, port: int = 22, *, notice: str | None = None) -> str:
    """Return the script of `pod_start`, with the keys as words of the shell, such as the names of variables.

    Args:
        public_key: word that expands to the client's public key.
        host_key: word that expands to the private host key.
        end: command that ends the container.
        notice: word that expands to a file, which gets the time of a SIGTERM in seconds since 1970: the container goes
            on until its worker has ended. If it expands to nothing, SIGTERM ends the container. None to ignore it.
    """
    return f"""\
{"" if notice is None else _trap(end, notice)}export DEBIAN_FRONTEND=noninteractive
if ! [ -x /usr/sbin/sshd ]; then
  (apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-server) >/dev/null 2>&1 ||
    apk add -q openssh-server >/dev/null 2>&1 || dnf install -y -q openssh-server >/dev/null 2>&1
fi
umask 077
mkdir -p /run/sshd /root/.ssh /etc/skyward
printf '%s\\n' {public_key} >/etc/skyward/authorized_keys
printf '%s' {host_key} >/etc/skyward/host_key
passed=
for name in PATH LD_LIBRARY_PATH CUDA_HOME CUDA_VERSION NVIDIA_VISIBLE_DEVICES; do
  eval "value=\\${{$name:-}}"
  [ -n "$value" ] && passed="$passed \\"$name=$value\\""
done
[ -n "$passed" ] && printf 'SetEnv%s\\n' "$passed" >/etc/skyward/sshd_config || : >/etc/skyward/sshd_config
/usr/sbin/sshd -f /etc/skyward/sshd_config -p {port} -o HostKey=/etc/skyward/host_key \\
  -o AuthorizedKeysFile=/etc/skyward/authorized_keys -o PermitRootLogin=prohibit-password \\
  -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o UsePAM=no -o StrictModes=no \\
  -o MaxStartups=100:30:200 -o PidFile=none -o 'Subsystem=sftp internal-sftp'
{watch_loop()}while :; do
  {end}
  sleep 30
done
"""


def _trap(end: str, notice: str) -> str:
    """Return the reaction to SIGTERM, which the first process of a container ignores otherwise."""
    drain = f"""\
  if [ -n {notice} ]; then
    date +%s >{notice}
    while grep -qs '{_WORKER}' /proc/[0-9]*/cmdline; do sleep 1; done
  fi
"""
    return f"stopped() {{\n{drain}  {end}\n}}\ntrap stopped TERM\n"
