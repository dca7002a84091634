"""Serialization of keys: equal keys give equal bytes, on every node and in every process."""

import io
import operator
import pickle
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import Any

__all__ = ["key_bytes"]

_LONGEST = 64
"""Longest key in bytes; a longer one is replaced by its digest."""


def key_bytes(key: object) -> bytes:
    """Return the bytes of `key`.

    Numbers, strings, bytes, None, tuples, frozensets, enums and frozen dataclasses are equal as in a Python dict. Keys
    of other types are equal if their pickles are.

    Raises:
        TypeError: `key` cannot be a key.
    """
    hash(key)
    written = _write(key)
    return written if len(written) <= _LONGEST else b"#" + blake2b(written, digest_size=32).digest()


def _write(key: object) -> bytes:
    match key:
        case None:
            return b"n"
        case str():
            return _framed(b"s", key.encode("utf-8", "surrogatepass"))
        case bytes():
            return _framed(b"b", key)
        case float():
            return _framed(b"i", b"%d" % int(key)) if key.is_integer() else _framed(b"f", float.__repr__(key).encode())
        case tuple():
            return _framed(b"t", b"".join(map(_write, key)))
        case frozenset():
            return _framed(b"z", b"".join(sorted(map(_write, key))))
    if hasattr(key, "__index__"):  # bool, int and the integers of NumPy
        return _framed(b"i", b"%d" % operator.index(key))
    kind = f"{type(key).__module__}.{type(key).__qualname__}".encode()
    if isinstance(key, Enum):
        return _framed(b"e", _framed(b"k", kind) + key.name.encode())
    if is_dataclass(key) and not isinstance(key, type):
        values = (getattr(key, each.name) for each in fields(key) if each.compare)
        return _framed(b"d", _framed(b"k", kind) + b"".join(map(_write, values)))
    return _framed(b"p", _pickled(key))


def _framed(tag: bytes, data: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(data), data)


def _pickled(key: object) -> bytes:
    sink = io.BytesIO()
    pickler: Any = pickle.Pickler(sink, protocol=5)
    pickler.fast = True  # else the pickle distinguishes one object that occurs twice from two equal ones
    try:
        pickler.dump(key)
    except Exception as error:
        raise TypeError(f"a {type(key).__name__} cannot be a key: {error}") from error
    return sink.getvalue()
