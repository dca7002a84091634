"""Requests to Vast.ai's API, with their errors told apart.

It allows one request of each kind every few seconds, and says in the text of a 429 how many; there is no header.
"""

import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from skyward.errors import CredentialsError, NoCapacityError, ProvisioningError, RateLimitError
from skyward_providers.cloud import ApiError, RestClient
from skyward_providers.vastai.settings import VastAI, find_key

__all__ = ["VastAIApi"]

_BASE = "https://console.vast.ai"

_MOST_OFFERS = 5000
_PAGE = 25
"""Instances of one page of a listing, the maximum."""

_DAY = 86_400
_TOO_FAST = 429
_GONE = 404
_THRESHOLD = re.compile(r"threshold=([\d.]+)")
_TAKEN = re.compile(r"no_such_ask|is not available|no longer available|invalid_price")
_SERVER = 500
_UNPAID = re.compile(r"\b(credit|balance|billing|funds)\b", re.IGNORECASE)
_UNKNOWN_KEY = re.compile(r"auth_error|invalid user key", re.IGNORECASE)


class VastAIApi:
    """Requests of one account.

    Attributes:
        base: URL of the API.
    """

    def __init__(self, settings: VastAI) -> None:
        self.base = (settings.endpoint or _BASE).rstrip("/")
        self._settings = settings
        self._rest = RestClient(
            "Vast.ai",
            self.base,
            self._headers,
            _reason,
            refine=_refine,
            timeout=settings.request_timeout,
            key="the API key",
        )

    async def _headers(self) -> Mapping[str, str]:
        found, key = find_key(self._settings)
        if not found:
            raise CredentialsError(f"Vast.ai needs an API key: {self._settings.credentials().how}.")
        return {"Authorization": f"Bearer {key}"}

    async def offers(self, market: str, filters: Mapping[str, Any], disk: float) -> list[dict[str, Any]]:
        """Return the offers of a market, "ondemand" or "bid", the cheapest first, priced with a disk of that size."""
        query = {
            **filters,
            "type": market,
            "order": [["dph_total", "asc"], ["id", "asc"]],
            "limit": _MOST_OFFERS,
            "allocated_storage": disk,
        }
        answer = await self._rest.request("POST", "/api/v0/bundles/", json=query)
        return list(answer["offers"])

    async def rent(self, ask: int, machine: Mapping[str, Any]) -> str:
        """Rent the machine of an offer; return the id of the instance."""
        answer = await self._rest.create(f"/api/v0/asks/{ask}/", dict(machine), method="PUT")
        match answer:
            case {"new_contract": int(instance)}:
                return str(instance)
            case {"success": False}:
                raise _refine(200, answer) or ProvisioningError(f"Vast.ai refused offer {ask}: {_reason(200, answer)}.")
            case _:
                raise RuntimeError(f"Vast.ai's answer to the rent of offer {ask} names no instance")

    async def instances(self, label: str | None = None) -> list[dict[str, Any]]:
        """Return all instances of the account, or those with that label."""
        found: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": _PAGE, "order_by": json.dumps([{"col": "id", "dir": "asc"}])}
        if label is not None:
            query["select_filters"] = json.dumps({"label": {"eq": label}})
        while True:
            page = await self._rest.get("/api/v1/instances/", query)
            if not isinstance(page, dict) or not isinstance(page.get("instances"), list):
                raise ProvisioningError(
                    f"Vast.ai did not list the instances ({_reason(200, page) or 'no reason given'})."
                )
            found += page["instances"]
            if not page.get("next_token"):
                return found
            query["after_token"] = page["next_token"]

    async def destroy(self, instance: str) -> None:
        """Destroy an instance; one that is gone already is no error."""
        try:
            answer = await self._rest.request("DELETE", f"/api/v0/instances/{instance}/")
        except ApiError as error:
            if error.status != _GONE:
                raise
            return
        refused = isinstance(answer, dict) and answer.get("success") is False
        if refused and any(str(each["id"]) == instance for each in await self.instances()):
            reason = _reason(200, answer).rstrip(".") or "no reason given"
            raise ProvisioningError(f"Vast.ai did not destroy instance {instance} ({reason}); try again.")

    async def destroy_all(self, instances: Sequence[str]) -> None:
        """Destroy instances by one request. A refusal is ignored: the caller looks for those that are left."""
        with contextlib.suppress(ApiError):
            await self._rest.delete("/api/v0/instances/", {"instance_ids": [int(each) for each in instances]})

    async def user(self) -> dict[str, Any]:
        """Return the account."""
        answer: dict[str, Any] = await self._rest.get("/api/v0/users/current/")
        return answer


def _reason(status: int, body: Any) -> str:
    match body:
        case {"msg": str(text)} | {"message": str(text)} | {"detail": str(text)} | {"error": str(text)}:
            return text
        case str(text) if not text.lstrip().startswith("<"):  # a page of HTML is of a proxy
            return text[:200]
        case _:
            return ""


def _refine(status: int, body: Any) -> Exception | None:
    reason = _reason(status, body)
    code = body.get("error") if isinstance(body, dict) else ""
    said = f"{code} {reason}"
    if status == _TOO_FAST:
        if code == "search_quota_exceeded":
            left = _DAY - time.time() % _DAY
            return RateLimitError("Vast.ai allows this account no more searches today; rent on another cloud.", left)
        found = _THRESHOLD.search(reason)
        return RateLimitError(
            "Vast.ai takes no more requests for a while; try again later.", float(found[1]) if found else None
        )
    if status < _SERVER and _TAKEN.search(said):
        return NoCapacityError("Vast.ai has no such machine any more: another renter has taken it, or bids more.")
    if _UNKNOWN_KEY.search(said):
        return CredentialsError("Vast.ai does not know the API key; create one at https://cloud.vast.ai/manage-keys/.")
    if status < _SERVER and _UNPAID.search(said):
        return CredentialsError("Vast.ai rents nothing to this account, which has no credit; add some to it.")
    return None
