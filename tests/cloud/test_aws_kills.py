"""AWS EC2: a client that is killed at any request leaves nothing, once its pools are reaped."""

from pathlib import Path

import pytest

import skyward as sky
from tests.cloud.kills import BUILDING, reaped_after_each_kill
from tests.fakes.aws import FakeAWS

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

_UP_TO_LAUNCH = 5
"""Number of requests of a pool up to its launch, which the build of an image begins with."""


def test_client_killed_at_any_request_leaves_nothing(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that only list are left out."""
    requests = reaped_after_each_kill(
        aws,
        'sky.AWS(caller_cidr="203.0.113.7")',
        aws.left,
        tmp_path,
        monkeypatch,
        spec='vcpus=2, memory_gb=4, architecture="x86_64"',
        variables=aws.environment,
    )
    assert requests >= 8


def test_build_of_an_image_killed_at_any_request_leaves_nothing_but_images_on_record(
    aws: FakeAWS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left() -> list[str]:
        for image in sky.images():
            assert sky.delete_image(image.id)
            kept.append(image.id)
        return aws.left()

    kept: list[str] = []
    requests = reaped_after_each_kill(
        aws,
        'sky.AWS(caller_cidr="203.0.113.7")',
        left,
        tmp_path,
        monkeypatch,
        spec='vcpus=2, memory_gb=4, architecture="x86_64"',
        life=BUILDING,
        first=_UP_TO_LAUNCH,
        moments=("after",),
        variables=aws.environment,
    )
    assert requests >= 8
    assert 2 <= len(kept) < requests - _UP_TO_LAUNCH
