"""Serialized values: cloudpickle, protocol 5, with large buffers out of band and addressed by content.

`encode` turns a value into an `Outgoing`: a `Payload` for the message, and the blobs that must be on the node before
the message is of use. `decode` is its reverse. `pack` pickles one named value on its own, so that its content address
is the same wherever it is sent: the variables of a notebook cell are packed.
"""

import io
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from skyward.errors import NotPicklableError
from skyward.functions.unrun import UnrunCallError, refusing
from skyward.kept.handles import record_handles, recording_handles
from skyward.kept.keep import stand_in
from skyward.wire.kinds.exceptions import reduce_exception
from skyward.wire.payloads.copies import unchanging
from skyward.wire.payloads.digest import content_address
from skyward.wire.payloads.modules import travelling_by_value
from skyward.wire.payloads.pickler import Pickler
from skyward.wire.payloads.unpicklable import Direction, not_picklable
from skyward.wire.payloads.unrun_calls import is_in_data, unrun_call_error
from skyward.wire.protocol.messages import INLINE_LIMIT, Blob, Payload

if TYPE_CHECKING:
    from skyward.kept.handles import Kept

__all__ = ["Addresses", "Outgoing", "Packed", "ReadBlob", "decode", "dumps", "encode", "pack"]

type Buffer = bytes | bytearray | memoryview
type ReadBlob = Callable[[Blob], Buffer]
"""Returns the bytes of a blob for `decode`."""

_MAX_INLINE = 4 * INLINE_LIMIT
"""Bytes of one payload that may be inside a message. Beyond it, the largest buffers become blobs."""

_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
"""Types that the plain pickler, which is ten times faster, writes exactly as cloudpickle would."""

EMPTY_CALL = pickle.dumps(((), {}), protocol=5)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A payload ready to send, and the blobs it refers to by key.

    Attributes:
        payload: the payload.
        blobs: their bytes, by key.
        kept: handles of kept values that are part of it.
    """

    payload: Payload
    blobs: Mapping[bytes, memoryview] = field(default_factory=dict)
    kept: "tuple[Kept[Any], ...]" = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the payload and of its blobs."""
        inline = [part for part in (self.payload.data, *self.payload.buffers) if not isinstance(part, Blob)]
        return sum(map(len, inline)) + sum(view.nbytes for view in self.blobs.values())


class Addresses(NamedTuple):
    """Content addresses, of 32 bytes each.

    Attributes:
        whole: address of the whole value.
        keys: addresses of the parts that are sent as blobs of their own.
    """

    whole: bytes
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One pickled value with a content address of its own.

    Pickled inside another value it stays as it is: its parts are sent out of band, so a node that has them is not sent
    them again.

    Attributes:
        data: the pickle of the value.
        buffers: its out-of-band buffers (pickle protocol 5), in order.
        kept: handles of kept values that are part of it. They are not pickled.
    """

    data: Buffer
    buffers: tuple[Buffer, ...] = ()
    kept: "tuple[Kept[Any], ...]" = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the value as it is sent."""
        return sum(memoryview(part).nbytes for part in (self.data, *self.buffers))

    def addresses(self) -> "Addresses":
        """Return the content addresses of the value and of its parts, as it is now."""
        views = [memoryview(part).cast("B") for part in (self.data, *self.buffers)]
        parts = [content_address(view) for view in views]
        whole = parts[0] if len(parts) == 1 else content_address(memoryview(b"".join(parts)))
        return Addresses(
            whole, tuple(part for part, view in zip(parts, views, strict=True) if view.nbytes > INLINE_LIMIT)
        )

    def unpack(self) -> Any:
        """Return the value."""
        return pickle.loads(self.data, buffers=self.buffers)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        record_handles(self.kept)
        if protocol < 5:
            return Packed, (bytes(self.data), tuple(map(bytes, self.buffers)))
        return _repack, (pickle.PickleBuffer(self.data), *map(pickle.PickleBuffer, self.buffers))


def _repack(data: Buffer, *buffers: Buffer) -> Packed:
    return Packed(data, buffers)


def pack(value: object, name: str | None = None, direction: Direction = "to a node") -> Packed:
    """Pickle `value` on its own.

    Raises:
        NotPicklableError: it cannot be pickled. The message names `name` and the path inside the value.
    """
    buffers: list[pickle.PickleBuffer] = []
    with recording_handles() as kept:
        data = dumps(value, buffers.append, name, direction)
    return Packed(data, tuple(buffer.raw() for buffer in buffers), tuple(kept.values()))


def dumps(
    value: object,
    collect: Callable[[pickle.PickleBuffer], object] | None = None,
    name: str | None = None,
    direction: Direction = "to a node",
) -> bytes:
    """Return the pickle of `value`; buffers go to `collect`. Local functions and classes are pickled by value.

    Raises:
        NotPicklableError: see `pack`.
    """
    sink = io.BytesIO()
    try:
        with travelling_by_value():
            Pickler(sink, collect).dump(value)
    except UnrunCallError:
        raise
    except Exception as error:
        raise not_picklable(value, name or "the value", error, direction) from error
    return sink.getvalue()


def _dumps_data(
    value: object, buffers: list[pickle.PickleBuffer], name: str, direction: Direction = "to a node"
) -> bytes:
    """Return the pickle of arguments or a result; see `dumps`.

    Raises:
        NotPicklableError: see `pack`; or it is or contains a call that has not run.
    """
    token = refusing.set(True)
    try:
        return dumps(value, buffers.append, name, direction)
    except UnrunCallError as found:
        if is_in_data(value):
            raise unrun_call_error(found.call, value, name, direction) from None
    finally:
        refusing.reset(token)
    buffers.clear()
    return dumps(value, buffers.append, name, direction)  # only code in it refers to the call


def encode(value: object, name: str | None = None, *, as_is: bool = False) -> Outgoing:
    """Serialize `value` in its current state.

    Args:
        value: the value.
        name: its name in errors.
        as_is: do not copy writable memory: the caller ensures that it does not change until it is sent.

    Raises:
        TooLargeError: there is not enough memory for a copy.
        NotPicklableError: see `pack`.
    """
    buffers: list[pickle.PickleBuffer] = []
    with recording_handles() as kept:
        data = dumps(value, buffers.append, name)
    return _with_handles(outgoing(data, [buffer.raw() for buffer in buffers], as_is=as_is), kept)


def encode_argument(value: object, name: str, *, as_is: bool = False) -> Outgoing:
    """Serialize what a task takes; see `encode`.

    Raises:
        TooLargeError: see `encode`.
        NotPicklableError: see `pack`; or it is or contains a call that has not run.
    """
    buffers: list[pickle.PickleBuffer] = []
    with recording_handles() as kept:
        data = _dumps_data(value, buffers, name)
    return _with_handles(outgoing(data, [buffer.raw() for buffer in buffers], as_is=as_is), kept)


def _with_handles(ready: Outgoing, kept: "Mapping[int, Kept[Any]]") -> Outgoing:
    return replace(ready, kept=tuple(kept.values())) if kept else ready


def encode_call(args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str, *, as_is: bool = False) -> Outgoing:
    """Serialize the arguments of a call of function `name`; `as_is`: see `encode`.

    Raises:
        NotPicklableError: see `encode_argument`. The message names the argument.
    """
    if not kwargs and all(type(arg) in _PLAIN for arg in args):
        return outgoing(pickle.dumps((args, {}), protocol=5) if args else EMPTY_CALL, ())
    try:
        return encode_argument((args, dict(kwargs)), f"the arguments of {name}()", as_is=as_is)
    except NotPicklableError:
        for which, value in [*enumerate(args, start=1), *kwargs.items()]:
            encode_argument(value, f"argument {which} of {name}()", as_is=True)
        raise  # each argument can be pickled alone, but not all together


class _PlainPickler(pickle.Pickler):
    """Pickles as Python does, except for exceptions, which Python often cannot rebuild, and for kept values."""

    def reducer_override(self, obj: Any) -> Any:
        if (kept := stand_in(obj)) is not None:
            return kept.__reduce__()
        return reduce_exception(obj) if isinstance(obj, BaseException) else NotImplemented


def encode_result(value: object, name: str = "the result") -> tuple[bytes, list[memoryview]]:
    """Return pickle and buffers of a task's result. Plain pickle is tried first, because most results are plain data.

    Raises:
        NotPicklableError: see `pack`; or it is or contains a call that has not run.
    """
    if type(value) in _PLAIN:
        return pickle.dumps(value, protocol=5), []
    if (kept := stand_in(value)) is not None:
        value = kept
    buffers: list[pickle.PickleBuffer] = []
    sink = io.BytesIO()
    token = refusing.set(True)
    try:
        _PlainPickler(sink, protocol=5, buffer_callback=buffers.append).dump(value)
        data = sink.getvalue()
    except Exception:
        data = None
    finally:
        refusing.reset(token)
    if data is None:
        buffers.clear()
        data = _dumps_data(value, buffers, name, "back from the node")
    return data, [buffer.raw() for buffer in buffers]


def outgoing(data: bytes, views: Sequence[memoryview], *, as_is: bool = False) -> Outgoing:
    """Decide which parts are sent inside the message and which as blobs; `as_is`: see `encode`."""
    if not views and len(data) <= INLINE_LIMIT:
        return Outgoing(Payload(data))
    blobs: dict[bytes, memoryview] = {}

    def place(view: memoryview, limit: int) -> bytes | Blob:
        flat = view.cast("B")
        if flat.nbytes <= limit:
            return bytes(flat)
        key, frozen = (content_address(flat), flat) if as_is else unchanging(flat)
        blobs[key] = frozen
        return Blob(key, flat.nbytes)

    inline = sum(view.nbytes for view in views if view.nbytes <= INLINE_LIMIT)
    limit = INLINE_LIMIT if inline <= _MAX_INLINE else _MAX_INLINE // max(1, len(views))
    return Outgoing(Payload(place(memoryview(data), INLINE_LIMIT), tuple(place(view, limit) for view in views)), blobs)


def decode(payload: Payload, fetch: ReadBlob) -> Any:
    """Return the value of `payload`. Its arrays are writable if `fetch` returns writable blobs."""
    data = fetch(payload.data) if isinstance(payload.data, Blob) else payload.data
    if not payload.buffers:
        return pickle.loads(data)
    return pickle.loads(data, buffers=[_buffer(part, fetch) for part in payload.buffers])


def _buffer(part: bytes | Blob, fetch: ReadBlob) -> Buffer:
    return fetch(part) if isinstance(part, Blob) else bytearray(part)


def blobs_of(payloads: Iterable[Payload]) -> list[Blob]:
    """Return the blobs that `payloads` refer to, in order."""
    return [part for payload in payloads for part in (payload.data, *payload.buffers) if isinstance(part, Blob)]
