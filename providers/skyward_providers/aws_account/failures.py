"""Errors of AWS, told apart by their code: the status of HTTP says nothing about what to do."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from skyward.errors import CredentialsError, NoCapacityError, ProvisioningError, QuotaError, RateLimitError, SpecError

__all__ = ["CallError", "UnreadableAnswerError", "explained", "is_transient", "is_unknown", "refusal_of", "too_fast"]

_CAPACITY: Final = frozenset({
    "InsufficientFreeAddressesInSubnet", "InvalidFleetConfiguration", "SpotMaxPriceTooLow", "UnfulfillableCapacity",
    "Unsupported",
})  # fmt: skip  # one a line says no more
"""No such machine in that zone now; `Unsupported` and `InvalidFleetConfiguration` are those of a type that the zone
does not have."""

_NO_CAPACITY = re.compile(r"Insufficient\w*Capacity\w*")
"""Codes such as "InsufficientInstanceCapacity", and those of hosts and disks."""

_OVER_QUOTA = re.compile(r"\w*(Limit|Quota)Exceeded(Exception)?")

_QUOTA: Final = frozenset({"MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded"})

_TOO_FAST: Final = frozenset({
    "BandwidthLimitExceeded", "EC2ThrottledException", "RequestLimitExceeded", "RequestThrottled",
    "RequestThrottledException", "SlowDown", "ThrottledException", "Throttling", "ThrottlingException",
    "TooManyRequestsException",
})  # fmt: skip  # as above

_NOT_ALLOWED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})

_REFUSED: Final = frozenset({
    "AuthFailure", "Blocked", "BlockedException", "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId",
    "MissingAuthenticationToken", "OptInRequired", "PendingVerification", "RequestExpired", "SignatureDoesNotMatch",
    "UnrecognizedClientException",
})  # fmt: skip  # as above

_NEVER: Final[Mapping[str, str]] = {
    "InvalidAMIID.Malformed": "ami",
    "InvalidAMIID.NotFound": "ami",
    "InvalidAMIID.Unavailable": "ami",
    "InvalidGroup.NotFound": "security_group_id",
    "InvalidGroupId.Malformed": "security_group_id",
    "InvalidInstanceType": "",
    "InvalidSubnetID.NotFound": "subnet_id",
    "InvalidSubnetId.Malformed": "subnet_id",
}
"""Codes of impossible requests, each with the setting that may be wrong."""

_NOT_THERE_YET: Final = ("InvalidLaunchTemplate", "InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound")
"""Codes about what was created a moment ago: the next call may not see it yet."""

_SERVER = 500
_LENGTH = 160
_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


class CallError(Exception):
    """AWS answered a call with an error.

    Attributes:
        operation: the call.
        code: its code, such as "InvalidGroup.Duplicate".
        status: the status of HTTP; 0 for an error inside an answer.
        detail: its message. It may be long, and is not for users as it is.
        door: name of the settings' class of the caller, such as "sky.AWS".
    """

    def __init__(self, operation: str, code: str, status: int, detail: str, door: str = "sky.AWS") -> None:
        super().__init__(f"AWS answered {operation} with {code}")
        self.operation = operation
        self.code = code
        self.status = status
        self.detail = detail
        self.door = door


class UnreadableAnswerError(Exception):
    """The answer to a call that is sent once cannot be read: the call may have been carried out."""


def too_fast(code: str) -> bool:
    """Return whether a call was refused because there were too many."""
    return code in _TOO_FAST


def is_transient(code: str) -> bool:
    """Return whether a launch may succeed in a moment: too many calls, or what it needs is not visible yet."""
    return too_fast(code) or code.startswith(_NOT_THERE_YET)


def is_unknown(error: CallError) -> bool:
    """Return whether a call may have been carried out in spite of the error."""
    return error.code in ("ConflictException", "IdempotentParameterMismatch") or (
        error.status >= _SERVER and type(explained(error)) is ProvisioningError
    )


def explained(error: CallError, where: str = "") -> ProvisioningError | SpecError:
    """Return the error for the user: its class says what Skyward does next. `where` is what was to be launched."""
    code, why = error.code, _short(error.detail)
    place = f" of {where}" if where else ""
    if code in _CAPACITY or _NO_CAPACITY.fullmatch(code):
        return NoCapacityError(f"AWS has no capacity{place} now ({code}); try another type, region or market.")
    if too_fast(code):
        return RateLimitError(f"AWS takes no more requests for a while ({code}); try again later.")
    if code in _QUOTA or _OVER_QUOTA.fullmatch(code):
        return QuotaError(
            f"AWS launches no more{place}, because of a quota ({code}: {why}); "
            "ask for more in the Service Quotas console, or use another type or region."
        )
    if code == _ROLE:
        return CredentialsError(
            "AWS needs its role for spot machines or fleets, and these credentials may not create it: allow "
            "iam:CreateServiceLinkedRole, or run `aws iam create-service-linked-role --aws-service-name "
            "spot.amazonaws.com` once."
        )
    if code in _NOT_ALLOWED:
        return CredentialsError(
            f"AWS does not allow {error.operation} with these credentials ({code}); "
            f"give them the permissions that `{error.door}().policy` lists."
        )
    if code in _REFUSED or code.startswith("AuthFailure"):
        return CredentialsError(
            f"AWS refuses the credentials ({code}: {why}); check that they are valid, and the region enabled."
        )
    if code in _NEVER:
        setting = f"; check `{error.door}({_NEVER[code]}=...)`" if _NEVER[code] else ""
        return SpecError(f"AWS cannot launch that ({code}: {why}){setting}.")
    return ProvisioningError(f"AWS refused {error.operation} ({code}: {why}).")


def _short(detail: str) -> str:
    """Return the first sentence of a message, without what follows an encoded reason."""
    text = re.split(r"(?<=[a-z\])])\. |Encoded authorization|\n", detail.strip(), maxsplit=1)[0].strip().rstrip(".")
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}..."


def refusal_of(errors: Sequence[CallError], where: str) -> CallError | ProvisioningError | SpecError:
    """Return why a launch launched nothing, from the errors in its answer: one per place that was tried.

    A lack of permission or quota says more than a lack of capacity, since it holds everywhere.
    """
    if not errors:
        return NoCapacityError(f"AWS launched no machine of {where}, and gave no reason; try another type or region.")
    first = min(errors, key=lambda each: _RANKS.index(type(explained(each))))
    return first if is_transient(first.code) else explained(first, where)


_RANKS: Final = [CredentialsError, QuotaError, RateLimitError, NoCapacityError, SpecError, ProvisioningError]
