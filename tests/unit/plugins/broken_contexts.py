"""A plugin whose part on nodes breaks a promise about what contexts leave, by its settings."""

import os
import random
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from skyward.specs.plugin import Plugin
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode, TaskInfo

__all__ = ["Changing", "Leaving"]


class Changing(OnNode):
    """A part on nodes whose contexts leave a change, by the name in its settings."""

    def __init__(self, change: str, around: str) -> None:
        self._change = change
        self._around = around

    def _made(self) -> None:
        match self._change:
            case "variable":
                os.environ["LEFT"] = "1"
            case "folder":
                os.chdir("/")
            case "thread":
                threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()
            case "filters":
                warnings.simplefilter("ignore")

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, Any]:
        """Return a number, or random text."""
        if self._around == "environment":
            self._made()
        values: Mapping[str, Any] = {"number": 1, "random": str(random.random())}
        return {"N": values[self._change]} if self._change in values else {}

    @contextmanager
    def around_process(self, node: InstanceInfo) -> Iterator[None]:
        """Leave the change."""
        yield
        if self._around == "process":
            self._made()

    @contextmanager
    def around_task(self, task: TaskInfo) -> Iterator[None]:
        """Leave the change, after an error only, or swallow that."""
        with suppress(*[Exception] * (self._change == "error")):
            try:
                yield
            except Exception:
                if self._around == "failed task":
                    self._made()
                raise
        if self._around == "task":
            self._made()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving(Plugin):
    """A plugin whose part on nodes is `Changing`."""

    name = "leaving"
    on_node = "tests.unit.plugins.broken_contexts:Changing"

    change: str
    around: str

    def settings(self) -> Mapping[str, Any]:
        """Return both."""
        return {"change": self.change, "around": self.around}
