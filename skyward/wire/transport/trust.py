"""Certificate authorities made by the client, and the secrets with which the ends of a connection prove themselves.

A pool has one authority, for the connections between its nodes, and one for each node, for the connections between the
client and that node: the certificate of one node opens no other. An authority's key never leaves the client. A member's
key travels inside a connection of the pool, or in the environment of the worker that is started, and is in a file,
readable by its user alone, only while the engine reads it.
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
    """What proves that its holder belongs to a pool, as PEM: certificate, key, and the authority's certificate."""

    cert: bytes
    key: bytes = field(repr=False)
    ca: bytes


@dataclass(frozen=True, slots=True)
class Pass:
    """The secrets of one end of the connections between the client and one node.

    Attributes:
        credentials: for the engine, by TLS. The other end's are of the same authority, which is of this node alone.
        key: of 32 bytes, for the bulk path, where both ends prove that they have it (`wire.proof`).
    """

    credentials: Credentials
    key: bytes = field(repr=False)

    def write(self) -> str:
        """One line of text, for the environment of a worker. It is secret."""
        pem = self.credentials
        words = {"cert": pem.cert.decode(), "key": pem.key.decode(), "ca": pem.ca.decode(), "bulk": self.key.hex()}
        return json.dumps(words)

    @classmethod
    def read(cls, text: str) -> "Pass":
        """The pass that `write` gave."""
        words = json.loads(text)
        pem = Credentials(words["cert"].encode(), words["key"].encode(), words["ca"].encode())
        return cls(pem, bytes.fromhex(words["bulk"]))


def passes(name: str, seed: bytes) -> tuple[Pass, Pass]:
    """Make the passes of the client and of the node that is called `name`.

    Two made from the same `seed` of 32 secret bytes fit each other, so that another process can take up a node.
    """
    authority = Authority(name, seed)
    key = hmac.digest(seed, b"bulk", hashlib.sha256)
    return Pass(authority.issue("client"), key), Pass(authority.issue("node"), key)


class Authority:
    """A certificate authority. Making it loads `cryptography`, which takes a moment.

    Its certificates do not expire: they end with the pool, whose authority nobody else has, and a machine whose clock
    is wrong must be able to join.

    Args:
        seed: 32 secret bytes; the same make the same authority.
    """

    def __init__(self, pool: str, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._name = f"skyward {pool}"[:64]
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._ca = self._certificate(self._name, self._key.public_key(), ca=True)

    def issue(self, name: str) -> Credentials:
        """Credentials for a member called `name`."""
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
    """The credentials as the engine takes them: in files, which it reads as it starts, and which are gone after that.

    On Linux they are files in memory. Both ends of every connection show a certificate, and refuse one that is not of
    the pool's authority.
    """
    with ExitStack() as stack:
        cert, key, ca = (stack.enter_context(_file(pem)) for pem in (credentials.cert, credentials.key, credentials.ca))
        yield TLS(cert, key, ca)


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """The path of a file with `data`, for this process, or at least its user, alone."""
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
