"""Pods that do not start: each wait ends, with its reason, although the cluster would retry for ever."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skyward.errors import SkywardError
from skyward_providers.kubernetes.kubectl import Kubectl
from skyward_providers.kubernetes.states import PodState, state_of, trouble_of

__all__ = ["Waits"]

_RETRIED_FOR = 60.0
_STARTING_FOR = 180.0
"""Seconds for which the cluster may retry to pull an image, and to create a pod's network and volumes."""

_EVENTS_AFTER = 5.0
"""Seconds after which the events of a pod that does not start are read, and read again."""


@dataclass(slots=True)
class _Wait:
    """The wait of a pod: its kind, its start, and the trouble that its events name, with the time they were read."""

    waits: str
    since: float = field(default_factory=time.monotonic)
    trouble: str = ""
    read_at: float = 0.0


class Waits:
    """The waits of the pods that one provider has seen.

    Args:
        schedule_timeout: seconds for which a pod may wait for a place; None for no limit.
    """

    def __init__(self, schedule_timeout: float | None) -> None:
        self._schedule_timeout = schedule_timeout
        self._waits: dict[str, _Wait] = {}

    async def judge(self, kubectl: Kubectl, pod: Mapping[str, Any]) -> PodState:
        """Return the state of a pod; "exited" if it has waited for too long."""
        uid, state = pod["metadata"]["uid"], state_of(pod)
        if not state.waits:
            self._waits.pop(uid, None)
            return state
        wait = self._waits.get(uid)
        if wait is None or wait.waits != state.waits:
            wait = self._waits[uid] = _Wait(state.waits)
        waited = time.monotonic() - wait.since
        detail, limit = state.detail, self._schedule_timeout
        match state.waits:
            case "retry":
                limit = _RETRIED_FOR
            case "start":
                detail = await self._trouble(kubectl, pod, wait) or detail
                limit = _STARTING_FOR if wait.trouble else None
        if limit is None or waited < limit:
            return PodState(state.status, detail, state.waits)
        return PodState("exited", f"{detail}; gave up after {limit:g} s", state.waits)

    async def _trouble(self, kubectl: Kubectl, pod: Mapping[str, Any], wait: _Wait) -> str:
        """Return what the events of a pod say; "" if they are not needed yet, or may not be read."""
        now = time.monotonic()
        if now - max(wait.since, wait.read_at) > _EVENTS_AFTER:
            wait.read_at = now
            selector = f"--field-selector=type=Warning,involvedObject.uid={pod['metadata']['uid']}"
            try:
                wait.trouble = trouble_of((await kubectl.get("events", selector))["items"])
            except SkywardError:  # an optional permission
                wait.trouble = ""
        return wait.trouble
