"""SSH keys of a pool in its cluster, where later calls find them, also those of another process."""

from collections.abc import Mapping
from typing import Any

from skyward.providers import Cluster, KeyPair, PoolIdentity, SSHAccess, key_pair
from skyward.values.validation import Secret

__all__ = ["cluster_keys", "host_key_of", "ssh_access"]


def cluster_keys(pool: PoolIdentity) -> Mapping[str, Any]:
    """Write the client's key; return the entries of `Cluster.specific` from which the other functions take keys."""
    return {
        "public_key": pool.ssh_key(),
        "key_file": str(pool.key_file),
        "host_key_seed": Secret(pool.host_key_seed),
    }


def host_key_of(cluster: Cluster, purpose: str = "") -> KeyPair:
    """Return the host key for a purpose, such as the request of a machine: always the same."""
    return key_pair(cluster.specific["host_key_seed"], purpose)


def ssh_access(cluster: Cluster, host: str, port: int, purpose: str = "") -> SSHAccess:
    """Return the access of root to a machine whose host key is that of a purpose."""
    files, host_key = (cluster.specific["key_file"],), host_key_of(cluster, purpose).public
    return SSHAccess(host, port, "root", client_keys=files, host_key=host_key, config="none")
