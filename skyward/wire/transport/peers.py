"""Transfer of blobs between nodes of a pool: over TLS, where both ends present a certificate of the pool.

The receiver sends `verb (1) | key (32) | offset (8)`. The answer is a sequence of frames, each preceded by its length
(4): the content of the blob after that offset, as it arrives, or, for `SHARE`, where another process of the same
machine finds it. `FILE` asks for a file of a volume's copy, by its key. An empty frame, sent once per `BEAT`, means
that there is no data yet; the connection closes when there is no more.
"""

import selectors
import ssl
import struct

from skyward.wire.transport.proof import Steps
from skyward.wire.transport.trust import Credentials, presented

__all__ = ["BEAT", "FILE", "FRAME", "LENGTH", "REQUEST", "SHARE", "STREAM", "contexts", "handshake"]

STREAM, SHARE, FILE = b"R", b"N", b"F"

REQUEST = struct.Struct("!1s32sQ")
LENGTH = struct.Struct("!I")

FRAME = 1024 * 1024
"""Maximum size of a frame, in bytes. A blob that is relayed by n nodes is delayed by n frames."""

BEAT = 1.0
"""Seconds between empty frames."""


def contexts(credentials: Credentials) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS contexts of the sending and the receiving end of a connection.

    Host names are not checked: addresses of nodes change, and a certificate of the pool's own authority suffices.
    """
    giving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname = False
    with presented(credentials) as files:
        for context in (giving, asking):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=credentials.ca.decode())
            context.load_cert_chain(files.cert, files.key)
    return giving, asking


def handshake(connection: ssl.SSLSocket) -> Steps[None]:
    """Perform the TLS handshake of a non-blocking connection, with certificates of both ends.

    Raises:
        OSError: the other end has no certificate of the pool.
    """
    while True:
        try:
            connection.do_handshake()
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE
        else:
            return
