"""Limit on recorded failures: only the first few of a cell are recorded with frames, in each process of a node."""

from collections import Counter
from collections.abc import Mapping
from threading import Lock  # tasks may replace the attributes of the module
from typing import Any

from skyward.wire.failures.frames import FrameRecorder

__all__ = ["recorder_for"]

_RECORDED = 8
"""Failures of one cell to record. Thousands of elements of a `--map` may fail; users debug one."""

_RUNS = 64
"""Most recent cells whose failures are counted."""

_counts: Counter[str] = Counter()
_lock = Lock()


def recorder_for(run: str, namespace: Mapping[str, Any], node: int, known: str) -> FrameRecorder | None:
    """Return a recorder for the next failure of the cell `run`; None if the limit is reached."""
    with _lock:
        _counts[run] += 1
        if len(_counts) > _RUNS:
            del _counts[next(iter(_counts))]
        return FrameRecorder(namespace, node, known) if _counts[run] <= _RECORDED else None
