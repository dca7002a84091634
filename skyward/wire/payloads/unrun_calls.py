"""Calls that have not run, found in the arguments or the result of a task: which ones are refused, and the errors."""

import io
from types import FunctionType, ModuleType
from typing import Any, override

from skyward.errors import NotPicklableError
from skyward.functions.unrun import UnrunCallError, refusing
from skyward.wire.payloads.modules import travelling_by_value
from skyward.wire.payloads.pickler import Pickler
from skyward.wire.payloads.unpicklable import Direction

__all__ = ["is_in_data", "unrun_call_error"]


class _DataPickler(Pickler):
    """Pickles the data of a value without its code: functions, classes and modules, with what they refer to."""

    @override
    def persistent_id(self, obj: Any) -> Any:
        return id(obj) if isinstance(obj, (FunctionType, type, ModuleType)) else None


def is_in_data(value: object) -> bool:
    """Return whether a call that has not run is part of the data of `value`, not only of functions or classes in it."""
    token = refusing.set(True)
    try:
        with travelling_by_value():
            _DataPickler(io.BytesIO(), _ignore).dump(value)
    except UnrunCallError:
        return True
    except Exception:
        return False  # whoever pickles it with its code gets the error
    finally:
        refusing.reset(token)
    return False


def _ignore(_: object) -> None:
    """Ignore a buffer: no call is in one."""


def unrun_call_error(call: Any, value: object, name: str, direction: Direction) -> NotPicklableError:
    """Return the error for `call` in `value`, which has `name` in errors."""
    found = f"{name} {'is' if call is value else 'has'} a call that has not run, `{call.text}`"
    if direction == "back from the node":
        return NotPicklableError(
            f"{found}, and a node has no pool to run it: run it in the task, with `.local(...)` of its function."
        )
    return NotPicklableError(
        f"{found}, and a task takes values: send it to the pool first, and pass its future, `{call.text} > pool`, or "
        "its result."
    )
