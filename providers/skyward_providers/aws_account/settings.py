"""Fields and credentials that the settings of AWS's providers share. Loads no SDK before credentials are looked for."""

import json
import os
import re
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_network
from pathlib import Path

from skyward.errors import ProviderMissingError, SpecError
from skyward.providers import CredentialSource
from skyward.values.validation import closest, of_type, shown

__all__ = ["check_ranges", "check_regions", "find_credentials", "require_sdk"]

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")

_OTHER_PARTITIONS = ("cn-", "us-gov-", "us-iso", "eu-iso", "eusc-")
"""Prefixes of regions outside the partition `aws`: they have accounts, endpoints and prices of their own."""

_HOW = "run `aws configure` or `aws sso login`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"

_ASKING = ("container-role", "iam-role")
"""Parts of botocore's chain that make a request to find out whether there are credentials."""


def check_regions(regions: Sequence[object]) -> None:
    """Check that these are names of regions, of those that the SDK knows if it is installed.

    Raises:
        SpecError: one is not.
    """
    for region in regions:
        of_type(region, "region", str, "region='us-east-1'")
        if not isinstance(region, str) or not _REGION.fullmatch(region):
            raise SpecError(f"region must be a region of AWS, such as 'us-east-1', but got {shown(region)}.")
        if region.startswith(_OTHER_PARTITIONS):
            raise SpecError(
                f"region {region!r} is in a part of AWS with accounts and prices of its own, which Skyward does not "
                "support; name another region, such as 'us-east-1'."
            )
        if (known := _known_regions()) and region not in known:
            raise SpecError(
                f"region must be a region of AWS, but got {region!r}; {closest(region, known)} If that region is new, "
                "the SDK must be updated: `pip install --upgrade aioboto3`."
            )


@cache
def _known_regions() -> frozenset[str]:
    """Return the regions of the partition `aws`, read from the SDK without loading it; empty if it is not installed.

    It is empty, too, if the SDK is to use other endpoints than those of AWS.
    """
    found = find_spec("botocore")
    if found is None or found.origin is None or any(name.startswith("AWS_ENDPOINT_URL") for name in os.environ):
        return frozenset()
    try:
        listed = json.loads(Path(found.origin).with_name("data").joinpath("partitions.json").read_text())
    except (OSError, ValueError):  # another version of it
        return frozenset()
    return frozenset(
        region for partition in listed["partitions"] if partition["id"] == "aws" for region in partition["regions"]
    )


def check_ranges(given: object) -> None:
    """Check that `caller_cidr` is None, or ranges of addresses separated by commas.

    Raises:
        SpecError: it is not.
    """
    if given is None:
        return
    try:
        if not isinstance(given, str):
            raise ValueError("no string")
        for each in given.split(","):
            ip_network(each.strip(), strict=False)
    except ValueError:
        raise SpecError(
            f"caller_cidr must be a range of addresses, such as '203.0.113.7/32', but got {shown(given)}."
        ) from None


def require_sdk(provider: str) -> None:
    """Check that the SDK is installed.

    Raises:
        ProviderMissingError: it is not.
    """
    if find_spec("aioboto3") is None:
        raise ProviderMissingError(
            f"Provider {provider!r} needs a package that is not installed (aioboto3); "
            "install it with `pip install 'skyward-jupyter[aws]'`"
        )


def find_credentials(profile: str | None) -> CredentialSource:
    """Look for credentials where the SDK would, without a request."""
    if find_spec("botocore") is None:
        return CredentialSource("", f"run `pip install 'skyward-jupyter[aws]'`, and {_HOW}")
    return CredentialSource(_credentials_of(profile), _HOW)


def _credentials_of(profile: str | None) -> str:
    """Return the place that has credentials; "" if there is none."""
    import botocore.session
    from botocore.exceptions import BotoCoreError

    try:
        session = botocore.session.Session(profile=profile)
        resolver = session.get_component("credential_provider")
        for name in _ASKING:
            resolver.remove(name)
        processes = session.get_scoped_config().get("credential_process")
        if processes is not None and "AWS_ACCESS_KEY_ID" not in os.environ:
            return "the `credential_process` of the AWS configuration"
        found = session.get_credentials()
    except BotoCoreError:  # such as a profile that does not exist
        return ""
    if found is not None:
        return _PLACES.get(found.method, f"the AWS configuration ({found.method})")
    if any(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI" in os.environ for kind in ("RELATIVE", "FULL")):
        return "the role of this container"
    return "the role of this EC2 instance, if it has one" if _on_ec2() else ""


_PLACES = {
    "env": "environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "shared-credentials-file": "the AWS credentials file",
    "config-file": "the AWS configuration file",
    "sso": "the single sign-on of the AWS configuration",
    "assume-role": "a role of the AWS configuration",
    "assume-role-with-web-identity": "a web identity token",
}


def _on_ec2() -> bool:
    try:
        return Path("/sys/class/dmi/id/sys_vendor").read_text().strip() == "Amazon EC2"
    except OSError:
        return False
