"""Tasks of a pool, as DescribeTasks shows them."""

import re
from collections.abc import Mapping
from typing import Any, Final

from skyward.providers import Cluster, Instance, Market
from skyward_providers.cloud import ssh_access

__all__ = ["has_started", "interface_of", "is_spot", "tags_of_task", "task_id", "task_of"]

_STARTING: Final = frozenset({"PROVISIONING", "PENDING", "ACTIVATING"})
_OVER: Final = frozenset({"DEPROVISIONING", "STOPPED", "DELETED"})
_TAKEN: Final[Mapping[str, str]] = {
    "SpotInterruption": "AWS took the spot task back",
    "TerminationNotice": "AWS retired the task",
}
"""Reasons for which AWS stops a task: it goes on for two minutes."""

_LENGTH = 200


def task_id(arn: str) -> str:
    """Return the id of a task."""
    return arn.rpartition("/")[2]


def tags_of_task(described: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a task."""
    return {each["key"]: each["value"] for each in described.get("tags", ())}


def is_spot(described: Mapping[str, Any]) -> bool:
    """Return whether a task is a spot task."""
    return described.get("capacityProviderName") == "FARGATE_SPOT"


def has_started(described: Mapping[str, Any]) -> bool:
    """Return whether a task runs, or is stopping."""
    return described["lastStatus"] not in _STARTING | _OVER


def interface_of(described: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id of a task's network interface and its private address; empty if it has none yet."""
    for attachment in described.get("attachments", ()):
        details = {each["name"]: each["value"] for each in attachment.get("details", ())}
        if "networkInterfaceId" in details:
            return details["networkInterfaceId"], details.get("privateIPv4Address", "")
    return "", ""


def task_of(cluster: Cluster, described: Mapping[str, Any], public: str = "") -> Instance | None:
    """Return a task of a cluster as a machine; None if it was stopped by a call.

    Args:
        public: its public address, if it has one.
    """
    state, stop = described["lastStatus"], described.get("stopCode", "")
    spot, private = is_spot(described), interface_of(described)[1]
    market: Market = "spot" if spot else "on-demand"
    stopping = described.get("desiredStatus") == "STOPPED" or state in _OVER
    host = public if cluster.specific["public_address"] else private
    access = None
    if stopping and (state in _OVER or stop not in _TAKEN):
        if stop == "UserInitiated":
            return None
        status: Any = "exited"
        detail = _reason(described, stop)
    elif state in _STARTING or not host:
        status, detail = "provisioning", "it has no public address yet: its subnet may give none"
        if state in _STARTING:
            detail = f"the task is {state.lower()}"
    else:
        status, detail = "running", ""
        request = tags_of_task(described).get("skyward-request", "")
        access = ssh_access(cluster, host, 22, request)
    return Instance(
        task_id(described["taskArn"]),
        status,
        access,
        address=private,
        public_address=public,
        spot=spot,
        hourly_price=cluster.offer.hourly_price(market) or 0.0,
        detail=detail,
        notices="container" if spot else "",
    )


def _reason(described: Mapping[str, Any], stop: str) -> str:
    """Return why a task ended, as the end of a sentence."""
    if stop in _TAKEN:
        return _TAKEN[stop]
    reason = " ".join(described.get("stoppedReason", "").split())
    containers = [each.get("reason", "") for each in described.get("containers", ())]
    more = " ".join(next((each for each in containers if each), "").split())
    said = more if more and more not in reason and stop == "EssentialContainerExited" else reason
    said = re.sub(r"\.$", "", said)
    said = said if len(said) <= _LENGTH else f"{said[:_LENGTH]}..."
    if "Capacity is unavailable" in reason:
        return "AWS had no capacity to start it"
    if stop == "TaskFailedToStart":
        return f"AWS could not start it: {said}"
    if stop == "EssentialContainerExited":
        return f"its container ended{f': {said}' if more else ''}"
    return f"AWS stopped it{f': {said}' if said else ''}"
