"""Machines of a pool, as DescribeInstances shows them."""

from collections.abc import Mapping
from typing import Any, Final

from skyward.providers import Cluster, Instance, SSHAccess, key_pair
from skyward_providers.aws_account.network import tags_of

__all__ = ["machine_of"]

_BY_USER: Final = "Client.UserInitiatedShutdown"
"""Reason of a machine that was terminated by a call; every other one ended by itself, or was taken."""

_REASONS: Final[Mapping[str, str]] = {
    "Client.InstanceInitiatedShutdown": "it shut down",
    "Client.InternalError": "AWS could not start it: its image or disk cannot be used",
    "Client.InvalidSnapshot.NotFound": "AWS could not start it: the disk of its image is gone",
    "Client.VolumeLimitExceeded": "AWS could not start it: the quota of disks is used up",
    "Server.InsufficientInstanceCapacity": "AWS had no capacity to start it",
    "Server.InternalError": "AWS could not start it",
    "Server.SpotInstanceShutdown": "AWS took the spot machine back",
    "Server.SpotInstanceTermination": "AWS took the spot machine back",
}


def machine_of(cluster: Cluster, described: Mapping[str, Any]) -> Instance | None:
    """Return a machine of a cluster; None if it was terminated by a call."""
    state, reason = described["State"]["Name"], described.get("StateReason", {})
    ended = state in ("shutting-down", "terminated")
    if ended and reason.get("Code") == _BY_USER:
        return None
    specific, spot = cluster.specific, described.get("InstanceLifecycle") == "spot"
    private = described.get("PrivateIpAddress", "")
    public = described.get("PublicIpAddress", "")
    host = public if specific["public_address"] else private
    status: Any = "running" if state == "running" and host else "provisioning" if state == "pending" else "exited"
    detail = ""
    if state == "running" and not host:
        status, detail = "provisioning", "it has no public address yet: its subnet may give none"
    elif status == "exited":
        detail = _REASONS.get(reason.get("Code", ""), "AWS stopped it" if not ended else "AWS terminated it")
    return Instance(
        described["InstanceId"],
        status,
        _access(cluster, host, tags_of(described)) if status == "running" else None,
        address=private,
        public_address=public,
        spot=spot,
        hourly_price=_price(cluster, described, spot=spot),
        detail=detail,
        notices="ec2" if spot else "",
    )


def _access(cluster: Cluster, host: str, tags: Mapping[str, str]) -> SSHAccess:
    specific, request = cluster.specific, tags.get("skyward-request")
    return SSHAccess(
        host,
        22,
        specific["user"],
        client_keys=(specific["key_file"],),
        host_key=None if request is None else key_pair(specific["host_key_seed"], request).public,
        config="none",
    )


def _price(cluster: Cluster, described: Mapping[str, Any], *, spot: bool) -> float:
    """Return the price of a machine, by its type and zone; 0 if unknown."""
    kind = described.get("InstanceType", "")
    if spot:
        zones: Mapping[str, float] = cluster.specific["spot_prices"].get(kind, {})
        zone = described.get("Placement", {}).get("AvailabilityZone", "")
        return zones.get(zone) or cluster.offer.hourly_price("spot") or 0.0
    price: float | None = cluster.specific["prices"].get(kind)
    return price or cluster.offer.hourly_price("on-demand") or 0.0
