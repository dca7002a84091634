"""Real machines as the tasks of the fake ECS: their first process is the start command of their container."""

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.aws.tasks import TaskShim
from tests.machines.machine import Machine, Network

__all__ = ["TaskMachines"]


class TaskMachines:
    """The machines of tasks, on a network of this host.

    Attributes:
        by_id: the machines that were launched.
    """

    def __init__(self, tasks: TaskShim, network: Network, uv: Path) -> None:
        self.by_id: dict[str, Machine] = {}
        self._network = network
        self._uv = uv
        tasks.address_of = self._start
        tasks.has_ended = lambda id: id in self.by_id and not self.by_id[id].pids()
        tasks.signal = self._signal

    def leave(self, tasks: TaskShim) -> None:
        """Let further tasks have no machines."""
        tasks.address_of = None
        tasks.has_ended = lambda id: False
        tasks.signal = lambda id, code: None

    def _start(self, task: Any, variables: Mapping[str, str], command: str) -> str:
        start = f"ln -sf {self._uv} /usr/local/bin/uv\n{command}"
        machine = self.by_id[task.id] = self._network.add(start, variables)
        return machine.address

    def _signal(self, id: str, code: str) -> None:
        if id not in self.by_id:
            return
        machine = self.by_id[id]
        if code == "SpotInterruption":
            with contextlib.suppress(ProcessLookupError):
                os.kill(machine.pids()[0], signal.SIGTERM)
        else:
            machine.kill()
