"""Requests to the REST API of a cloud, with deadlines, retries, and errors told apart.

A request that may be repeated is retried after a lost connection, a 429 and a 5xx. A request that creates something is
sent once: if its answer is lost, the outcome is unknown, and the error is none of Skyward's, so that the machines of
the pool are listed before anything else. A 429 was not carried out, and is repeated in both cases. A page of HTML that
reports success is of the network between, and counts as a lost answer.
"""

import asyncio
import json
import os
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx

from skyward.errors import CredentialsError, ProvisioningError, RateLimitError

__all__ = ["ApiError", "RestClient", "fetch_text", "network_ranges"]

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20.0
"""Seconds before the first retry, doubled up to the longest; each is shortened by up to half at random."""

_UNREACHABLE_AFTER = 10.0
"""Seconds after which an API to which no connection was ever made counts as unreachable."""

_SECRET = ("authorization", "api_key")
"""Headers of requests whose last word is a secret."""

_TOO_FAST = 429
_REFUSED = (401, 403)
_SERVER = 500
_GONE = 404


class ApiError(ProvisioningError):
    """A cloud refused a request, which was not carried out.

    Attributes:
        status: the status of HTTP.
        body: the decoded answer: JSON if it is, or else text. It may hold secrets, and is not part of the message.
    """

    def __init__(self, message: str, status: int, body: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class RestClient:
    """A client of one API. Each call opens a connection of its own, so that there is nothing to close.

    Args:
        cloud: name of the cloud, as it begins error messages.
        base: URL that the paths of requests are appended to.
        headers: returns the headers of a request, with its credentials. Called before each attempt.
        reason: returns the reason of an error from its status and decoded answer; "" if there is none.
        refine: returns a more precise error than `ApiError`, or None. Called before the general rules.
        timeout: seconds for one attempt.
        give_up: seconds after which a request is not retried any more. Until a connection was made, it is 10 for the
            first request, and the next ones are not retried.
        key: the setting or variable of the credentials, as error messages name it.
    """

    def __init__(
        self,
        cloud: str,
        base: str,
        headers: Callable[[], Awaitable[Mapping[str, str]]],
        reason: Callable[[int, Any], str],
        *,
        refine: Callable[[int, Any], Exception | None] = lambda status, body: None,
        timeout: float = 30.0,
        give_up: float = 60.0,
        key: str = "the credentials",
    ) -> None:
        self._cloud = cloud
        self._base = base.rstrip("/")
        self._headers = headers
        self._reason = reason
        self._refine = refine
        self._timeout = timeout
        self._give_up = give_up
        self._key = key
        self._was_connected = False
        self._sent: tuple[str, ...] = ()
        self._patience = _UNREACHABLE_AFTER

    async def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """Return the decoded answer of a GET; it may be repeated."""
        return await self.request("GET", path, params=params)

    async def find(self, path: str, params: Mapping[str, Any] | None = None) -> Any | None:
        """Return the decoded answer of a GET; None if there is no such thing."""
        try:
            return await self.get(path, params)
        except ApiError as error:
            if error.status == _GONE:
                return None
            raise

    async def create(self, path: str, json: Any, *, method: str = "POST") -> Any:
        """Send a request that creates something, once; return the decoded answer.

        Raises:
            SkywardError: nothing was created. After any other error, something may have been.
        """
        return await self.request(method, path, json=json, repeatable=False)

    async def delete(self, path: str, json: Any = None, params: Mapping[str, Any] | None = None) -> None:
        """Send a DELETE; what is gone already is no error."""
        try:
            await self.request("DELETE", path, json=json, params=params)
        except ApiError as error:
            if error.status != _GONE:
                raise

    async def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        form: Mapping[str, str] | None = None,
        repeatable: bool = True,
    ) -> Any:
        """Send a request and return the decoded answer: JSON if it is, text otherwise, None if it is empty.

        Raises:
            CredentialsError: the cloud refuses the credentials.
            RateLimitError: it still refuses requests after `give_up` seconds, or for longer than that.
            ApiError: it refuses the request.
            ProvisioningError: it could not be reached, or answered a repeatable request with errors only.
            httpx.HTTPError: the answer to a request that is not `repeatable` was lost; it may have been carried out.
        """
        began, pause = time.monotonic(), _FIRST_PAUSE
        until = began + self._give_up
        while True:
            wait = pause * (1 - random.random() / 2)
            try:
                answer = await self._send(method, path, json=json, params=params, form=form)
            except httpx.TransportError as error:
                is_connected = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                self._was_connected |= is_connected
                if not repeatable and is_connected:
                    raise
                if not self._was_connected:
                    until = min(until, began + self._patience)
                if time.monotonic() + wait > until:
                    self._patience = 0.0
                    raise ProvisioningError(
                        f"{self._cloud} cannot be reached ({_cause(error)}); check the network, and try again."
                    ) from error
            else:
                self._was_connected = True
                status, body = answer.status_code, _decoded(answer, () if answer.is_success else self._sent)
                if answer.is_success and not _is_page(answer):
                    return body
                error_found = self._error(answer, status, body, path)
                if answer.is_success:
                    if not repeatable:
                        raise httpx.DecodingError("a page in place of an answer", request=answer.request)
                elif isinstance(error_found, RateLimitError):
                    wait = max(wait, error_found.retry_after or 0.0)
                elif status < _SERVER or not isinstance(error_found, ApiError):
                    raise error_found
                elif not repeatable:
                    answer.raise_for_status()
                if time.monotonic() + wait > until:
                    raise error_found
            await asyncio.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _send(
        self, method: str, path: str, *, json: Any, params: Mapping[str, Any] | None, form: Mapping[str, str] | None
    ) -> httpx.Response:
        headers = await self._headers()
        self._sent = tuple(value.split()[-1] for name, value in headers.items() if name.lower() in _SECRET and value)
        url = path if path.startswith(("http://", "https://")) else f"{self._base}{path}"
        connect = self._timeout if self._was_connected else min(self._timeout, _UNREACHABLE_AFTER)
        timeout = httpx.Timeout(self._timeout, connect=connect)
        async with httpx.AsyncClient(verify=_trust(), timeout=timeout) as client:
            return await client.request(method, url, json=json, params=params, data=form, headers=dict(headers))

    def _error(self, answer: httpx.Response, status: int, body: Any, path: str) -> Exception:
        if answer.is_success:
            return ProvisioningError(
                f"{self._cloud} cannot be reached (a page of HTML came in place of an answer); check whether a proxy, "
                "or the network's page to log in, is in between."
            )
        if (precise := self._refine(status, body)) is not None:
            return precise
        reason = self._reason(status, body).strip().rstrip(".")
        said = f": {reason}" if reason else ""
        if status == _TOO_FAST:
            after = _retry_after(answer.headers.get("retry-after"))
            return RateLimitError(f"{self._cloud} takes no more requests for a while{said}; try again later.", after)
        if status in _REFUSED:
            return CredentialsError(
                f"{self._cloud} refuses {self._key} ({status}{said}); check that it is valid and may do this."
            )
        return ApiError(f"{self._cloud} refused {path} ({status}{said}).", status, body)


@cache
def _trust() -> ssl.SSLContext:
    """Return the trusted certificates, which take 20 ms to load."""
    return httpx.create_ssl_context()


def _is_page(answer: httpx.Response) -> bool:
    """Return whether an answer is a page for people: the network between has answered.

    Its type alone does not tell: servers send plain text, such as an id, as HTML too.
    """
    return answer.headers.get("content-type", "").startswith("text/html") and answer.content.lstrip()[:1] == b"<"


def _decoded(answer: httpx.Response, hidden: Collection[str] = ()) -> Any:
    """Return the content of an answer, without words that may be credentials: some clouds repeat a wrong key."""
    if not answer.content:
        return None
    try:
        return answer.json() if not hidden else json.loads(_without(answer.text, hidden))
    except ValueError:
        return _without(answer.text, hidden)


def _without(text: str, hidden: Collection[str]) -> str:
    for word in hidden:
        text = text.replace(word, "***")
    return text


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _cause(error: BaseException) -> str:
    """Return why the network failed: the system's reason if there is one, such as "Connection refused"."""
    found, text = error, _text(error)
    while (deeper := found.__cause__ or found.__context__) is not None:
        found = deeper
        if isinstance(found, OSError) and found.errno is not None:
            text = os.strerror(found.errno) if found.errno > 0 else found.strerror or text
    return text


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, which is a number or a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


async def fetch_text(url: str) -> str:
    """Return the text at a public URL.

    Raises:
        ProvisioningError: it could not be read, with the reason.
    """
    try:
        async with httpx.AsyncClient(verify=_trust(), timeout=10.0) as client:
            answer = await client.get(url)
            answer.raise_for_status()
            return answer.text
    except httpx.HTTPError as error:
        raise ProvisioningError(_text(error)) from error


async def network_ranges(given: str | None, asked: str) -> tuple[str, ...]:
    """Return the addresses from which this client reaches machines, as CIDR ranges.

    Args:
        given: ranges of the user's settings, separated by commas; None for the public address of this client.
        asked: URL of a service that answers with the caller's public address.

    Raises:
        ProvisioningError: the service did not answer with an address.
    """
    from ipaddress import ip_address, ip_network

    if given is not None:
        return tuple(str(ip_network(each.strip(), strict=False)) for each in given.split(","))
    try:
        address = ip_address((await fetch_text(asked)).strip())
    except (ProvisioningError, ValueError) as error:
        raise ProvisioningError(
            f"The public address of this computer could not be found out at {asked} ({error}); "
            "give it in the settings of the provider, such as '203.0.113.7/32'."
        ) from error
    return (f"{address}/{address.max_prefixlen}",)
