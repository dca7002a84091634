"""Names, labels and descriptions: how what Skyward creates at Google Cloud tells the pool and the owner it is of.

Labels take lower-case letters only, and firewall rules have none. So each resource also has the exact tags in its
description, and nothing counts as ours without them.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["described", "description", "label", "machine_name", "pool_tag", "rule_names"]

_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_SLUG = re.compile(r"[^a-z0-9]+")
_DESCRIBED = re.compile(r"skyward-owner=(\S+) skyward-pool=(\S+)")


def label(value: str) -> str:
    """Return a tag's value as a label: as it is if that is allowed, else with a digest of it."""
    return value if _LABEL.fullmatch(value) else f"{_SLUG.sub('-', value.lower())[:40]}-{_digest(value)}"


def pool_tag(pool: str) -> str:
    """Return the network tag of a pool's machines."""
    return f"skyward-{_slug(pool)}-{_digest(pool)}"


def machine_name(pool: str, request: str, number: int) -> str:
    """Return the name of one machine of a request: always the same."""
    return f"{pool_tag(pool)}-{_digest(request)}-{number}"


def rule_names(pool: str, network: str) -> tuple[str, ...]:
    """Return the names of the firewall rules of a pool in a network: for SSH, between nodes, and for all else."""
    return tuple(f"{pool_tag(pool)}-{_digest(network)}-{kind}" for kind in ("ssh", "nodes", "closed"))


def description(tags: Mapping[str, str]) -> str:
    """Return the description of a resource of a pool."""
    return f"skyward-owner={tags['skyward-owner']} skyward-pool={tags['skyward-pool']}"


def described(resource: Mapping[str, Any]) -> tuple[str, str]:
    """Return the owner and the pool that a resource belongs to; empty if it is not ours."""
    found = _DESCRIBED.fullmatch(resource.get("description") or "")
    return (found[1], found[2]) if found else ("", "")


def _slug(text: str) -> str:
    return _SLUG.sub("-", text.lower()).strip("-")[:20].strip("-") or "pool"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
