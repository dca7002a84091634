"""Identities of pools, for tests of providers without a journal."""

import hmac
from pathlib import Path

from skyward.providers import PoolIdentity

__all__ = ["identity"]


def identity(pool: str, folder: Path | None = None) -> PoolIdentity:
    """Return the identity of a pool, the same at each call. `folder` is where its key file goes; None for nowhere."""
    key_file = (folder or Path("/proc/nowhere")) / f"{pool}.key"
    return PoolIdentity(pool, "tests", key_file, lambda purpose: hmac.digest(pool.encode(), purpose.encode(), "sha256"))
