"""The part of the plugin for cuML that runs on nodes."""

from collections.abc import Mapping

from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode

__all__ = ["CumlOnNode"]


class CumlOnNode(OnNode):
    """Switches cuML's accelerator on."""

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return the variable by which cuML precedes each import of scikit-learn, also that of a pickled function."""
        return {"CUML_ACCEL_ENABLED": "1"}
