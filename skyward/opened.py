"""The pools that this process has open: they are closed as it ends."""

import atexit
import os
import sys
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skyward.compute import Compute

__all__ = ["opened", "say"]

opened: "weakref.WeakSet[Compute]" = weakref.WeakSet()


def say(text: str) -> None:
    """Tell the user."""
    sys.stderr.write(f"{text}\n")


# A process that is forked has no pools: they are its parent's, which closes them.
os.register_at_fork(after_in_child=opened.clear)


@atexit.register
def _close_all() -> None:
    for pool in list(opened):
        try:
            pool.close()
        except Exception as error:
            say(str(error))
