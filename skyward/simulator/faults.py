"""Faults of the simulated cloud."""

from dataclasses import dataclass, fields

from skyward.errors import SpecError
from skyward.values.validation import closest

__all__ = ["NO_FAULTS", "PRESETS", "Faults", "find_faults"]


@dataclass(frozen=True, slots=True)
class Faults:
    """Frequencies of faults. Shares are of 1, rates an hour, times in seconds.

    Attributes:
        spot_loss: rate at which a machine is reclaimed.
        noticed: share of the reclaimed machines that run and get a notice, `notice` seconds before.
        storms: rate of moments at which `storm_share` of all machines are reclaimed at once.
        silent: share of deaths that are reported only `detection` later; a booting machine that dies silently is
            never reported.
        detection: seconds until a silent death is noticed.
        partial: share of the requested machines that the cloud cannot launch.
        shortages: rate at which the cloud runs out of machines, for `shortage_seconds`.
        sold_out: rate at which the cloud runs out of machines of one group, for ten times `shortage_seconds`.
        quota: maximum number of machines; None for no limit.
        explained: share of the refusals for lack of machines or quota whose kind the cloud tells.
        denials: rate at which a provider starts to deny all requests, for ever.
        impossible: share of the sources that never have a machine.
        throttled: share of the requests that are refused because of their rate.
        api_errors: share of the requests that fail.
        phantoms: share of the failed requests that are executed all the same.
        lost_replies: share of the answers that are lost, though the call was executed.
        duplicates: share of the messages that are delivered twice.
        reordered: share of the messages that are delayed by up to `late`, past later ones.
        lost_terminates: share of the calls to terminate that have no effect.
        slow_terminate: maximum seconds until a terminated machine is gone.
        boot_failures: share of the machines that fail to become a node.
        false_alarms: rate at which a healthy node is reported dead.
        until: when the faults end; None for never.
    """

    spot_loss: float = 0.0
    noticed: float = 0.0
    notice: float = 120.0
    storms: float = 0.0
    storm_share: float = 0.5
    silent: float = 0.0
    detection: float = 30.0
    partial: float = 0.0
    shortages: float = 0.0
    shortage_seconds: float = 600.0
    sold_out: float = 0.0
    quota: int | None = None
    explained: float = 0.0
    denials: float = 0.0
    impossible: float = 0.0
    throttled: float = 0.0
    api_errors: float = 0.0
    phantoms: float = 0.0
    lost_replies: float = 0.0
    duplicates: float = 0.0
    reordered: float = 0.0
    late: float = 20.0
    lost_terminates: float = 0.0
    slow_terminate: float = 2.0
    boot_failures: float = 0.0
    false_alarms: float = 0.0
    until: float | None = None

    def __str__(self) -> str:
        usual = Faults()
        parts = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(usual, field.name)
        ]
        return f"Faults({', '.join(parts)})"


NO_FAULTS = Faults()
"""No faults."""

PRESETS = {
    "calm": NO_FAULTS,
    "rough": Faults(
        noticed=0.8,
        silent=0.2,
        partial=0.05,
        shortages=0.2,
        explained=0.8,
        throttled=0.02,
        api_errors=0.02,
        lost_replies=0.005,
        duplicates=0.01,
        reordered=0.02,
        lost_terminates=0.01,
        slow_terminate=30.0,
        boot_failures=0.01,
    ),
    "hostile": Faults(
        spot_loss=0.2,
        storms=0.2,
        noticed=0.5,
        notice=30.0,
        silent=0.5,
        partial=0.2,
        shortages=1.0,
        explained=0.5,
        throttled=0.1,
        api_errors=0.15,
        phantoms=0.3,
        lost_replies=0.05,
        duplicates=0.1,
        reordered=0.1,
        lost_terminates=0.05,
        slow_terminate=120.0,
        boot_failures=0.05,
        false_alarms=0.05,
    ),
}
"""Faults by name, for `skyward simulate --faults`."""


def find_faults(name: str) -> Faults:
    """Return the preset of that name.

    Raises:
        SpecError: there is none.
    """
    if name not in PRESETS:
        raise SpecError(f"There is no set of faults {name!r}; {closest(name, PRESETS)}")
    return PRESETS[name]
