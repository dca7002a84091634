"""Requests to Google's REST APIs: Compute Engine, the price list of Cloud Billing, and Resource Manager."""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from skyward.errors import SkywardError
from skyward_providers.cloud import ApiError, RestClient, SharedListing
from skyward_providers.gcp.access_tokens import AccessTokens
from skyward_providers.gcp.failures import is_not_ready, of_request, reason_of
from skyward_providers.gcp.settings import GCP

__all__ = ["ComputeApi", "UnfinishedError"]

_COMPUTE = "https://compute.googleapis.com"
_BILLING = "https://cloudbilling.googleapis.com"
_RESOURCES = "https://cloudresourcemanager.googleapis.com"
_COMPUTE_ENGINE = "services/6F81-5844-456A"
"""The service whose SKUs are those of Compute Engine."""

_SENDS = 3
_PAUSE = 1.0
"""Number of times that a request with an id is sent while its answer is lost, and seconds between them."""

_FIRST_LOOK, _LONGEST_LOOK = 0.1, 3.0
"""Seconds between looks at an operation, from the first to the longest."""


_READY_WITHIN = 60.0
"""Seconds for which something cannot be deleted, because it is still being created."""


class UnfinishedError(Exception):
    """An operation is not done in time; what comes of it is unknown."""


class ComputeApi:
    """Requests, with their errors told apart. It belongs to one event loop."""

    def __init__(self, settings: GCP) -> None:
        base = (settings.endpoint or "").rstrip("/")
        self._tokens = AccessTokens(settings)
        self._rest = RestClient(
            "Google Cloud",
            f"{base or _COMPUTE}/compute/v1",
            self.headers,
            reason_of,
            refine=of_request,
            timeout=settings.request_timeout,
            key="the credentials",
        )
        self._billing = f"{base or _BILLING}/v1"
        self._resources = f"{base or _RESOURCES}/v1"
        self._unfinished: dict[str, SharedListing[frozenset[str]]] = {}

    async def headers(self) -> Mapping[str, str]:
        """Return the headers of a request."""
        return await self._tokens.headers()

    async def project(self) -> str:
        """Return the id of the project."""
        return await self._tokens.project()

    async def _path(self, path: str) -> str:
        return f"/projects/{await self.project()}/{path}"

    async def _listed(
        self, path: str, key: str = "items", params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return what all pages of a list have under `key`."""
        found: list[dict[str, Any]] = []
        page = ""
        while True:
            answer = await self._rest.get(path, {**(params or {}), **({"pageToken": page} if page else {})})
            found += answer.get(key) or ()
            page = answer.get("nextPageToken") or ""
            if not page:
                return found

    async def zones(self) -> list[dict[str, Any]]:
        """Return all zones."""
        return await self._listed(await self._path("zones"))

    async def machine_types(self, zone: str) -> list[dict[str, Any]]:
        """Return the machine types of a zone."""
        return await self._listed(await self._path(f"zones/{zone}/machineTypes"))

    async def accelerator_types(self, zone: str) -> list[dict[str, Any]]:
        """Return the accelerators that a zone can attach to machines."""
        return await self._listed(await self._path(f"zones/{zone}/acceleratorTypes"))

    async def quotas(self, region: str) -> Mapping[str, tuple[float, float]]:
        """Return the limit and the usage of each quota of a region."""
        answer = await self._rest.get(await self._path(f"regions/{region}"))
        return {each["metric"]: (each["limit"], each["usage"]) for each in answer.get("quotas") or ()}

    async def skus(self) -> list[dict[str, Any]]:
        """Return the price list of Compute Engine in USD."""
        query = {"currencyCode": "USD", "pageSize": 5000}
        return await self._listed(f"{self._billing}/{_COMPUTE_ENGINE}/skus", "skus", query)

    async def spot_history(self, zone: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the history of the spot prices and preemptions of a type of machine in a zone."""
        region = zone.rpartition("-")[0]
        asked = {
            "instanceProperties": properties,
            "locationPolicy": {"location": f"zones/{zone}"},
            "types": ["PRICE", "PREEMPTION"],
        }
        path = await self._path(f"regions/{region}/advice/capacityHistory")
        answer: Mapping[str, Any] = await self._rest.request("POST", path, json=asked)
        return answer

    async def granted(self, permissions: Sequence[str]) -> frozenset[str]:
        """Return those of `permissions` that the credentials have in the project."""
        path = f"{self._resources}/projects/{await self.project()}:testIamPermissions"
        answer = await self._rest.request("POST", path, json={"permissions": list(permissions)})
        return frozenset((answer or {}).get("permissions") or ())

    async def machines(self, wanted: str) -> list[dict[str, Any]]:
        """Return the machines in all zones that pass a filter.

        Raises:
            UnfinishedError: a zone could not be listed, so there may be more.
        """
        found: list[dict[str, Any]] = []
        path, page = await self._path("aggregated/instances"), ""
        while True:
            answer = await self._rest.get(path, {"filter": wanted, **({"pageToken": page} if page else {})})
            if missing := answer.get("unreachables"):
                raise UnfinishedError(f"Google Cloud did not list {', '.join(missing)}")
            for scope in (answer.get("items") or {}).values():
                found += scope.get("instances") or ()
            page = answer.get("nextPageToken") or ""
            if not page:
                return found

    async def insert(self, zone: str, machine: Mapping[str, Any], request: str) -> dict[str, Any]:
        """Ask for a machine; return the operation. The same `request` asks once, however often it is sent."""
        return await self._ask_once("POST", await self._path(f"zones/{zone}/instances"), machine, request)

    async def delete(self, zone: str, name: str) -> dict[str, Any] | None:
        """Ask for the deletion of a machine; return the operation, or None if there is no such machine."""
        return await self._delete(f"zones/{zone}/instances/{name}")

    async def stop(self, zone: str, name: str) -> dict[str, Any]:
        """Ask for a machine to be stopped; return the operation."""
        answer: dict[str, Any] = await self._rest.request(
            "POST", await self._path(f"zones/{zone}/instances/{name}/stop")
        )
        return answer

    async def images(self, wanted: str) -> list[dict[str, Any]]:
        """Return the images of the project that pass a filter."""
        return await self._listed(await self._path("global/images"), params={"filter": wanted})

    async def image(self, name: str) -> dict[str, Any] | None:
        """Return an image of the project; None if there is none of that name."""
        return next(iter(await self.images(f'name = "{name}"')), None)

    async def add_image(self, image: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for an image; return the operation. An image of that name is asked for once."""
        return await self._ask_once("POST", await self._path("global/images"), image, image["name"])

    async def delete_image(self, name: str) -> dict[str, Any] | None:
        """Ask for the deletion of an image; return the operation, or None if there is no such image."""
        return None if await self.image(name) is None else await self._delete(f"global/images/{name}")

    async def rules(self, wanted: str) -> list[dict[str, Any]]:
        """Return the firewall rules that pass a filter."""
        return await self._listed(await self._path("global/firewalls"), params={"filter": wanted})

    async def rule(self, name: str) -> dict[str, Any] | None:
        """Return a firewall rule; None if there is none of that name."""
        found: dict[str, Any] | None = await self._rest.find(await self._path(f"global/firewalls/{name}"))
        return found

    async def add_rule(self, rule: Mapping[str, Any], request: str) -> dict[str, Any]:
        """Ask for a firewall rule; return the operation."""
        return await self._ask_once("POST", await self._path("global/firewalls"), rule, request)

    async def change_rule(self, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for a change of a firewall rule; return the operation."""
        path = await self._path(f"global/firewalls/{name}")
        answer: dict[str, Any] = await self._rest.request("PATCH", path, json={"name": name, **change})
        return answer

    async def delete_rule(self, name: str) -> dict[str, Any] | None:
        """Ask for the deletion of a firewall rule; return the operation, or None if there is no such rule."""
        return await self._delete(f"global/firewalls/{name}")

    async def _delete(self, path: str) -> dict[str, Any] | None:
        until = time.monotonic() + _READY_WITHIN
        while True:
            try:
                answer: dict[str, Any] = await self._rest.request("DELETE", await self._path(path))
                return answer
            except ApiError as error:
                if error.status == 404:
                    return None
                if not is_not_ready(error.body) or time.monotonic() > until:
                    raise
            await asyncio.sleep(_PAUSE)

    async def _ask_once(self, method: str, path: str, body: Mapping[str, Any], request: str) -> dict[str, Any]:
        """Send a request that creates something, with an id that makes it harmless to send it again.

        Raises:
            SkywardError: nothing was created. After any other error, something may have been.
        """
        params = {"requestId": _uuid(f"{path} {request}")}
        lost: httpx.HTTPError | None = None
        for attempt in range(_SENDS):
            if attempt:
                await asyncio.sleep(_PAUSE)
            try:
                answer: dict[str, Any] = await self._rest.request(
                    method, path, json=dict(body), params=params, repeatable=False
                )
            except httpx.HTTPError as error:
                lost = error
            except SkywardError as error:
                if lost is not None:  # what the first request did is unknown
                    raise lost from error
                raise
            else:
                return answer
        assert lost is not None
        raise lost

    async def finished(self, operation: Mapping[str, Any], within: float) -> dict[str, Any]:
        """Wait until an operation is done; return it.

        Raises:
            UnfinishedError: it is not done after `within` seconds.
        """
        until, pause, current = time.monotonic() + within, _FIRST_LOOK, dict(operation)
        scope = _scope(operation)
        while current.get("status") != "DONE":
            if time.monotonic() > until:
                raise UnfinishedError(f"Google Cloud has not finished {operation['name']} after {within:.0f} s")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK)
            if pause == _LONGEST_LOOK and operation["name"] in await self._listing(scope).get():
                continue
            found = await self._rest.find(await self._path(f"{scope}/operations/{operation['name']}"))
            if found is None:  # forgotten, as operations are after two weeks
                return current
            current = found
        return current

    def _listing(self, scope: str) -> SharedListing[frozenset[str]]:
        """Return the names of the unfinished operations of a scope, in one request for all who wait."""
        if scope not in self._unfinished:

            async def fetch() -> frozenset[str]:
                path = await self._path(f"{scope}/operations")
                listed = await self._listed(path, params={"filter": 'status != "DONE"'})
                return frozenset(each["name"] for each in listed)

            self._unfinished[scope] = SharedListing(fetch)
        return self._unfinished[scope]


def _scope(operation: Mapping[str, Any]) -> str:
    zone = operation.get("zone")
    return f"zones/{zone.rpartition('/')[2]}" if zone else "global"


def _uuid(name: str) -> str:
    """Return the id of a request, as Compute Engine takes it: a UUID that is the same for the same `name`."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"skyward {name}"))
