"""Calls of an AWS account.

Each opens a client of its own, so that there is nothing to close. That takes some 50 ms of CPU, most of
them for reading the trusted certificates.
"""

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Protocol

from skyward.errors import CredentialsError, ProvisioningError
from skyward_providers.aws_account.failures import CallError, UnreadableAnswerError, explained

__all__ = ["Account", "AccountSettings", "told"]

_ATTEMPTS = 5
"""Attempts of the SDK at a call that may be repeated."""

_NEXT = ("NextToken", "nextToken")
"""Names of the argument for the next page: EC2's and ECS's."""

_LAUNCH_WITHIN = 120.0
"""Seconds for the answer to a launch: EC2 answers once it has tried every type and zone."""


class AccountSettings(Protocol):
    """The settings of a provider that calls AWS."""

    @property
    def profile(self) -> str | None:
        """Profile of the AWS configuration; None for the SDK's default."""
        ...

    @property
    def request_timeout(self) -> float:
        """Timeout of one request in seconds."""
        ...


class Account:
    """The calls of one account, with the credentials of the settings.

    Attributes:
        door: name of the settings' class, as errors name it, such as "sky.AWS".
    """

    def __init__(self, settings: AccountSettings, door: str) -> None:
        self.door = door
        self._settings = settings
        self._session: Any = None
        self._making = asyncio.Lock()

    async def call(self, service: str, operation: str, region: str, *, once: bool = False, **values: Any) -> Any:
        """Make a call and return the answer. With `once`, it is sent once, and a lost answer is an error of the SDK.

        Raises:
            CallError: AWS answered with an error.
            CredentialsError: there are no credentials.
            ProvisioningError: AWS could not be reached, or its answer cannot be read.
            UnreadableAnswerError: with `once`, the answer cannot be read.
        """
        async with self._client(service, region, once=once) as client:
            return await self._sent(client, operation, region, once=once, **values)

    async def pages(self, service: str, operation: str, region: str, key: str, **values: Any) -> AsyncIterator[Any]:
        """Yield the items under `key` of all pages of an answer.

        Raises:
            CallError, CredentialsError, ProvisioningError: see `call`.
        """
        next_page: dict[str, str] = {}
        async with self._client(service, region, once=False) as client:
            while True:
                answer = await self._sent(client, operation, region, once=False, **values, **next_page)
                for item in answer.get(key, ()):
                    yield item
                next_page = {name: answer[name] for name in _NEXT if answer.get(name)}
                if not next_page:
                    return

    async def all(self, service: str, operation: str, region: str, key: str, **values: Any) -> list[Any]:
        """Return the items under `key` of all pages of an answer; see `pages`."""
        return [item async for item in self.pages(service, operation, region, key, **values)]

    @asynccontextmanager
    async def _client(self, service: str, region: str, *, once: bool) -> AsyncIterator[Any]:
        async with self._making:
            if self._session is None:
                self._session = await asyncio.to_thread(_new_session, self._settings)
        from aiobotocore.config import AioConfig

        timeout = _LAUNCH_WITHIN if once else self._settings.request_timeout
        config = AioConfig(
            connect_timeout=self._settings.request_timeout,
            read_timeout=timeout,
            retries={"total_max_attempts": 1 if once else _ATTEMPTS, "mode": "standard"},
        )
        async with AsyncExitStack() as stack:
            with self._explaining(region, once=False):
                client = await stack.enter_async_context(
                    self._session.client(service, region_name=region, config=config)
                )
            yield client

    async def _sent(self, client: Any, operation: str, region: str, *, once: bool, **values: Any) -> Any:
        with self._explaining(region, once=once):
            return await getattr(client, operation)(**values)

    @contextmanager
    def _explaining(self, region: str, *, once: bool) -> Iterator[None]:
        """Raise the errors of `call` in place of those of the SDK."""
        from botocore.exceptions import BotoCoreError, ClientError, ConnectionError
        from botocore.parsers import ResponseParserError

        try:
            yield
        except ClientError as error:
            if _is_page(error):
                raise _unreadable(region, once=once) from None
            raise _call_error(error, self.door) from None
        except ResponseParserError:  # its text has the whole answer
            raise _unreadable(region, once=once) from None
        except _no_credentials() as error:
            raise _without_credentials(error) from error
        except BotoCoreError as error:
            if once and not (isinstance(error, ConnectionError) and _was_not_sent(error)):
                raise
            raise _unreachable(region, error) from error


def _new_session(settings: AccountSettings) -> Any:
    """Return a session of the SDK, which takes a second to load."""
    import aioboto3
    from aiobotocore.session import AioSession
    from botocore.exceptions import BotoCoreError

    core = AioSession(profile=settings.profile)
    core.register_component("data_loader", _models())
    try:
        core.get_scoped_config()
        return aioboto3.Session(botocore_session=core)
    except BotoCoreError as error:  # such as a profile that does not exist
        raise _without_credentials(error) from error


@functools.cache
def _models() -> Any:
    """Return the descriptions of the services: 0.2 s for EC2's, once for all providers."""
    from botocore.loaders import create_loader

    loader = create_loader()
    for service in ("ec2", "ecs", "pricing", "ssm", "sts"):
        loader.load_service_model(service, "service-2")
    return loader


def _no_credentials() -> tuple[type[Exception], ...]:
    from botocore import exceptions as sdk

    return (
        sdk.NoCredentialsError,
        sdk.PartialCredentialsError,
        sdk.CredentialRetrievalError,
        sdk.TokenRetrievalError,
        sdk.SSOError,
    )


def _without_credentials(error: Exception) -> CredentialsError:
    return CredentialsError(
        f"AWS has no usable credentials ({type(error).__name__}); run `aws configure` or `aws sso login`, "
        "or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
    )


def _unreachable(region: str, error: Exception) -> ProvisioningError:
    return ProvisioningError(f"AWS cannot be reached in {region} ({type(error).__name__}); check region and network.")


def _was_not_sent(error: Any) -> bool:
    """Return whether a connection failed before the request was sent.

    The SDK raises the same error for a connection that was reset later, when the request may have been carried out.
    """
    from aiohttp import ClientConnectorError
    from botocore.exceptions import EndpointConnectionError

    cause = error.kwargs.get("error")
    return not isinstance(error, EndpointConnectionError) or isinstance(cause, ClientConnectorError | socket.gaierror)


def _unreadable(region: str, *, once: bool) -> Exception:
    sentence = f"AWS cannot be reached in {region}: the answer is not one of AWS; check the region and the network."
    return UnreadableAnswerError(sentence) if once else ProvisioningError(sentence)


def _is_page(error: Any) -> bool:
    """Return whether a page, such as that of a proxy, was taken for the message of an error."""
    return str(error.response.get("Error", {}).get("Message", "")).lstrip().startswith("<")


def _call_error(error: Any, door: str) -> CallError:
    answer = error.response
    told = answer.get("Error", {})
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code, detail = str(told.get("Code", "Unknown")), str(told.get("Message", ""))
    return CallError(error.operation_name, code, status, detail, door)


def told[**P, T](call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make `call` raise the errors that users read in place of those of AWS."""

    @functools.wraps(call)
    async def telling(*args: P.args, **values: P.kwargs) -> T:
        try:
            return await call(*args, **values)
        except CallError as error:
            raise explained(error) from error

    return telling
