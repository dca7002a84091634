"""Bar of a transfer, on terminals and in notebooks."""

import contextlib
import sys
from collections.abc import Iterator
from threading import Lock

from skyward.storage.jobs import ByteProgress

__all__ = ["shown_progress"]


@contextlib.contextmanager
def shown_progress(text: str, total: int | None, wanted: bool | None) -> Iterator[ByteProgress]:
    """Show a bar while the block runs; give the function that moves it.

    Args:
        text: before the bar.
        total: bytes; None if not known.
        wanted: whether to show it; None to show it on a terminal and in a notebook.
    """
    if wanted is None:
        wanted = sys.stderr.isatty() or _is_notebook()
    if not wanted:
        yield lambda _: None
        return
    from tqdm import tqdm  # type: ignore[import-untyped]  # slow to load

    class Bar(tqdm):  # type: ignore[misc]  # it has no types
        monitor_interval = 0  # no thread beside it

    lock = Lock()
    with Bar(total=total, desc=text, unit="B", unit_scale=True, unit_divisor=1024, leave=False) as bar:

        def move(count: int) -> None:
            with lock:
                bar.update(count)

        yield move


def _is_notebook() -> bool:
    loaded = sys.modules.get("IPython")
    return loaded is not None and hasattr(loaded.get_ipython(), "kernel")
