"""Policies of short-lived credentials."""

import pytest

from skyward.storage.location import BucketLocation
from skyward.storage.scoped import is_scopable, policy_for

pytestmark = pytest.mark.unit


def actions(location: BucketLocation, read_only: bool) -> dict[str, str]:
    """Return the resource of each action."""
    statements = policy_for(location, read_only)["Statement"]
    return {action: resource for each in statements for action in each["Action"] for resource in each["Resource"]}


def test_policy_allows_the_prefix_only() -> None:
    reading = actions(BucketLocation("b", "run/1"), True)
    assert reading == {
        "s3:ListBucket": "arn:aws:s3:::b",
        "s3:GetBucketLocation": "arn:aws:s3:::b",
        "s3:GetObject": "arn:aws:s3:::b/run/1/*",
    }
    writing = actions(BucketLocation("b", "run/1"), False)
    assert writing.keys() - reading.keys() == {
        "s3:PutObject",
        "s3:DeleteObject",
        "s3:AbortMultipartUpload",
        "s3:ListMultipartUploadParts",
    }
    listing = policy_for(BucketLocation("b", "run/1"), True)["Statement"][0]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["run/1", "run/1/*"]}}
    assert "Condition" not in policy_for(BucketLocation("b"), True)["Statement"][0]


def test_characters_with_a_meaning_in_policies_are_literal() -> None:
    assert actions(BucketLocation("b", "a*b?c$"), True)["s3:GetObject"] == "arn:aws:s3:::b/a${*}b${?}c${$}/*"
    assert actions(BucketLocation("b", region="cn-north-1"), True)["s3:GetObject"] == "arn:aws-cn:s3:::b/*"


def test_only_long_term_keys_of_aws_are_scoped() -> None:
    assert is_scopable(BucketLocation("b", access_key="AKIAX", secret_key="s"))
    assert not is_scopable(BucketLocation("b", access_key="ASIAX", secret_key="s", session_token="t"))
    assert not is_scopable(BucketLocation("b", access_key="AKIAX", secret_key="s", endpoint="https://host"))
    assert not is_scopable(BucketLocation("b"))
