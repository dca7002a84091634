"""Letting this computer in to a pool's machines: its address may change, as that of a laptop does."""

import time
from collections.abc import Mapping
from typing import Any

from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.network import let_in
from skyward_providers.cloud import network_ranges

__all__ = ["Admission"]

_MOVED_AFTER = 300.0
"""Seconds after which this computer may have another address."""

_RETRY_AFTER = 30.0
"""Seconds after which a running machine's group is changed again, if that failed."""


class Admission:
    """Lets this computer in to the machines of security groups.

    Args:
        caller_cidr: ranges of addresses that may enter; None for this computer's public address.
        address_url: service that answers with this computer's public address.
    """

    def __init__(self, account: Account, caller_cidr: str | None, address_url: str) -> None:
        self._account = account
        self._given = caller_cidr
        self._url = address_url
        self._tried: dict[str, tuple[float, bool]] = {}

    async def ranges(self) -> tuple[str, ...]:
        """Return the addresses that may enter.

        Raises:
            ProvisioningError: they are not known.
        """
        return await network_ranges(self._given, self._url)

    async def first(self, region: str, group: str, ranges: tuple[str, ...]) -> None:
        """Let `ranges` in to the machines of a new group."""
        await let_in(self._account, region, group, ranges)
        self._tried[group] = time.monotonic(), True

    async def renew(self, region: str, specific: Mapping[str, Any], *, needed: bool) -> None:
        """Let this computer in again, if it may have moved. After a failure, `needed` tries at once.

        Args:
            specific: the entries "group" and "own_group" of a cluster; the group of a user is left as it is.
        """
        group, now = specific["group"], time.monotonic()
        tried, succeeded = self._tried.get(group, (float("-inf"), False))
        if not specific["own_group"] or now - tried < (_MOVED_AFTER if succeeded else 0 if needed else _RETRY_AFTER):
            return
        self._tried[group] = now, False
        await self.first(region, group, await self.ranges())
