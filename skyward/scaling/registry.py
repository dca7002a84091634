"""Registry of policies by name."""

from collections.abc import Mapping

from skyward.errors import SpecError
from skyward.scaling.adaptive import Adaptive
from skyward.scaling.binpack import Binpack
from skyward.scaling.capability import Capability
from skyward.scaling.fixed_elastic import FixedElastic
from skyward.scaling.no import No
from skyward.scaling.pressure import Pressure
from skyward.scaling.scaler.policy_content import scaling_of
from skyward.scaling.snapshot import Policy
from skyward.scaling.vanilla import Vanilla
from skyward.values import limits
from skyward.values.validation import closest, seconds, shown

__all__ = ["POLICIES", "find_policy", "is_custom"]

_MAKERS: Mapping[str, type[Policy]] = {
    "adaptive": Adaptive,
    "pressure": Pressure,
    "no": No,
    "vanilla": Vanilla,
    "capability": Capability,
    "fixed_elastic": FixedElastic,
    "binpack": Binpack,
}

POLICIES = tuple(_MAKERS)
"""Names of the policies; the first is the default."""


def is_custom(policy: Policy) -> bool:
    """Return whether a policy is the user's own."""
    return type(policy) not in _MAKERS.values()


def find_policy(given: object) -> Policy:
    """Return a new policy of that name, or `given` itself if it is a policy.

    A name may be given as Scaler's `policy_content` too: `allocate=even_load; scaling=vanilla`.

    Raises:
        SpecError: there is no such policy, or the object is not a policy, or its interval is not a number of seconds.
    """
    if isinstance(given, str):
        if "=" in given:
            given = scaling_of(given, POLICIES)
        if (maker := _MAKERS.get(given)) is None:
            known = closest(given, POLICIES).replace("it has", "they are")
            raise SpecError(f"There is no scaling policy {given!r}; {known}")
        return maker()
    if isinstance(given, type) and callable(getattr(given, "decide", None)):
        raise SpecError(f"The scaling policy must be an object, so write `{given.__name__}()`, not its class.")
    if missing := [name for name in ("name", "interval", "decide") if not hasattr(given, name)]:
        raise SpecError(
            f"The scaling policy must be a name, as in `policy='adaptive'`, or an object with `name`, `interval` and "
            f"`decide(snapshot)`, but {shown(given)} has no {missing[0]!r}."
        )
    seconds(given.interval, "interval of the scaling policy", optional=True, least=limits.INTERVAL)  # type: ignore[attr-defined]  # it has the attribute
    return given  # type: ignore[return-value] # it has all attributes of the protocol
