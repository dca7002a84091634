"""Binding of threads to the task that starts them: their output is the task's, and so are their classes.

Python starts threads through functions of `_thread`, which `threading` has under names of its own. On a node all of
those names are replaced, so that every thread is bound, however the task starts it, also through a subclass of
`Thread`. A `ThreadPoolExecutor` may serve several tasks, so each call on it is bound to the task that submits it.
"""

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, wraps
from typing import Any

from skyward.task.variables import run_with, snapshot

__all__ = ["bind_threads"]


def bind_threads() -> None:
    """Bind each thread that a task of this process starts to the task, from now on."""
    for name in ("start_new_thread", "start_joinable_thread"):  # the second since Python 3.13
        start = getattr(_thread, name, None)
        if start is not None:
            replacement = _binding(start)
            for module in (_thread, threading):
                for alias in [each for each, value in vars(module).items() if value is start]:
                    setattr(module, alias, replacement)
    ThreadPoolExecutor.submit = _submitting(ThreadPoolExecutor.submit)  # type: ignore[method-assign]  # see above


def _bound(call: Any) -> Any:
    values = snapshot()
    return partial(run_with, values, call) if values and callable(call) else call


def _binding(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def start_thread(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return start(_bound(function), *args, **kwargs)

    return start_thread


def _submitting(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @wraps(submit)
    def submit_bound(self: ThreadPoolExecutor, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        return submit(self, _bound(fn), *args, **kwargs)

    return submit_bound
