"""Requests to RunPod's APIs: REST v1 for pods, REST v2 for the catalogue, GraphQL for spot prices.

Only v1 can rent interruptible pods, only v2 tells the stock, and only GraphQL tells the prices of interruptible pods.
"""

import re
from collections.abc import Mapping
from typing import Any

from skyward.errors import CredentialsError, NoCapacityError, QuotaError
from skyward_providers.cloud import RestClient
from skyward_providers.runpod.settings import RunPod, find_key

__all__ = ["RunPodApi"]

_PODS = "https://rest.runpod.io/v1"
_CATALOGUE = "https://api.runpod.io/v2"
_GRAPHQL = "https://api.runpod.io/graphql"

_NO_CAPACITY = re.compile(
    r"no longer any instances|no instances (?:are )?currently available|not enough free gpus|no resources\b"
    r"|does not have the resources", re.IGNORECASE
)  # fmt: skip  # one text after the other
_UNPAID = re.compile(r"\b(?:(?<!load )balance|payment|spend(?:ing)? limit|insufficient funds)\b", re.IGNORECASE)
_QUOTA = re.compile(r"maximum number of pods|\bquota\b|too many pods|limit of pods", re.IGNORECASE)
"""Texts of refusals, which have no codes; their status is 400 or 500. Those of proxies must not be taken for one."""

_SPOT_PRICES = "query { gpuTypes { id securePrice communityPrice secureSpotPrice communitySpotPrice } }"


class RunPodApi:
    """Requests, with their errors told apart."""

    def __init__(self, settings: RunPod) -> None:
        self._settings = settings
        base = (settings.endpoint or "").rstrip("/")
        self._rest = RestClient(
            "RunPod",
            f"{base}/v1" if base else _PODS,
            self._headers,
            _reason,
            refine=_refine,
            timeout=settings.request_timeout,
            key="the API key",
        )
        self._catalogue = f"{base}/v2" if base else _CATALOGUE
        self._graphql = f"{base}/graphql" if base else _GRAPHQL

    async def _headers(self) -> Mapping[str, str]:
        found, key = find_key(self._settings)
        if not found:
            raise CredentialsError(f"RunPod needs an API key: {self._settings.credentials().how}.")
        return {"Authorization": f"Bearer {key}"}

    async def gpus(self) -> list[dict[str, Any]]:
        """Return the types of GPUs, with prices and stock."""
        query = {"include": "AVAILABILITY", "product": "POD"}
        answer = await self._rest.get(f"{self._catalogue}/catalog/gpus", query)
        return list(answer["gpus"])

    async def cpus(self) -> list[dict[str, Any]]:
        """Return the types of CPUs, with prices and stock."""
        query = {"include": "AVAILABILITY", "product": "POD"}
        answer = await self._rest.get(f"{self._catalogue}/catalog/cpus", query)
        return list(answer["cpus"])

    async def spot_prices(self) -> dict[str, dict[str, Any]]:
        """Return the prices of interruptible GPUs in USD per hour, by type."""
        answer = await self._rest.request("POST", self._graphql, json={"query": _SPOT_PRICES})
        return {each["id"]: each for each in (answer.get("data") or {}).get("gpuTypes") or ()}

    async def create(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        """Rent a pod."""
        answer: dict[str, Any] = await self._rest.create("/pods", dict(pod))
        return answer

    async def pods(self) -> list[dict[str, Any]]:
        """Return all pods of the account."""
        return list(await self._rest.get("/pods"))

    async def network_volumes(self) -> list[dict[str, Any]]:
        """Return all network volumes of the account."""
        return list(await self._rest.get("/networkvolumes"))

    async def delete(self, pod: str) -> None:
        """Delete a pod; one that is gone already is no error."""
        await self._rest.delete(f"/pods/{pod}")


def _reason(status: int, body: Any) -> str:
    match body:
        case {"detail": str(detail)} | {"message": str(detail)} | {"error": str(detail)}:
            return detail
        case [{"error": str(detail)}, *_] | [{"message": str(detail)}, *_]:
            return detail
        case {"title": str(title)}:
            return title
        case _:
            return ""


def _refine(status: int, body: Any) -> Exception | None:
    reason = _reason(status, body)
    if _NO_CAPACITY.search(reason):
        return NoCapacityError(f"RunPod has no such pod now: {reason.rstrip('.')}.")
    if _UNPAID.search(reason):
        return CredentialsError(f"RunPod rents nothing to this account: {reason.rstrip('.')}; add credit to it.")
    if _QUOTA.search(reason):
        return QuotaError(f"The account may have no more pods at RunPod: {reason.rstrip('.')}.")
    return None
