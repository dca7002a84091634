"""Certificate authorities created by the client, and the secrets with which the ends of a connection prove themselves.

A pool has one authority for the connections between its nodes, and one per node for the connections between the client
and that node: the certificate of one node opens no other. An authority's key never leaves the client. A member's key
is sent inside a connection of the pool, or in the environment of the starting worker, and is in a file, readable by its
user alone, only while the engine reads it.
"""

import datetime
import hashlib
import hmac
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from casty import TLS

__all__ = ["Authority", "Credentials", "Pass", "passes", "presented"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a member of a pool, as PEM: certificate, key, and the authority's certificate."""

    cert: bytes
    key: bytes = field(repr=False)
    ca: bytes


@dataclass(frozen=True, slots=True)
class Pass:
    """The secrets of one end of the connections between the client and one node.

    Attributes:
        credentials: for the engine, by TLS. The other end's are of the same authority, which is of this node alone.
        key: 32 bytes, for the bulk path, where both ends prove that they have it (`wire.transport.proof`).
    """

    credentials: Credentials
    key: bytes = field(repr=False)

    def write(self) -> str:
        """Return the pass as one line of text, for the environment of a worker. The line is secret."""
        pem = self.credentials
        words = {"cert": pem.cert.decode(), "key": pem.key.decode(), "ca": pem.ca.decode(), "bulk": self.key.hex()}
        return json.dumps(words)

    @classmethod
    def read(cls, text: str) -> "Pass":
        """Return the pass that `write` returned as text."""
        words = json.loads(text)
        pem = Credentials(words["cert"].encode(), words["key"].encode(), words["ca"].encode())
        return cls(pem, bytes.fromhex(words["bulk"]))


def passes(name: str, seed: bytes) -> tuple[Pass, Pass]:
    """Make the passes of the client and of the node `name`.

    The same `seed` of 32 secret bytes makes matching passes, so that another process can attach to a node.
    """
    authority = Authority(name, seed)
    key = hmac.digest(seed, b"bulk", hashlib.sha256)
    return Pass(authority.issue("client"), key), Pass(authority.issue("node"), key)


class Authority:
    """A certificate authority. Creating one imports `cryptography`, which takes a moment.

    Its certificates do not expire: they end with the pool, whose authority exists nowhere else, and a machine with a
    wrong clock must be able to join.

    Args:
        seed: 32 secret bytes; the same seed makes the same authority.
    """

    def __init__(self, pool: str, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._name = f"skyward {pool}"[:64]
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._ca = self._certificate(self._name, self._key.public_key(), ca=True)

    def issue(self, name: str) -> Credentials:
        """Return credentials for a member `name`."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return Credentials(self._certificate(name[:64], key.public_key(), ca=False), pem, self._ca)

    def _certificate(self, name: str, key: object, *, ca: bool) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding

        if not isinstance(key, Ed25519PublicKey):
            raise TypeError("a member's key is an ed25519 key")

        def called(name: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

        builder = (
            x509.CertificateBuilder()
            .subject_name(called(name))
            .issuer_name(called(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
            .not_valid_after(datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("skyward")]), critical=False)
        )
        return builder.sign(self._key, None).public_bytes(Encoding.PEM)

    def __repr__(self) -> str:
        return f"<Authority of {self._name!r}>"


@contextmanager
def presented(credentials: Credentials) -> Iterator[TLS]:
    """Write the credentials to files for the engine, which reads them at its start; the files are removed at exit.

    On Linux the files are in memory. Both ends of every connection present a certificate, and refuse one that is not of
    the pool's authority.
    """
    with ExitStack() as stack:
        cert, key, ca = (stack.enter_context(_file(pem)) for pem in (credentials.cert, credentials.key, credentials.ca))
        yield TLS(cert, key, ca)


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """Return the path of a temporary file with `data`, readable only by this process, or at least only by its user."""
    if sys.platform == "linux":
        fd = os.memfd_create("skyward")
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile(prefix="skyward-") as file:
            file.write(data)
            file.flush()
            yield file.name
