"""The identity of a pool at a provider: the tags of its machines, and the SSH keys that open them.

Keys are derived from the pool's secret, so that a process which attaches to the pool has them too, and the journal
holds no private key.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["KeyPair", "PoolIdentity", "key_pair"]


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An Ed25519 key pair, as OpenSSH writes it.

    Attributes:
        public: the public key, as a line "ssh-ed25519 AAAA...", without a comment.
        private: the private key, in the format of OpenSSH.
    """

    public: str
    private: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PoolIdentity:
    """A pool, as `Provider.prepare` gets it. It is the same when the call is repeated, also by another process.

    Attributes:
        id: unique id of the pool: up to 51 letters, digits, "-" and "_". It begins and ends with a letter or digit.
        owner: id of this installation of Skyward, the same for all pools whose journal is on this machine.
        key_file: file for the private key of the pool's machines; deleted with the pool.
        derive: derives 32 secret bytes for a purpose, deterministically.
    """

    id: str
    owner: str
    key_file: Path
    derive: Callable[[str], bytes] = field(repr=False, compare=False)

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of everything that a provider creates for the pool."""
        return {"skyward-pool": self.id, "skyward-owner": self.owner}

    def ssh_key(self) -> str:
        """Write the private key that opens the pool's machines to `key_file`; return the public key as a line."""
        pair = key_pair(self.derive("ssh client key"))
        if not self.key_file.exists():
            self.key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = self.key_file.with_name(f".{self.key_file.name}.{os.getpid()}")
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(pair.private)
            partial.replace(self.key_file)
        return pair.public

    @property
    def host_key_seed(self) -> str:
        """Secret from which `key_pair` makes the host keys of machines. A provider keeps it as a `Secret`."""
        return self.derive("ssh host keys").hex()


def key_pair(seed: bytes | str, purpose: str = "") -> KeyPair:
    """Return the key pair of a secret `seed`, and of a `purpose` such as the request of a machine: always the same."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = seed.encode() if isinstance(seed, str) else seed
    key = Ed25519PrivateKey.from_private_bytes(hashlib.blake2b(purpose.encode(), key=secret, digest_size=32).digest())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return KeyPair(public.decode(), private.decode())
