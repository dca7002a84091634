"""The part of the plugin for MIG that runs on nodes."""

import re
import subprocess
from collections.abc import Iterator, Mapping

from skyward.errors import NodeStartError
from skyward.task.instance import InstanceInfo
from skyward.task.on_node import OnNode

__all__ = ["MigOnNode"]

_WITHIN = 30.0
"""Seconds that `nvidia-smi` may take."""

_DEVICE = re.compile(r"\s*MIG (\S+)\s+Device\s+\d+:\s+\(UUID: (MIG-[^)]+)\)")


class MigOnNode(OnNode):
    """Gives each process of a node a MIG device of its own: a process sees one at most.

    Args:
        profile: name of the profile.
    """

    def __init__(self, profile: str) -> None:
        self._profile = profile

    def environment(self, node: InstanceInfo, worker: int) -> Mapping[str, str]:
        """Return the variable that names the device of slot `worker`: the n-th of the profile, as listed.

        Raises:
            NodeStartError: there is none, or the devices cannot be listed.
        """
        devices = list(self._devices())
        if worker >= len(devices):
            raise NodeStartError(
                f"Node {node.node} has {len(devices)} MIG devices of profile {self._profile}, but "
                f"{node.workers_per_node} processes: lower `concurrency` of `worker=`, or use a smaller profile."
            )
        return {"CUDA_VISIBLE_DEVICES": devices[worker]}

    def _devices(self) -> Iterator[str]:
        try:
            done = subprocess.run(
                ["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WITHIN
            )
        except FileNotFoundError:
            raise NodeStartError("MIG needs nvidia-smi of NVIDIA's driver, which is not on the PATH.") from None
        except subprocess.TimeoutExpired:
            raise NodeStartError(f"nvidia-smi did not list the MIG devices within {_WITHIN:g} s.") from None
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines() or ["it said nothing"]
            raise NodeStartError(f"nvidia-smi cannot list the MIG devices: {said[-1]}")
        for line in done.stdout.splitlines():
            if (found := _DEVICE.match(line)) is not None and found[1] == self._profile:
                yield found[2]
