"""Locations: addresses, and what goes to the tools of a node."""

import pytest

from skyward.storage.location import BucketLocation, printable

pytestmark = pytest.mark.unit


def test_description_and_addresses() -> None:
    whole, part = BucketLocation("b"), BucketLocation("b", "a/c")
    assert (whole.describe, part.describe) == ("s3://b", "s3://b/a/c")
    assert (whole.root, part.root) == ("", "a/c/")
    assert (whole.address("k"), part.address("k/l")) == ("s3://b/k", "s3://b/a/c/k/l")
    assert part.address("tab\t") == "s3://b/a/c/tab\\t"
    assert printable("a\n\udcff") == "a\\n\\udcff"


def test_environment_has_what_is_known_only() -> None:
    assert BucketLocation("b").environment() == {}
    full = BucketLocation("b", "", "https://host", "eu", False, "key", "secret", "token")
    assert full.environment() == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu",
        "AWS_DEFAULT_REGION": "eu",
        "AWS_ENDPOINT_URL_S3": "https://host",
    }
    assert "secret" not in repr(full)
    assert "token" not in repr(full)


@pytest.mark.parametrize(
    ("bucket", "endpoint", "path_style", "uses_path"),
    [
        ("b", "", False, False),
        ("b", "https://store.example.com", False, False),
        ("b", "https://store.example.com", True, True),
        ("with.dots", "https://store.example.com", False, True),
        ("b", "http://localhost:9000", False, True),
        ("b", "http://10.0.0.1:9000", False, True),
        ("b", "http://[::1]:9000", False, True),
    ],
)
def test_buckets_that_cannot_be_part_of_the_host(bucket: str, endpoint: str, path_style: bool, uses_path: bool) -> None:
    location = BucketLocation(bucket, "", endpoint, "", path_style)
    assert location.uses_path is uses_path
    expected = endpoint if uses_path or not endpoint else endpoint.replace("://", f"://{bucket}.")
    assert location.endpoint_for_bucket == expected
