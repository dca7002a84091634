"""Requests to Hyperstack's API ("Infrahub").

Its errors have a category, `error_reason`, which does not tell "no stock", "quota" and "no credit" apart: all are a
`bad_request`. So their text is looked at first, and then what the stock and the quota are.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any

from skyward.errors import CredentialsError, NoCapacityError, ProvisioningError, QuotaError, SkywardError
from skyward_providers.cloud import ApiError, RestClient
from skyward_providers.hyperstack.settings import Hyperstack, find_key

__all__ = ["BUSY", "HyperstackApi", "is_taken"]

_BASE = "https://infrahub-api.nexgencloud.com/v1"

_PAGE = 100
"""Rows of a page."""

BUSY = (400, 409)
"""Statuses of a refusal to delete what is in use, or still being created."""

_PAYMENT = 402

_UNPAID = re.compile(r"balance|credit|payment|billing", re.I)
_QUOTA = re.compile(r"quota|limit (?:reached|exceeded)|exceeds? the (?:limit|maximum)", re.I)
_NO_STOCK = re.compile(r"stock|capacity|insufficient resources|not enough|no (?:valid )?hosts?\b", re.I)


class HyperstackApi:
    """Requests, with their errors told apart."""

    def __init__(self, settings: Hyperstack) -> None:
        self._settings = settings
        self._rest = RestClient(
            "Hyperstack",
            settings.endpoint or _BASE,
            self._headers,
            _reason,
            refine=_refine,
            timeout=settings.request_timeout,
            key="the API key",
        )

    async def _headers(self) -> Mapping[str, str]:
        found, key = find_key(self._settings)
        if not found:
            raise CredentialsError(f"Hyperstack needs an API key: {self._settings.credentials().how}.")
        return {"api_key": str(key)}

    async def _all(self, path: str, name: str) -> list[dict[str, Any]]:
        """Return the rows of all pages, up to one without a new row: no answer tells reliably how many there are."""
        rows: dict[int, dict[str, Any]] = {}
        for page in itertools.count(1):
            answer = await self._rest.get(path, {"page": page, "pageSize": _PAGE})
            before = len(rows)
            rows |= {row["id"]: row for row in _rows(answer, name)}
            if len(rows) == before:
                break
        return list(rows.values())

    async def flavors(self, region: str | None = None) -> list[dict[str, Any]]:
        """Return the flavors of machines, with their stock."""
        answer = await self._rest.get("/core/flavors", {"region": region} if region else None)
        return [flavor for group in answer["data"] or () for flavor in group["flavors"] or ()]

    async def prices(self) -> dict[str, float]:
        """Return the account's prices in USD per hour, by resource."""
        return {each["name"]: float(each["value"]) for each in await self._rest.get("/pricebook")}

    async def images(self, region: str) -> list[str]:
        """Return the names of the images of a region."""
        names: dict[str, None] = {}
        for page in itertools.count(1):
            answer = await self._rest.get("/core/images", {"region": region, "page": page, "per_page": _PAGE})
            before = len(names)
            names |= {image["name"]: None for group in _rows(answer, "images") for image in group["images"] or ()}
            if len(names) == before:
                break
        return list(names)

    async def environments(self, prefix: str) -> list[dict[str, Any]]:
        """Return the environments whose names begin with `prefix`."""
        found = await self._all("/core/environments", "environments")
        return [each for each in found if each["name"].startswith(prefix)]

    async def add_environment(self, name: str, region: str) -> dict[str, Any]:
        """Create an environment."""
        answer = await self._create("/core/environments", {"name": name, "region": region})
        return dict(answer["environment"])

    async def delete_environment(self, id: int) -> str:
        """Delete an environment; return why not, if something is still in it. One that is gone is no error."""
        return await self._delete(f"/core/environments/{id}")

    async def quota(self, environment: int) -> dict[str, Any]:
        """Return how many machines an environment may have, and the range of their private addresses."""
        return dict(await self._rest.get(f"/core/environments/{environment}/vm-quota"))

    async def keys(self, environment: str) -> list[dict[str, Any]]:
        """Return the SSH keys of an environment."""
        found = await self._all("/core/keypairs", "keypairs")
        return [each for each in found if (each.get("environment") or {}).get("name") == environment]

    async def add_key(self, name: str, environment: str, public_key: str) -> None:
        """Add an SSH key to an environment."""
        key = {"name": name, "environment_name": environment, "public_key": public_key}
        await self._create("/core/keypairs", key)

    async def delete_key(self, id: int) -> None:
        """Delete an SSH key; one that is gone already is no error."""
        await self._rest.delete(f"/core/keypair/{id}")

    async def volumes(self, environment: str) -> list[dict[str, Any]]:
        """Return the volumes of an environment."""
        found = await self._all("/core/volumes", "volumes")
        return [each for each in found if (each.get("environment") or {}).get("name") == environment]

    async def delete_volume(self, id: int) -> str:
        """Delete a volume; return why not, if it is still attached. One that is gone is no error."""
        return await self._delete(f"/core/volumes/{id}")

    async def machines(self) -> list[dict[str, Any]]:
        """Return the machines of the account."""
        return await self._all("/core/virtual-machines", "instances")

    async def create(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """Create a machine."""
        answer = await self._create("/core/virtual-machines", machine)
        return dict(answer["instances"][0])

    async def _create(self, path: str, asked: Mapping[str, Any]) -> Any:
        try:
            return await self._rest.create(path, dict(asked))
        except ApiError as error:
            raise _precise(error, asked["name"]) from error

    async def delete(self, machine: str) -> str:
        """Delete a machine; return why not, if it is still being created. One that is gone is no error."""
        return await self._delete(f"/core/virtual-machines/{machine}")

    async def _delete(self, path: str) -> str:
        try:
            await self._rest.delete(path)
        except ApiError as error:
            if error.status not in BUSY:
                raise
            return _reason(error.status, error.body) or "no reason given"
        return ""


def _rows(answer: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a listing.

    Raises:
        ProvisioningError: it has none, which may be a refusal, and does not mean that there is nothing.
    """
    rows = answer.get(name) if isinstance(answer, Mapping) else None
    if rows is None and isinstance(answer, Mapping) and answer.get("status") is True and name in answer:
        return []
    if not isinstance(rows, list):
        reason = _reason(200, answer).rstrip(".") or "no reason given"
        raise ProvisioningError(f"Hyperstack did not list the {name} ({reason}); try again.")
    return rows


def is_taken(refusal: ApiError) -> bool:
    """Return whether something was not created because there is one of that name."""
    return isinstance(refusal.body, Mapping) and refusal.body.get("error_reason") == "already_exist"


def _reason(status: int, body: Any) -> str:
    match body:
        case {"message": str(message), "error_reason": str(reason)}:
            return f"{reason}, {message}"
        case {"message": str(message)}:
            return message
        case _:
            return ""


def _refine(status: int, body: Any) -> Exception | None:
    return _unpaid(_reason(status, body)) if status == _PAYMENT else None


def _precise(refusal: ApiError, name: str) -> SkywardError:
    """Return a more precise error, if the text of a refused creation tells; the `name` in it does not."""
    if refusal.status not in BUSY or not isinstance(refusal.body, Mapping):
        return refusal
    reason = str(refusal.body.get("message") or "").rstrip(".")
    said = reason.replace(name, "")
    if _UNPAID.search(said):
        return _unpaid(reason)
    if _QUOTA.search(said):
        return QuotaError(f"The account may have no more of this at Hyperstack ({reason}); ask its support for more.")
    if _NO_STOCK.search(said):
        return NoCapacityError(f"Hyperstack has no such machine now in this region ({reason}).")
    return refusal


def _unpaid(reason: str) -> CredentialsError:
    return CredentialsError(
        f"Hyperstack rents nothing to this account ({reason.rstrip('.')}); add credit at console.hyperstack.cloud."
    )
