"""The firewall of a pool: its machines take connections from each other, and from this client over SSH.

The prepopulated rules of a default network let the whole internet in on port 22, at the lowest priority but one. A rule
just above them refuses that for the machines of the pool; rules that an administrator has made stay in force.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from skyward.errors import ProvisioningError, SkywardError
from skyward.providers import PoolIdentity
from skyward_providers.cloud import ApiError
from skyward_providers.gcp.api import ComputeApi
from skyward_providers.gcp.naming import described, description, pool_tag, rule_names

__all__ = ["ensure_rules"]

_ALLOWED, _REFUSED = 1000, 65533
"""Priorities; the prepopulated rules have 65534."""

_CONFLICT = 409
_DELETED_WITHIN = 60.0
"""Seconds for a rule to be deleted."""


async def ensure_rules(
    api: ComputeApi, pool: PoolIdentity, network: str, callers: Sequence[str]
) -> list[dict[str, Any]]:
    """Ask for the rules of a pool, unless they are there; return the operations.

    Raises:
        SkywardError: a rule was refused, or somebody else has one of that name; no rule was made. After any other
            error, some may have been.
    """
    tag = pool_tag(pool.id)
    common = {
        "description": description(pool.tags),
        "network": f"global/networks/{network}",
        "direction": "INGRESS",
        "targetTags": [tag],
    }
    ssh, nodes, closed = rule_names(pool.id, network)
    rules: list[dict[str, Any]] = [
        {
            "name": ssh,
            "priority": _ALLOWED,
            "sourceRanges": list(callers),
            "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
        },
        {"name": nodes, "priority": _ALLOWED, "sourceTags": [tag], "allowed": [{"IPProtocol": "all"}]},
        {"name": closed, "priority": _REFUSED, "sourceRanges": ["0.0.0.0/0"], "denied": [{"IPProtocol": "all"}]},
    ]
    asked = await asyncio.gather(*(_ensure(api, pool, {**common, **rule}) for rule in rules), return_exceptions=True)
    errors = [each for each in asked if isinstance(each, BaseException)]
    if unknown := [each for each in errors if not isinstance(each, SkywardError)]:
        raise unknown[0]
    if errors:
        made = (rule["name"] for rule, each in zip(rules, asked, strict=True) if isinstance(each, dict))
        deletions = await asyncio.gather(*map(api.delete_rule, made))
        await asyncio.gather(*(api.finished(each, _DELETED_WITHIN) for each in deletions if each is not None))
        raise errors[0]
    return [each for each in asked if isinstance(each, dict)]


async def _ensure(api: ComputeApi, pool: PoolIdentity, rule: dict[str, Any]) -> dict[str, Any] | None:
    """Ask for a rule; return the operation, or None if it is there."""
    name = rule["name"]
    try:
        return await api.add_rule(rule, secrets.token_hex(8))  # another request than that of a removed rule
    except ApiError as error:
        if error.status != _CONFLICT:
            raise
    found = await api.rule(name) or {}
    if described(found) != (pool.owner, pool.id):
        raise ProvisioningError(f"The firewall rule {name!r} is not Skyward's; remove it, or rename the pool.")
    if "sourceRanges" in rule and found.get("sourceRanges") != rule["sourceRanges"]:
        await api.change_rule(name, {"sourceRanges": rule["sourceRanges"]})
    return None
