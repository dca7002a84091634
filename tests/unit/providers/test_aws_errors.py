"""Errors of the SDK of AWS become errors that users read."""

import asyncio
import re
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pytest
from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

import skyward as sky
from skyward_providers.aws_account import account as aws_account
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError, UnreadableAnswerError
from skyward_providers.aws_account.launches import send_launch

pytestmark = pytest.mark.unit

PAGE = "<!doctype html><html><body>Sign in to the network</body></html>"
UNREADABLE = ResponseParserError(
    f"Unable to parse response (syntax error: line 1, column 0), invalid XML received. Further retries may "
    f"succeed:\nb'{PAGE}'"
)
NO_ANSWER_OF_AWS = "AWS cannot be reached in eu-west-1: the answer is not one of AWS; check the region and the network."


def answered(message: str) -> sdk.ClientError:
    """Return the error that the SDK raises for an answer with a message."""
    return sdk.ClientError({"Error": {"Code": "403", "Message": message}}, "DescribeVpcs")


class Client:
    """A client of the SDK that raises an error when it is opened, or when it is called."""

    def __init__(self, opening: Exception | None, calling: Exception | None) -> None:
        self._opening = opening
        self._calling = calling

    async def __aenter__(self) -> Self:
        if self._opening is not None:
            raise self._opening
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def describe_vpcs(self, **_: object) -> Any:
        """Raise the error."""
        if self._calling is not None:
            raise self._calling
        return {"Vpcs": ["vpc-1"]}


def account_of(
    monkeypatch: pytest.MonkeyPatch, *, opening: Exception | None = None, calling: Exception | None = None
) -> Account:
    session = SimpleNamespace(client=lambda *_, **__: Client(opening, calling))
    monkeypatch.setattr(aws_account, "_new_session", lambda settings: session)
    return Account(sky.AWS(), "sky.AWS")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (UNREADABLE, sky.ProvisioningError, NO_ANSWER_OF_AWS),
        (answered(PAGE), sky.ProvisioningError, NO_ANSWER_OF_AWS),
        (answered("No."), CallError, "AWS answered DescribeVpcs with 403"),
        (
            sdk.EndpointConnectionError(endpoint_url="https://host"),
            sky.ProvisioningError,
            "AWS cannot be reached in eu-west-1 (EndpointConnectionError); check region and network.",
        ),
        (sdk.PartialCredentialsError(provider="env", cred_var="x"), sky.CredentialsError, "AWS has no usable cred"),
    ],
    ids=["not XML", "a page", "an answer", "no connection", "credentials"],
)
@pytest.mark.parametrize("when", ["opening", "calling"])
def test_error_is_one_sentence_without_the_answer(
    error: Exception, kind: type[Exception], said: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_of(monkeypatch, **{when: error})
    for call in (
        account.call("ec2", "describe_vpcs", "eu-west-1"),
        account.all("ec2", "describe_vpcs", "eu-west-1", ""),
    ):
        with pytest.raises(kind, match=f"^{re.escape(said)}") as raised:
            asyncio.run(call)
        assert type(raised.value) is kind
        assert "html" not in str(raised.value)


@pytest.mark.parametrize("error", [UNREADABLE, answered(PAGE)], ids=["not XML", "a page"])
def test_launch_with_an_unreadable_answer_may_have_launched(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward_providers.aws_account.launches._PAUSES", ())
    account = account_of(monkeypatch, calling=error)
    with pytest.raises(UnreadableAnswerError, match=f"^{re.escape(NO_ANSWER_OF_AWS)}$") as raised:
        asyncio.run(send_launch(account, "ec2", "describe_vpcs", "eu-west-1"))
    assert not isinstance(raised.value, sky.SkywardError), "nothing was launched"


def test_configuration_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "config").write_text("no configuration")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(sky.CredentialsError, match=r"^AWS has no usable credentials \(ConfigParseError\); run `aws"):
        asyncio.run(Account(sky.AWS(), "sky.AWS").call("ec2", "describe_vpcs", "eu-west-1"))
