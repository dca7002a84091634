"""Refusal to pickle calls that have not run, where they are data of a task: nothing would run them there.

In code, a call that has not run is legal: in what a function refers to, and in the variables of a cell. So the calls
themselves ask, while they are pickled, whether they are refused; nothing searches the arguments for them.
"""

from contextvars import ContextVar
from typing import Any

__all__ = ["UnrunCall", "UnrunCallError", "refusing"]

refusing: ContextVar[bool] = ContextVar("skyward_refusing_unrun_calls", default=False)
"""True while arguments or results of a task are pickled."""


class UnrunCallError(Exception):
    """Raised in place of the pickle of a call that has not run. It does not leave the library.

    Attributes:
        call: the call, or the group of calls.
    """

    def __init__(self, call: "UnrunCall") -> None:
        super().__init__(call)
        self.call: Any = call


class UnrunCall:
    """Base of the calls that have not run: they cannot be pickled as data of a task."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        if refusing.get():
            raise UnrunCallError(self)
        return super().__reduce_ex__(protocol)
