"""Requests to Lambda's Cloud API 1.10, at the pace that it allows for an account.

Its status does not tell errors apart: "no capacity" and "quota" are both a 400. Its codes do; its messages may change.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from skyward.errors import CredentialsError, NoCapacityError, QuotaError
from skyward_providers.cloud import ApiError, Pace, RestClient
from skyward_providers.lambda_cloud.settings import Lambda, find_key

__all__ = ["LambdaApi", "code_of"]

_BASE = "https://cloud.lambda.ai"

REQUEST_EVERY = 1.0
LAUNCH_EVERY = 12.0
"""Seconds between two requests, and between two launches, of an account."""

_SECRETS = ("jupyter_token", "jupyter_url")
"""Fields of an instance that let everyone who has them run code on it. They are dropped as they arrive."""

_SERVER = 500


class LambdaApi:
    """Requests, with their errors told apart."""

    def __init__(self, settings: Lambda) -> None:
        self._settings = settings
        self._rest = RestClient(
            "Lambda",
            settings.endpoint or _BASE,
            self._headers,
            _reason,
            refine=_refine,
            timeout=settings.request_timeout,
            key="the API key",
        )
        self._paces: dict[tuple[object, float], Pace] = {}

    async def _headers(self) -> Mapping[str, str]:
        key = await self._turn(REQUEST_EVERY)
        return {"Authorization": f"Bearer {key}"}

    async def _turn(self, interval: float) -> str:
        """Wait until the account may send the next request of a kind; return its API key."""
        found, key = find_key(self._settings)
        if not found:
            raise CredentialsError(f"Lambda needs an API key: {self._settings.credentials().how}.")
        account = self._settings.endpoint, str(key)
        pace = self._paces.setdefault((account, interval), Pace.shared(account, interval))
        await pace.wait()
        return str(key)

    async def types(self) -> dict[str, dict[str, Any]]:
        """Return the instance types by name, with prices, and the regions that have some now."""
        return dict((await self._rest.get("/api/v1/instance-types"))["data"])

    async def instances(self) -> list[dict[str, Any]]:
        """Return the instances of the account, without their secrets."""
        answer = await self._rest.get("/api/v1/instances")
        return [_without_secrets(each) for each in answer["data"]]

    async def launch(self, instance: Mapping[str, Any]) -> str:
        """Launch an instance; return its id."""
        await self._turn(LAUNCH_EVERY)
        answer = await self._rest.create("/api/v1/instance-operations/launch", dict(instance))
        return str(answer["data"]["instance_ids"][0])

    async def terminate(self, ids: Sequence[str]) -> None:
        """Terminate instances; those that are gone already are no error."""
        try:
            await self._terminate(ids)
        except ApiError as error:
            if code_of(error.body) != "global/object-does-not-exist":
                raise
            if len(ids) > 1:  # Lambda terminates none of them then
                for id in ids:
                    await self.terminate([id])

    async def _terminate(self, ids: Sequence[str]) -> None:
        await self._rest.request(
            "POST", "/api/v1/instance-operations/terminate", json={"instance_ids": list(ids)}
        )  # may be repeated

    async def keys(self) -> list[dict[str, Any]]:
        """Return the SSH keys of the account."""
        return list((await self._rest.get("/api/v1/ssh-keys"))["data"])

    async def add_key(self, name: str, public_key: str) -> str:
        """Add an SSH key; return its id."""
        answer = await self._rest.create("/api/v1/ssh-keys", {"name": name, "public_key": public_key})
        return str(answer["data"]["id"])

    async def delete_key(self, id: str) -> None:
        """Delete an SSH key; one that is gone already is no error."""
        try:
            await self._rest.delete(f"/api/v1/ssh-keys/{id}")
        except ApiError:  # a 400 both for a wrong id and for one that is gone
            if any(each["id"] == id for each in await self.keys()):
                raise

    async def rulesets(self) -> list[dict[str, Any]]:
        """Return the firewall rulesets of the account."""
        return list((await self._rest.get("/api/v1/firewall-rulesets"))["data"])

    async def add_ruleset(self, name: str, region: str, sources: Sequence[str]) -> str:
        """Add a ruleset that lets `sources` connect over SSH; return its id."""
        rules = [
            {"protocol": "tcp", "port_range": [22, 22], "source_network": source, "description": "Skyward: SSH"}
            for source in sources
        ]
        ruleset = {"name": name, "region": region, "rules": rules}
        answer = await self._rest.create("/api/v1/firewall-rulesets", ruleset)
        return str(answer["data"]["id"])

    async def delete_ruleset(self, id: str) -> bool:
        """Delete a ruleset; return False if an instance uses it. One that is gone already is no error."""
        try:
            await self._rest.delete(f"/api/v1/firewall-rulesets/{id}")
        except ApiError as error:
            if code_of(error.body) == "firewall-rulesets/firewall-ruleset-in-use":
                return False
            raise
        return True


def code_of(body: Any) -> str:
    """Return the code of an error; "" if it has none."""
    match body:
        case {"error": {"code": str(code)}}:
            return code
        case _:
            return ""


def _without_secrets(instance: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in instance.items() if name not in _SECRETS}


def _reason(status: int, body: Any) -> str:
    match body:
        case {"error": {"message": str(message)}}:
            return f"{code_of(body)}, {message}"
        case _:
            return ""


def _refine(status: int, body: Any) -> Exception | None:
    code, reason = code_of(body), _reason(status, body).rstrip(".")
    match code:
        case "instance-operations/launch/insufficient-capacity":
            return NoCapacityError("Lambda has no such instance now in this region.")
        case "global/quota-exceeded":
            return QuotaError(
                f"The account's quota at Lambda is used up ({reason}); ask Lambda's support for a higher one."
            )
        case "global/invalid-api-key":
            return CredentialsError(
                "Lambda refuses the API key; create one at cloud.lambda.ai/api-keys, and give it in LAMBDA_API_KEY."
            )
        case "global/account-inactive" | "global/invalid-address":
            return CredentialsError(
                f"Lambda rents nothing to this account ({reason}); check its e-mail address, billing address and "
                "payment method."
            )
        case _ if code.startswith("provider/") and status < _SERVER:
            return NoCapacityError(f"Lambda's data center cannot launch this instance now ({reason}).")
        case _:
            return None
