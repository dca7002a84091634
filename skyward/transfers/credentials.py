"""Credentials of the client for object stores: those that it was given, or those that the tools of AWS would find."""

import asyncio
import configparser
import inspect
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from skyward.errors import CredentialsError, SkywardError

__all__ = ["StoreKeys", "found_keys", "resolved"]

_NEED_BOTO = ("sso_session", "sso_start_url", "role_arn", "credential_process", "login_session")
"""Settings of a profile that only the tools of AWS can follow."""


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """Credentials in plain text."""

    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)


def resolved(value: str | Callable[[], Any], name: str) -> str:
    """Return a credential: the text, or the one that the function returns now.

    Raises:
        CredentialsError: the function failed or returned no text. Its error is not shown: it may repeat a secret.
    """
    if isinstance(value, str):
        return str(value)
    try:
        found = value()
        if inspect.isawaitable(found):

            async def wait() -> Any:
                return await found

            with ThreadPoolExecutor(1) as pool:  # this thread may have a loop that runs: that of a notebook
                found = pool.submit(asyncio.run, wait()).result()
    except SkywardError:
        raise
    except Exception as error:
        raise CredentialsError(
            f"The function that returns {name} failed with {type(error).__name__}: call it by itself to see why."
        ) from None
    if not isinstance(found, str) or not found:
        raise CredentialsError(
            f"The function that returns {name} must return a text, but it returned {type(found).__name__}."
        )
    return found


def found_keys(*, of_aws: bool, with_role: bool) -> StoreKeys:
    """Return the credentials of this machine: of the environment, else of the profile, else of its role at AWS.

    Args:
        of_aws: whether the store is AWS, so that a role, or a sign-in of the tools of AWS, applies.
        with_role: whether to ask for the credentials of the role; if not, none stand for the role.

    Raises:
        CredentialsError: there are none.
    """
    named = os.environ.get
    if named("AWS_ACCESS_KEY_ID") and named("AWS_SECRET_ACCESS_KEY") and not named("AWS_PROFILE"):
        return StoreKeys(
            named("AWS_ACCESS_KEY_ID", ""), named("AWS_SECRET_ACCESS_KEY", ""), named("AWS_SESSION_TOKEN", "")
        )
    profile = named("AWS_PROFILE") or named("AWS_DEFAULT_PROFILE") or "default"
    settings = _profile(profile)
    if settings.get("aws_access_key_id") and settings.get("aws_secret_access_key"):
        return StoreKeys(
            settings["aws_access_key_id"], settings["aws_secret_access_key"], settings.get("aws_session_token", "")
        )
    if any(settings.get(name) for name in _NEED_BOTO):
        return _of_boto(profile)
    if not of_aws:
        raise CredentialsError(
            "No credentials for the object store were found: give the storage an access_key and a secret_key, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return _of_boto(None) if with_role else StoreKeys()


def _profile(name: str) -> dict[str, str]:
    """Return the settings of a profile, of both files of the tools of AWS; empty if there are none."""
    found: dict[str, str] = {}
    for variable, default, section in (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    ):
        path = Path(os.environ.get(variable) or default).expanduser()
        parser = configparser.RawConfigParser(default_section="\0")
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError, OSError):
            raise CredentialsError(f"{path} cannot be read as a file of profiles of AWS: fix it.") from None
        if parser.has_section(section):
            found |= parser.items(section)
    return found


def _of_boto(profile: str | None) -> StoreKeys:
    """Return the credentials that the tools of AWS find: by single sign-on, roles or processes.

    Args:
        profile: name of a profile; None for the role of this machine.

    Raises:
        CredentialsError: they are not installed, or find none.
    """
    if profile is None and find_spec("botocore") is None:
        return StoreKeys()
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import Session
    except ImportError:
        raise CredentialsError(
            f"The profile {profile!r} of AWS signs in by a role or single sign-on, which needs another package: "
            "install skyward-jupyter[aws]."
        ) from None
    try:
        credentials = Session(profile=profile).get_credentials()
        frozen = None if credentials is None else credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        raise CredentialsError(
            f"The profile {profile!r} of AWS gave no credentials ({type(error).__name__}): sign in again, as with "
            "`aws sso login`."
        ) from None
    if frozen is None and profile is None:
        raise CredentialsError(
            "No credentials for the object store were found, and this machine has no role: give the storage an "
            "access_key and a secret_key, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if frozen is None:
        raise CredentialsError(f"The profile {profile!r} of AWS gave no credentials: sign in first.")
    return StoreKeys(frozen.access_key, frozen.secret_key, frozen.token or "")
