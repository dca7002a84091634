"""How one node of a pool gets a blob from another: over TLS, where each end shows a certificate of the pool.

The one that asks sends `verb (1) | key (32) | offset (8)`. The answer is a row of frames, each after its length (4):
what follows that offset in the blob, as it comes there, or, to `SHARE`, where another process of the same machine
finds it. An empty frame says that there is nothing yet, and comes once a `BEAT`; the connection ends where
there will be nothing more.
"""

import selectors
import ssl
import struct

from skyward.wire.transport.proof import Steps
from skyward.wire.transport.trust import Credentials, presented

__all__ = ["BEAT", "FRAME", "LENGTH", "REQUEST", "SHARE", "STREAM", "contexts", "handshake"]

STREAM, SHARE = b"R", b"N"

REQUEST = struct.Struct("!1s32sQ")
LENGTH = struct.Struct("!I")

FRAME = 1024 * 1024
"""Bytes of a frame, at most. A blob that passes through n nodes is behind at the last by n of them."""

BEAT = 1.0
"""Seconds between empty frames."""


def contexts(credentials: Credentials) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What the giving end and the asking end of a connection are made with.

    Names are not compared: addresses of nodes change, and a certificate of the pool's own authority says enough.
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
    """Have both ends of a connection that does not block show their certificates.

    Raises:
        OSError: the other end has none of the pool's.
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
