"""Real machines that boot with user data, which Debian's cloud-init applies, as those of a fake cloud."""

import base64
from pathlib import Path

from tests.machines.machine import Machine, Network

__all__ = ["Booted"]

_BOOT = """
exec >/var/log/boot.log 2>&1
mkdir -p /var/lib/cloud/seed/nocloud
rm -rf /var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data
printf 'instance-id: "{id}"\\nlocal-hostname: "{id}"\\n' >/var/lib/cloud/seed/nocloud/meta-data
base64 -d >/var/lib/cloud/seed/nocloud/user-data <<'DATA'
{user_data}
DATA
cat >/etc/cloud/cloud.cfg.d/99-test.cfg <<'CONFIG'
datasource_list: [NoCloud]
network: {{config: disabled}}
locale: false
CONFIG
ln -sf {uv} /usr/local/bin/uv
rm -f /root/.ssh/authorized_keys
cloud-init init --local
cloud-init init
cloud-init modules --mode config
cloud-init modules --mode final
exec /usr/sbin/sshd -D -e -f /dev/null -o HostKey=/etc/ssh/ssh_host_ed25519_key -o PermitRootLogin=prohibit-password \\
  -o PasswordAuthentication=no -o UsePAM=no -o MaxStartups=100:30:200 -o PidFile=none -o 'Subsystem=sftp internal-sftp'
"""


class Booted:
    """The machines of a fake cloud on a network of this host, by the ids that the cloud gave them."""

    def __init__(self, network: Network, uv: Path) -> None:
        self.by_id: dict[str, Machine] = {}
        self._network = network
        self._uv = uv

    def boot(self, id: str, user_data: str) -> str:
        """Start a machine with user data; return its address."""
        encoded = base64.encodebytes(user_data.encode()).decode()
        machine = self.by_id[id] = self._network.add(_BOOT.format(id=id, user_data=encoded, uv=self._uv))
        return machine.address

    def end(self, id: str) -> None:
        """End a machine."""
        self.by_id[id].kill()
