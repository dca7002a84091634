"""States of pods: what a pod waits for, and why it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from skyward_providers.kubernetes.manifests import CONTAINER

__all__ = ["PodState", "state_of", "trouble_of"]

_NEVER = (
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
"""Reasons of a waiting container that no retry of the cluster helps."""

_RETRIED = ("ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff", "RegistryUnavailable")
"""Reasons of a waiting container that the cluster retries, for ever."""

_TROUBLES = ("FailedCreatePodSandBox", "FailedMount", "FailedAttachVolume", "NetworkNotReady", "Failed")
"""Reasons of events of a pod that cannot start. The pod itself does not say them."""


@dataclass(frozen=True, slots=True)
class PodState:
    """The state of a pod.

    Attributes:
        status: its state as a machine.
        detail: what it waits for, or why it ended, as the end of a sentence.
        waits: "place" if no node has room for it, "retry" if the cluster retries to start it, "start" while it starts.
    """

    status: Literal["provisioning", "running", "exited"]
    detail: str = ""
    waits: Literal["", "place", "retry", "start"] = ""


def state_of(pod: Mapping[str, Any]) -> PodState:
    """Return the state of a pod, as the cluster describes it."""
    status = pod.get("status", {})
    found = (each for each in status.get("containerStatuses", ()) if each["name"] == CONTAINER)
    container: Mapping[str, Any] = next(found, {})
    state = container.get("state", {})
    if ended := _ended(pod, status, state.get("terminated")):
        return PodState("exited", ended)
    if "running" in state:
        return PodState("running")
    waiting = state.get("waiting", {})
    reason = waiting.get("reason", "")
    detail = _because(reason, waiting.get("message", ""))
    if reason in _NEVER:
        return PodState("exited", detail)
    if reason in _RETRIED:
        return PodState("provisioning", detail, "retry")
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            why = _because(condition.get("reason", ""), condition.get("message", ""))
            return PodState("provisioning", f"no node of the cluster has room for it ({why})", "place")
    return PodState("provisioning", detail if reason not in ("", "ContainerCreating") else "", "start")


def _ended(pod: Mapping[str, Any], status: Mapping[str, Any], terminated: Mapping[str, Any] | None) -> str:
    """Return why a pod ended, or is about to; "" if it is not."""
    reason = _because(status.get("reason", ""), status.get("message", ""))
    if terminated is not None:
        why = _because(terminated.get("reason", ""), terminated.get("message", ""))
        return reason or f"its first process ended with {terminated.get('exitCode', '?')} ({why})"
    if status.get("phase") in ("Failed", "Succeeded"):
        return reason or "it has ended"
    if "deletionTimestamp" in pod["metadata"]:
        return reason or "it is being deleted"
    return ""


def trouble_of(events: Sequence[Mapping[str, Any]]) -> str:
    """Return why a pod does not start, of its events; "" if they do not say."""
    found = [each for each in events if each.get("reason") in _TROUBLES]
    last = max(found, key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "", default=None)
    return "" if last is None else _because(last["reason"], last.get("message", ""))


def _because(reason: str, message: str) -> str:
    text = " ".join(message.split()).rstrip(".")
    text = text if len(text) <= 300 else f"{text[:300]}..."
    return ": ".join(filter(None, (reason, text)))
