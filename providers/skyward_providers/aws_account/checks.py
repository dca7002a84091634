"""Checks of an account that its providers share. Nothing is created."""

from collections.abc import Mapping
from typing import Any

from skyward.errors import CredentialsError, SkywardError
from skyward.providers import Check
from skyward_providers.aws_account.account import Account
from skyward_providers.aws_account.failures import CallError, explained

__all__ = ["check_call", "check_dry_run", "check_identity", "check_prices", "check_refused"]


async def check_call(account: Account, what: str, service: str, operation: str, region: str, **values: Any) -> Check:
    """Check that a call that changes nothing is allowed."""
    try:
        await account.call(service, operation, region, **values)
    except CallError as error:
        return Check(what, str(explained(error)))
    except SkywardError as error:
        return Check(what, str(error))
    return Check(what)


async def check_identity(account: Account, region: str) -> Check:
    """Check the credentials."""
    return await check_call(account, "credentials are valid", "sts", "get_caller_identity", region)


async def check_prices(account: Account, service: str) -> Check:
    """Check that the price list of a service may be read."""
    return await check_call(
        account, "may read prices", "pricing", "get_products", "us-east-1", ServiceCode=service, MaxResults=1
    )


async def check_refused(
    account: Account, what: str, service: str, operation: str, region: str, values: Mapping[str, Any]
) -> Check:
    """Check that a call is allowed that AWS cannot carry out.

    Permissions are checked first: any other error, such as that of something that does not exist, comes after.
    """
    try:
        await account.call(service, operation, region, **values)
    except CallError as error:
        refused = isinstance(found := explained(error), CredentialsError)
        return Check(what, str(found) if refused else "")
    except SkywardError as error:
        return Check(what, str(error))
    return Check(what)


async def check_dry_run(account: Account, what: str, operation: str, region: str, values: Mapping[str, Any]) -> Check:
    """Check that a call of EC2 is allowed, which is not carried out."""
    return await check_refused(account, what, "ec2", operation, region, {"DryRun": True, **values})
