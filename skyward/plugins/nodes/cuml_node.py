"""The part of the plugin for cuML that runs on nodes."""

import importlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode

__all__ = ["CumlOnNode"]

_SWITCH = "CUML_ACCEL_ENABLED"


class CumlOnNode(OnNode):
    """Switches cuML's accelerator on, before a task imports scikit-learn, also by being unpickled."""

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return the variables by which cuML switches itself on as Python starts, and those that it would set then."""
        return {_SWITCH: "1", "CUML_ACCEL_LOG_LEVEL": "warn"}

    def around_process(self, node: InstanceInfo) -> AbstractContextManager[Any]:
        """Switch it on in a worker that has started before; fail where it cannot be on, rather than use the CPU.

        Nothing is done where the user has switched it off.
        """
        if os.environ.get(_SWITCH) == "1":
            accelerator: Any = importlib.import_module("cuml.accel")
            if not accelerator.enabled():
                accelerator.install()
        return nullcontext()
