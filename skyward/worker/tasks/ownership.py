"""Whether memory that a task returned is nobody else's, so that it can be sent as it is."""

import sys
import weakref
from typing import Any

__all__ = ["is_ours"]


def is_ours(view: memoryview) -> bool:
    """Whether nothing can change what `view` shows, now that the task is over: it is the last to refer to the array.

    False where that is not certain: for an array of which the task, or a library, has kept a reference; for one that
    shows part of another; and for objects of other kinds than `bytes` and NumPy arrays.
    """
    shown: Any = view.obj
    if type(shown) is bytes:
        return True
    numpy = sys.modules.get("numpy")
    if numpy is None or type(shown) is not numpy.ndarray or not shown.flags.owndata:
        return False
    del shown  # or it would be counted too
    return _references(view) <= _ALONE and not weakref.getweakrefcount(view.obj)


def _references(view: memoryview) -> int:
    return sys.getrefcount(view.obj)


def _of_one_view() -> int:
    view = memoryview(bytearray(1))
    return _references(view)


_ALONE = _of_one_view()
"""What Python counts for an object that only a view refers to. How much of the asking it counts differs by version."""
