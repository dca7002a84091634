"""Flow control of streams: the amount in flight that the other side has not consumed.

Credit is counted in units, so that a window bounds elements and bytes at once: an element costs one unit and one more
per 16 KiB. The window holds 4,096 small elements or 64 MiB of large ones; an element larger than the window is sent
alone.
"""

from skyward.wire.protocol.messages import Blob, Payload

__all__ = ["UNIT_BYTES", "WINDOW", "cost"]

WINDOW = 4096
"""Units that may be in flight in one direction of one stream."""

UNIT_BYTES = 16 * 1024
"""Bytes of an element for which it costs one more unit."""


def cost(payload: Payload) -> int:
    """Return the units of credit that an element costs, the same at both ends."""
    size = 0
    for part in (payload.data, *payload.buffers):
        size += part.size if isinstance(part, Blob) else len(part)
    return min(WINDOW, 1 + size // UNIT_BYTES)
