"""Short-lived credentials for a part of a bucket, so that a node never has the keys of the account."""

import json
import os
from dataclasses import replace
from typing import Any

from skyward.errors import StorageError
from skyward.storage.location import BucketLocation

__all__ = ["is_scopable", "policy_for", "scoped_credentials"]

_LEAST, _MOST = 900, 129_600
"""Seconds that AWS allows."""

_NAME = "skyward-volume"
_TEMPORARY_KEYS = "ASIA"
"""Begin of access keys that are short-lived already, from which AWS makes no others in this way."""


def scoped_credentials(location: BucketLocation, read_only: bool, seconds: float) -> BucketLocation:
    """Return a location with credentials that end by themselves and reach only its prefix, where its store makes some.

    That is AWS, with long-term keys, by GetFederationToken of STS. Other stores, and keys that are short-lived already,
    give the location as it is.

    Args:
        read_only: whether they may only read.
        seconds: how long they last; AWS allows from 15 minutes to 36 hours.

    Raises:
        StorageError: AWS refuses, or boto3 is not installed.
    """
    if not is_scopable(location):
        return location
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise StorageError(
            "Short-lived credentials for nodes need boto3, which is not installed: install skyward-jupyter[aws]."
        ) from None
    sts = boto3.client(
        "sts",
        region_name=location.region or "us-east-1",
        endpoint_url=os.environ.get("AWS_ENDPOINT_URL_STS"),
        aws_access_key_id=location.access_key,
        aws_secret_access_key=location.secret_key,
        config=Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 3}),
    )
    try:
        made = sts.get_federation_token(
            Name=_NAME,
            Policy=json.dumps(policy_for(location, read_only), separators=(",", ":")),
            DurationSeconds=int(min(max(seconds, _LEAST), _MOST)),
        )["Credentials"]
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))[:64]
        raise StorageError(
            f"AWS made no short-lived credentials for {location.describe} ({code}): allow the keys "
            "sts:GetFederationToken.",
            code=code,
        ) from None
    except BotoCoreError as error:
        raise StorageError(
            f"AWS made no short-lived credentials for {location.describe} ({type(error).__name__}): check that this "
            "machine can reach it."
        ) from None
    finally:
        sts.close()
    return replace(
        location,
        access_key=made["AccessKeyId"],
        secret_key=made["SecretAccessKey"],
        session_token=made["SessionToken"],
    )


def is_scopable(location: BucketLocation) -> bool:
    """Return whether the store makes short-lived credentials from those of the location."""
    return (
        not location.endpoint
        and bool(location.access_key)
        and not location.session_token
        and not location.access_key.startswith(_TEMPORARY_KEYS)
    )


def policy_for(location: BucketLocation, read_only: bool) -> dict[str, Any]:
    """Return the policy of AWS that allows what a volume needs, and no more."""
    partition = "aws-cn" if location.region.startswith("cn-") else "aws"
    bucket = f"arn:{partition}:s3:::{location.bucket}"
    listing: dict[str, Any] = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": [bucket]}
    if location.prefix:
        listing["Condition"] = {"StringLike": {"s3:prefix": [_literal(location.prefix), f"{_literal(location.root)}*"]}}
    reading = ["s3:GetObject"]
    writing = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
    return {
        "Version": "2012-10-17",
        "Statement": [
            listing,
            {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": [bucket]},
            {
                "Effect": "Allow",
                "Action": reading if read_only else reading + writing,
                "Resource": [f"{bucket}/{_literal(location.root)}*"],
            },
        ],
    }


def _literal(text: str) -> str:
    """Return a text for a resource of a policy, in which some characters have a meaning."""
    return text.replace("$", "${$}").replace("*", "${*}").replace("?", "${?}")
