"""podman for the tests: without a daemon, each of its commands enters namespaces that a process of the tests keeps.

It writes only below a folder of its own, or inside those namespaces, so this host's networks, firewall and containers
are unchanged. Needs root, `podman`, `runc` and iproute2; runc has fewer requirements of the host than crun.
"""

import json
from collections.abc import Mapping
from typing import Any

from tests.containers.engine import MOUNTS, Engine, cgroups, remove_cgroups

__all__ = ["OF_PODMAN", "Podman"]

_CGROUP = "libpod_parent"
"""Control group of podman's container monitors, which no option changes."""

_START = """
set -e
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir /run/upper /run/work
mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work /var/lib
exec sleep infinity
"""

_SETTINGS = """
[containers]
default_ulimits = ["nofile=8192:8192", "nproc=8192:8192"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_config_dir = "{state}/networks"
"""

_COMMAND = """#!/bin/sh
exec nsenter --net=/proc/{pid}/ns/net --mount=/proc/{pid}/ns/mnt --pid=/proc/{pid}/ns/pid_for_children \\
  env CONTAINERS_CONF={state}/containers.conf \\
  podman --root {state}/data --runroot /run/containers --storage-driver overlay "$@"
"""


OF_PODMAN = {"podman": "podman", "runc": "runc", "nsenter": "util-linux"}
"""Its commands, and their packages."""


class Podman(Engine):
    """podman, ready to use. Its command is a program called `podman` that enters its namespaces."""

    def __init__(self) -> None:
        self._cgroups_before = cgroups(_CGROUP)
        super().__init__()

    def _start(self) -> str:
        return _START

    def _command(self) -> tuple[str, ...]:
        (self._state / "containers.conf").write_text(_SETTINGS.format(state=self._state))
        command = self._state / "podman"
        command.write_text(_COMMAND.format(state=self._state, pid=self._process.pid))
        command.chmod(0o755)
        return (str(command),)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of `sky.Container` for this engine, with this host's files mounted."""
        (command,) = self.command
        return {"binary": command, "options": (*MOUNTS, "--cgroup-parent", f"/{self._name}")}

    def of(self, pool: str) -> list[str]:
        """Return the containers with the label of a pool of that name."""
        listed = json.loads(self.call("ps", "--all", "--format", "json"))
        found = ((each["Names"][0], (each["Labels"] or {}).get("skyward-pool", "")) for each in listed)
        return [name for name, label in found if label.startswith(f"{pool}-")]

    def networks(self) -> list[str]:
        """Return its networks, except the default ones."""
        return [name for name in self.call("network", "ls", "--format", "{{.Name}}").split() if name != "podman"]

    def close(self) -> None:
        """Stop the engine, with all its containers."""
        super().close()
        remove_cgroups([path for path in cgroups(_CGROUP) if path not in self._cgroups_before])
