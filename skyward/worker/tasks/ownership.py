"""Check for exclusive ownership of a task's returned memory, which can then be sent without a copy."""

import sys
import weakref
from typing import Any

__all__ = ["is_ours"]


def is_ours(view: memoryview) -> bool:
    """Return whether nothing can change the memory of `view`, now that the task is over: it holds the last reference.

    False where that is not certain: for an array to which the task, or a library, has kept a reference; for a view of
    another array; and for objects of other kinds than `bytes` and NumPy arrays.
    """
    shown: Any = view.obj
    if type(shown) is bytes:
        return True
    numpy = sys.modules.get("numpy")
    if numpy is None or type(shown) is not numpy.ndarray or not shown.flags.owndata:
        return False
    del shown  # it would be counted, too
    return _references(view) <= _ALONE and not weakref.getweakrefcount(view.obj)


def _references(view: memoryview) -> int:
    return sys.getrefcount(view.obj)


def _of_one_view() -> int:
    view = memoryview(bytearray(1))
    return _references(view)


_ALONE = _of_one_view()
"""Reference count of an object that only a view refers to. It varies with the version of Python."""
