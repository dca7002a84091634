"""Requests to Verda's API, with their errors told apart.

An access token lasts for an hour. It is renewed before its end, and once more if it is refused, as after a revocation.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from skyward.errors import CredentialsError, NoCapacityError, QuotaError
from skyward_providers.cloud import ApiError, RestClient
from skyward_providers.verda.settings import Verda, find_credentials

__all__ = ["GONE", "VerdaApi"]

_BASE = "https://api.verda.com/v1"

GONE: Final = frozenset({"discontinued", "deleted", "deleting", "notfound", "not_found"})
"""States of an instance that is not there any more, nor billed."""

_RENEWED_BEFORE = 60.0
"""Seconds before its end at which a token is renewed."""

_REFUSED = 401
_UNPAID = 402

_NO_CAPACITY = re.compile(
    r"not enough resources|no capacity|out of stock|instance type \S+ is not available", re.IGNORECASE
)
_QUOTA = re.compile(r"\b(quota|limit)\b", re.IGNORECASE)


class _TokenRefusedError(CredentialsError):
    """The access token is not valid any more; or the credentials never were."""


class VerdaApi:
    """Requests of one project."""

    def __init__(self, settings: Verda) -> None:
        self._settings = settings
        base = settings.endpoint or _BASE
        within = settings.request_timeout
        key = "the client id and secret"
        self._rest = RestClient("Verda", base, self._headers, _reason, refine=_refine, timeout=within, key=key)
        self._sign_in = RestClient("Verda", base, _no_headers, _reason, refine=_refine, timeout=within, key=key)
        self._lock = asyncio.Lock()
        self._token: Mapping[str, Any] = {}
        self._renew_at = 0.0

    async def _headers(self) -> Mapping[str, str]:
        async with self._lock:
            if not self._token or time.monotonic() > self._renew_at:
                self._token = await self._fetch_token()
                life = float(self._token.get("expires_in") or 0.0)
                self._renew_at = time.monotonic() + max(life - _RENEWED_BEFORE, life / 2)
            return {"Authorization": f"Bearer {self._token['access_token']}"}

    async def _fetch_token(self) -> Mapping[str, Any]:
        if renewal := self._token.get("refresh_token"):
            try:
                return await self._ask_token(grant_type="refresh_token", refresh_token=renewal)
            except (CredentialsError, ApiError):  # it has ended too
                self._token = {}
        found, id, secret = find_credentials(self._settings)
        if not found:
            raise CredentialsError(f"Verda needs credentials: {self._settings.credentials().how}.")
        return await self._ask_token(grant_type="client_credentials", client_id=id, client_secret=secret)

    async def _ask_token(self, **words: str) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = await self._sign_in.request("POST", "/oauth2/token", json=words)
        return answer

    async def _signed[T](self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; make it again with new credentials if its token is refused, so that it was not carried out."""
        try:
            return await call()
        except _TokenRefusedError as error:
            if not self._token:
                raise CredentialsError(str(error)) from None
        self._renew_at = float("-inf")
        try:
            return await call()
        except _TokenRefusedError as error:
            raise CredentialsError(str(error)) from None

    async def _get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return await self._signed(lambda: self._rest.get(path, params))

    async def types(self) -> list[dict[str, Any]]:
        """Return the types of machines, with prices in USD."""
        return list(await self._get("/instance-types", {"currency": "usd"}))

    async def stock(self, *, spot: bool) -> dict[str, list[str]]:
        """Return the types in stock in a market, by location."""
        rows = await self._get("/instance-availability", {"isSpot": "true" if spot else "false"})
        return {each["location_code"]: list(each["availabilities"]) for each in rows}

    async def images(self, type: str) -> list[str]:
        """Return the images that a type of machine can have."""
        return [each["image_type"] for each in await self._get("/images", {"instance_type": type})]

    async def instances(self) -> list[dict[str, Any]]:
        """Return all instances that are not deleted."""
        return [each for each in await self._get("/instances") if each["status"] not in GONE]

    async def instance(self, id: str) -> dict[str, Any] | None:
        """Return an instance; None if there is none, or not any more."""
        found: dict[str, Any] | None = await self._signed(lambda: self._rest.find(f"/instances/{id}"))
        return None if found is None or found["status"] in GONE else found

    async def create(self, machine: Mapping[str, Any]) -> str:
        """Rent a machine; return its id."""
        return _id(await self._signed(lambda: self._rest.create("/instances", dict(machine))))

    async def delete(self, id: str, volumes: Sequence[str]) -> None:
        """Delete an instance with its volumes; one that is gone already is no error."""
        words = {"id": [id], "action": "delete", "volume_ids": list(volumes), "delete_permanently": True}
        try:
            await self._signed(lambda: self._rest.request("PUT", "/instances", json=words))
        except (ApiError, CredentialsError):  # "forbidden_action" for one that is gone, and for other reasons too
            if await self.instance(id) is not None:
                raise

    async def volumes(self) -> list[dict[str, Any]]:
        """Return all volumes that are not deleted."""
        return list(await self._get("/volumes"))

    async def delete_volume(self, id: str) -> None:
        """Delete a volume for good; one that is gone already is no error."""
        await self._signed(lambda: self._rest.delete(f"/volumes/{id}", {"is_permanent": True}))

    async def balance(self) -> float:
        """Return the credit of the account."""
        return float((await self._get("/balance"))["amount"])

    async def named(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind that is shared: "sshkeys" or "scripts"."""
        return list(await self._get(f"/{kind}"))

    async def add(self, kind: str, words: Mapping[str, str]) -> str:
        """Create an object of a shared kind; return its id."""
        return _id(await self._signed(lambda: self._rest.create(f"/{kind}", dict(words))))

    async def remove(self, kind: str, id: str) -> None:
        """Delete an object of a shared kind; one that is gone already is no error."""
        await self._signed(lambda: self._rest.delete(f"/{kind}/{id}"))


async def _no_headers() -> Mapping[str, str]:
    return {}


def _id(answer: Any) -> str:
    """Return the id that an answer consists of: plain text."""
    text = str(answer or "").strip().strip('"')
    if not text:
        raise RuntimeError("Verda's answer names no id")
    return text


def _reason(status: int, body: Any) -> str:
    match body:
        case {"message": str(text)}:
            return text
        case {"message": [str(text), *_]}:
            return text
        case _:
            return ""


def _refine(status: int, body: Any) -> Exception | None:
    code = body.get("code") if isinstance(body, dict) else ""
    reason = _reason(status, body).strip().rstrip(".")
    if status == _REFUSED:
        return _TokenRefusedError(
            f"Verda refuses the client id and secret ({reason or status}); create others in its console, under Keys."
        )
    if code == "insufficient_funds" or status == _UNPAID:
        return CredentialsError("Verda rents nothing to this account, which has no credit; add some to it.")
    if _NO_CAPACITY.search(reason):
        return NoCapacityError(f"Verda has no such machine now: {reason}.")
    if status in (400, 403) and _QUOTA.search(reason):
        return QuotaError(f"The account may have no more such machines at Verda: {reason}.")
    return None
