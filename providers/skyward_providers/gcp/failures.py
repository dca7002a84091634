"""Errors of Google Cloud, told apart: those of requests, and those of operations that were accepted first."""

import re
from collections.abc import Mapping
from typing import Any

from skyward.errors import (
    CredentialsError,
    NoCapacityError,
    ProvisioningError,
    QuotaError,
    RateLimitError,
    SkywardError,
    SpecError,
)

__all__ = [
    "is_gone",
    "is_not_ready",
    "is_taken",
    "never_possible",
    "of_operation",
    "of_request",
    "reason_of",
    "zones_with_capacity",
]

_NO_CAPACITY = ("RESOURCE_POOL_EXHAUSTED", "STOCKOUT", "INSUFFICIENTCAPACITY", "RESOURCE_AVAILABILITY")
"""Parts of the codes of no capacity, in upper case: there are a code with "ZONE_" and one with "_WITH_DETAILS"."""

_QUOTA = ("QUOTA_EXCEEDED", "QUOTAEXCEEDED")
_TOO_FAST = ("RATELIMITEXCEEDED", "USERRATELIMITEXCEEDED", "RATE_LIMIT_EXCEEDED", "OPERATION_RATE_EXCEEDED")
_DISABLED = ("ACCESSNOTCONFIGURED", "SERVICE_DISABLED")
_UNPAID = ("BILLING", "UREQ_PROJECT_BILLING")
_NEVER = ("INVALID_FIELD_VALUE", "INVALID_USAGE", "RESOURCE_NOT_FOUND", "CONDITION_NOT_MET", "UNSUPPORTED_FEATURE")
_SETTINGS = (("/images/", "image"), ("/networks/", "network"), ("/subnetworks/", "subnetwork"))

_QUOTA_NAME = re.compile(r"Quota '?([A-Za-z0-9_\-.]+)'? exceeded")
_POLICY = "constraints/"
_TOO_MANY, _NO_SERVICE = 429, 503


def of_request(status: int, body: Any) -> SkywardError | None:
    """Return the error of a request that was refused with `status`; None if the general rules say enough."""
    if status == _TOO_MANY:
        return None
    reasons = " ".join(_reasons(body)).upper()
    said = reason_of(status, body)
    if any(each in reasons for each in _NO_CAPACITY):
        return NoCapacityError(f"Google Cloud has no such machine now: {said}.")
    if any(each in reasons.split() for each in _TOO_FAST):
        return RateLimitError(f"Google Cloud takes no more requests for a while: {said}; try again later.")
    if any(each in reasons.split() for each in _QUOTA):
        return _quota(_quota_name(said), said)
    if any(each in reasons for each in _DISABLED):
        return CredentialsError(
            f"An API of Google Cloud is disabled in this project: {said}; enable it with "
            "`gcloud services enable compute.googleapis.com`."
        )
    if any(each in reasons for each in _UNPAID):
        return CredentialsError(f"Google Cloud rents nothing to this project: {said}; link a billing account to it.")
    if status == 403:
        return CredentialsError(
            f"Google Cloud does not allow this to the credentials: {said}; grant the role that `sky.GCP().policy` has."
        )
    if _POLICY in said:
        return SpecError(f"A policy of the organization forbids this: {said}; exempt the project from it.")
    if status in (400, 404, 412) and (name := _setting(said)):
        return SpecError(f"Google Cloud cannot launch this: {said}; check `{name}` in the settings of `sky.GCP`.")
    return None


def reason_of(status: int, body: Any) -> str:
    """Return the reason in the answer of a refused request, without a full stop; "" if there is none."""
    match body:
        case {"error": {"message": str(message)}}:
            return _sentence(message)
        case _:
            return ""


def of_operation(operation: Mapping[str, Any]) -> SkywardError | None:
    """Return the error with which an operation ended; None if it succeeded."""
    errors = (operation.get("error") or {}).get("errors") or []
    if not errors:
        return None
    said = _sentence(next((each["message"] for each in errors if each.get("message")), "no reason given"))
    codes = " ".join(str(each.get("code", "")) for each in errors).upper()
    status = operation.get("httpErrorStatusCode")
    if any(each in codes for each in _QUOTA):
        return _quota(_quota_of(errors) or _quota_name(said), said)
    if any(each in codes for each in _NO_CAPACITY) or status == _NO_SERVICE:
        return NoCapacityError(f"Google Cloud has no such machine now: {said}.")
    if any(each in codes for each in _TOO_FAST):
        return RateLimitError(f"Google Cloud takes no more requests for a while: {said}; try again later.")
    if "PERMISSION" in codes or "FORBIDDEN" in codes or status == 403:
        return CredentialsError(
            f"Google Cloud does not allow this to the credentials: {said}; grant the role that `sky.GCP().policy` has."
        )
    if any(each in codes for each in _NEVER):
        return never_possible(said)
    return ProvisioningError(f"Google Cloud could not launch a machine ({errors[0].get('code', 'no code')}: {said}).")


def is_gone(operation: Mapping[str, Any]) -> bool:
    """Return whether a deletion failed because something else, such as Google, has deleted the same meanwhile."""
    errors = (operation.get("error") or {}).get("errors") or []
    return bool(errors) and all(each.get("code") == "RESOURCE_NOT_FOUND" for each in errors)


def is_not_ready(body: Any) -> bool:
    """Return whether a request was refused because what it is about is still being created."""
    return "resourceNotReady" in _reasons(body)


def is_taken(body: Any) -> bool:
    """Return whether something was not created because there is one of that name."""
    return "alreadyExists" in _reasons(body)


def never_possible(said: str) -> SpecError:
    """Return the error of a request that is wrong in itself."""
    return SpecError(f"Google Cloud cannot launch this: {said}; change the settings or the spec.")


def zones_with_capacity(operation: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the zones that an operation without capacity names as better ones."""
    for error in (operation.get("error") or {}).get("errors") or ():
        for detail in error.get("errorDetails") or ():
            named = detail.get("errorInfo", {}).get("metadatas", {}).get("zonesAvailable", "")
            if named:
                return tuple(each.strip() for each in named.split(","))
    return ()


def _quota(name: str, said: str) -> QuotaError:
    return QuotaError(
        f"The project may have no more of such machines at Google Cloud: quota {name or 'unknown'} ({said}); ask for "
        "more at IAM & Admin, Quotas."
    )


def _quota_of(errors: list[Any]) -> str:
    """Return the name of the quota in the details of an operation's errors, with its limit and region."""
    for error in errors:
        for detail in error.get("errorDetails") or ():
            if found := detail.get("quotaInfo"):
                name = found.get("limitName") or found.get("metricName") or ""
                where = found.get("dimensions", {}).get("region", "")
                limit = found.get("limit")
                return f"{name}{f' = {limit:g}' if limit is not None else ''}{f' in {where}' if where else ''}"
    return ""


def _quota_name(said: str) -> str:
    found = _QUOTA_NAME.search(said)
    return found[1] if found else ""


def _reasons(body: Any) -> list[str]:
    """Return the codes in the answer of a refused request."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return []
    found = [str(each.get("reason", "")) for each in error.get("errors") or ()]
    return found + [str(each["reason"]) for each in error.get("details") or () if "reason" in each]


def _setting(said: str) -> str:
    """Return the setting that names what an error message says is wrong; "" if it is none."""
    return next((name for part, name in _SETTINGS if part in said), "")


def _sentence(message: str) -> str:
    """Return the first 300 characters of a message in one line, without a full stop."""
    return " ".join(message.split())[:300].rstrip(". ")
