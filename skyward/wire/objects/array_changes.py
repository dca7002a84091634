"""Changes of array elements: found on the node, and written to the notebook's arrays."""

from typing import Any

from blake3 import blake3

from skyward.wire.kinds.arrays import is_array
from skyward.wire.objects.changes import Change, Opaque, Same
from skyward.wire.objects.contents import unlock

__all__ = ["array_change", "is_array_overwritten", "put_array_change"]


def is_array_overwritten(value: Any, change: Change) -> bool:
    """Return whether the notebook has changed array elements that a change covers.

    Call it before any change is applied: arrays may share memory.
    """
    if change.form == "array":
        shape, packed, new = change.now
        if value.shape != shape or value.dtype != new.dtype:
            return False  # the change cannot be applied
        current = value[_mask(packed, value)]
        return bool(current.tobytes() != new.tobytes() and _digest(current) != change.before)
    if type(change.before) is Opaque and change.before.digest is not None and is_array(value):
        return _digest(value) != change.before.digest
    return False


def array_change(array: Any, memory: Any, start: int) -> Change | None:
    """Return the changed elements of an array as a change; None if there are none.

    Args:
        array: the array.
        memory: its bytes on arrival.
        start: current address of the first of them.
    """
    import numpy as np

    offset = array.__array_interface__["data"][0] - start
    before = np.ndarray(array.shape, array.dtype, memory, offset, array.strides)
    differs = _elements(array) != _elements(before)
    if differs.ndim == 2:
        differs = differs.any(axis=1)
    if not differs.any():
        return None
    mask = differs.reshape(array.shape)
    return Change("array", (array.shape, np.packbits(differs), array[mask]), _digest(before[mask]))


def _elements(array: Any) -> Any:
    """Return the elements of an array as numbers, or as rows of bytes, so that they can be compared."""
    import numpy as np

    flat = np.ascontiguousarray(array).reshape(-1)
    if array.itemsize in (1, 2, 4, 8):
        return flat.view(f"u{array.itemsize}")
    return flat.view("u1").reshape(flat.size, array.itemsize)


def _mask(packed: Any, array: Any) -> Any:
    import numpy as np

    return np.unpackbits(packed, count=array.size).astype(bool).reshape(array.shape)


def _digest(array: Any) -> bytes:
    return blake3(array.tobytes()).digest()


def put_array_change(value: Any, now: Any, before: bytes, same: Same) -> bool:
    """Write changed elements to an array of the notebook.

    Returns:
        False: conflicts are found before any change is applied, by `is_array_overwritten`.

    Raises:
        ValueError: the array has another shape or element type here, or its memory is read-only.
    """
    shape, packed, new = now
    if value.shape != shape or value.dtype != new.dtype:
        raise ValueError("its shape or element type has changed here")
    mask = _mask(packed, value)
    if value[mask].tobytes() == new.tobytes():  # written already, for example through another view of the memory
        return False
    was_writable = value.flags.writeable
    if not was_writable:
        unlock(value)
    value[mask] = new
    if not was_writable:
        value.flags.writeable = False
    return False
