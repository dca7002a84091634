"""Real machines as those of the fake AWS: they boot with their user data, which Debian's cloud-init applies."""

import base64
import subprocess
from pathlib import Path
from typing import Any

from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID

from tests.fakes.aws.shim import Shim
from tests.machines.machine import Machine, Network

__all__ = ["BootedMachines"]

_BOOT = """
exec >/var/log/boot.log 2>&1
mkdir -p /var/lib/cloud/seed/nocloud
rm -rf /var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data
printf 'instance-id: {id}\\nlocal-hostname: {id}\\n' >/var/lib/cloud/seed/nocloud/meta-data
base64 -d >/var/lib/cloud/seed/nocloud/user-data <<'DATA'
{user_data}
DATA
cat >/etc/cloud/cloud.cfg.d/99-test.cfg <<'CONFIG'
datasource_list: [NoCloud]
network: {{config: disabled}}
locale: false
CONFIG
printf '#!/bin/sh\\nkill -TERM 1\\n' >/usr/local/sbin/shutdown
chmod +x /usr/local/sbin/shutdown
ln -sf {uv} /usr/local/bin/uv
rm -f /root/.ssh/authorized_keys
{unpack}
cloud-init init --local
cloud-init init
cloud-init modules --mode config
cloud-init modules --mode final
"""
"""First process, up to its sshd. `shutdown` ends that, and so the machine."""

_SSHD = """
exec /usr/sbin/sshd -D -e -f /dev/null -o HostKey=/etc/ssh/ssh_host_ed25519_key -o PermitRootLogin=prohibit-password \\
  -o PasswordAuthentication=no -o UsePAM=no -o MaxStartups=100:30:200 -o PidFile=none -o 'Subsystem=sftp internal-sftp'
"""


class BootedMachines:
    """The machines of a fake, on a network of this host.

    Of the disk of a stopped machine, an image of it has `/opt/skyward`.

    Attributes:
        by_id: the machines that were launched.
        keys: by id, the files with keys, histories and data of cloud-init that a machine had when it was stopped.
    """

    def __init__(self, shim: Shim, network: Network, uv: Path, archives: Path) -> None:
        self.by_id: dict[str, Machine] = {}
        self.keys: dict[str, set[str]] = {}
        self._archives = archives
        shim.stopped = self._stop
        self._network = network
        self._uv = uv
        shim.address_of = self._boot
        shim.ended = self._end
        shim.shut_down = lambda id: id in self.by_id.keys() - self.keys and not self.by_id[id].pids()

    def _boot(self, launched: Any) -> str:
        user_data = base64.encodebytes(base64.b64decode(launched.user_data)).decode()
        image = get_backend("ec2")[DEFAULT_ACCOUNT_ID]["us-east-1"].amis[launched.image_id]
        archive = self._archives / f"{image.instance_id}.tar"
        unpack = f"tar -xf {archive} -C /" if archive.exists() else ":"
        start = _BOOT.format(id=launched.id, user_data=user_data, uv=self._uv, unpack=unpack) + _SSHD
        machine = self.by_id[launched.id] = self._network.add(start)
        return machine.address

    def _stop(self, id: str) -> None:
        disk = self.by_id[id].disk
        patterns = (
            *("etc/ssh/ssh_host_*", "root/.ssh/auth*", "root/.*_history", "home/*/.ssh/auth*"),
            *("usr/local/sbin/sky*", "var/lib/cloud/inst*", "var/lib/cloud/scripts/per-boot/*"),
        )
        self.keys[id] = {str(path.relative_to(disk)) for pattern in patterns for path in disk.glob(pattern)}
        command = ["tar", "-cf", str(self._archives / f"{id}.tar"), "-C", str(disk), "opt/skyward"]
        subprocess.run(command, check=True, timeout=60)
        self._end(id)

    def _end(self, id: str) -> None:
        if id in self.by_id:
            self.by_id[id].kill()
