"""The failures of a cell that are recorded with their frames: the first few of it in each process of a node."""

from collections import Counter
from collections.abc import Mapping
from threading import Lock  # tasks may replace the attributes of the module
from typing import Any

from skyward.wire.failures.frames import FrameRecorder

__all__ = ["recorder_for"]

_RECORDED = 8
"""Failures of one cell that are recorded. Thousands of elements of a `--map` may fail, and one is looked into."""

_RUNS = 64
"""Cells whose failures are counted; the latest ones."""

_counts: Counter[str] = Counter()
_lock = Lock()


def recorder_for(run: str, namespace: Mapping[str, Any], node: int, known: str) -> FrameRecorder | None:
    """Return what records the next failure of the cell `run`; None where there were enough of them."""
    with _lock:
        _counts[run] += 1
        if len(_counts) > _RUNS:
            del _counts[next(iter(_counts))]
        return FrameRecorder(namespace, node, known) if _counts[run] <= _RECORDED else None
