"""Sentences about what signals do to the pools of commands."""

from typing import TYPE_CHECKING

from skyward.cli.pools.leases import lease_text
from skyward.cli.terminal.interrupts import Signalled
from skyward.worker.scripts.process import GRACE

if TYPE_CHECKING:
    from skyward.pool.compute import Compute

__all__ = ["of_attached", "of_own"]

_BACK = "giving the nodes back"


def of_own(pool: "Compute") -> Signalled:
    """Return what signals do to a command that closes its pool at the end."""
    name = pool.name
    if not _outlives(pool):
        return Signalled(
            f"stopping, and {_BACK}",
            _BACK,
            "ends this command and the nodes at once",
            f"the nodes of pool {name!r} are on this computer, and end with this process.",
        )
    return Signalled(
        f"stopping, and {_BACK}",
        _BACK,
        "leaves them to their lease",
        f"the nodes of pool {name!r} are left to their lease {lease_text(pool)}, and cost money meanwhile: "
        f"`skyward reap {name}` terminates them.",
    )


def of_attached(name: str) -> Signalled:
    """Return what signals do to a command on a pool that stays."""
    return Signalled(
        f"stopping; pool {name!r} stays",
        f"leaving pool {name!r}",
        "ends this command at once, while its work is being stopped there",
        f"pool {name!r} is left to its lease, and what this command runs there is being stopped: it is killed within "
        f"{GRACE:g} s of the first signal. `skyward logs {name}` shows what it prints until then. "
        f"`sky.attach({name!r})` takes the pool over, and `skyward down {name}` terminates the nodes.",
    )


def _outlives(pool: "Compute") -> bool:
    """Return whether nodes of a pool outlive this process."""
    from skyward.control.act.machines.offers import provider_config
    from skyward.providers.protocol import acts_on

    specs = (spec for alternatives in pool.groups.values() for spec in alternatives)
    return any("ttl" in acts_on(provider_config(spec)).fields for spec in specs)
