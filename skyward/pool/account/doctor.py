"""Check of the clouds' credentials, and of what these may do. Nothing is created."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skyward.errors import ProviderMissingError
from skyward.formatting import joined
from skyward.market.candidates import CandidateProvider
from skyward.market.requests import reason_of
from skyward.pool.account.clouds import known_clouds
from skyward.process import background
from skyward.providers.protocol import Check, CheckableProvider, ConfigWithCredentials
from skyward.values.validation import closest

__all__ = ["CloudHealth", "describe_health", "doctor"]

_WITHIN = 60.0
"""Timeout of the checks of one provider, seconds."""


@dataclass(frozen=True, slots=True)
class CloudHealth:
    """The credentials of a cloud, and what they may do.

    Attributes:
        provider: its name, as `--provider` takes it.
        found: the place of its credentials; "" if it has none.
        how: how to give them, or to install what it needs, as an imperative.
        checks: what was checked, each with its problem.
        policy: the least permissions that Skyward needs, ready to paste; "" if there is nothing to paste.

    Example:
        >>> [cloud.provider for cloud in sky.doctor() if cloud.is_usable]
    """

    provider: str
    found: str
    how: str
    checks: tuple[Check, ...] = ()
    policy: str = ""

    @property
    def is_usable(self) -> bool:
        """True if machines can be rented: it has credentials, and no check has found a problem."""
        return bool(self.found) and not any(check.problem for check in self.checks)


def doctor(providers: Sequence[str] = ()) -> list[CloudHealth]:
    """Check the credentials of clouds, and what they may do. Makes requests, and creates nothing.

    Args:
        providers: names of the clouds to check; empty for all that need credentials.

    Raises:
        ProviderMissingError: there is no such cloud, or it needs no credentials.

    Example:
        >>> for cloud in sky.doctor(["aws"]):
        ...     print(cloud.provider, cloud.found or cloud.how)
    """
    known = {each.name: each for each in known_clouds()}
    for name in providers:
        if name not in known:
            hint = closest(name, known)
            hint = f"; {hint}" if hint.startswith("did") else f". Those are {joined(sorted(known))}."
            raise ProviderMissingError(f"{name!r} is no provider with credentials that could be checked{hint}")
    chosen = [known[name] for name in providers] or list(known.values())
    return background.run(_examine_all(chosen)).result()


async def _examine_all(clouds: Iterable[CandidateProvider]) -> list[CloudHealth]:
    return await asyncio.gather(*map(_examine, clouds))


async def _examine(cloud: CandidateProvider) -> CloudHealth:
    config = cloud.config
    policy = config.policy if isinstance(config, ConfigWithCredentials) else ""
    if config is None or not cloud.is_usable:
        return CloudHealth(cloud.name, "", cloud.how, policy=policy)
    try:
        provider = config.create_provider()
        checks: Sequence[Check] = ()
        if isinstance(provider, CheckableProvider):
            async with asyncio.timeout(_WITHIN):
                checks = await provider.check()
    except TimeoutError:
        checks = (Check("answers", f"it did not answer within {_WITHIN:.0f} s"),)
    except Exception as error:  # SDKs raise anything
        checks = (Check("answers", reason_of(error)),)
    return CloudHealth(cloud.name, cloud.found, cloud.how, tuple(checks), policy)


def describe_health(clouds: Iterable[CloudHealth], *, policy: bool = False) -> list[str]:
    """Return lines on clouds: the place of the credentials, each check, and with `policy` the permissions needed."""
    lines = []
    for cloud in clouds:
        lines.append(f"{cloud.provider}: " + (f"credentials in {cloud.found}" if cloud.found else "no credentials"))
        if not cloud.found:
            lines.append(f"  to use it, {cloud.how}")
        lines += [f"  {'PROBLEM' if each.problem else 'ok'}: {each.what}{_because(each)}" for each in cloud.checks]
        if policy and cloud.policy:
            lines += ["  least permissions:", *(f"    {line}" for line in cloud.policy.splitlines())]
    return lines


def _because(check: Check) -> str:
    return f": {check.problem}" if check.problem else ""
