"""Notices of clouds that take a spot machine back."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from urllib.error import URLError

import pytest

from skyward.worker.machine.notices import reclaim_notices, seconds_left
from tests.fakes.server import Answer, FakeServer, Request

pytestmark = pytest.mark.unit


class Metadata(FakeServer):
    """The metadata service of a machine."""

    notice: Answer = Answer(404, "Not Found")
    tokens = True

    def handle(self, request: Request) -> Answer:
        match request.method, request.path:
            case "PUT", "/latest/api/token" if self.tokens:
                assert "x-aws-ec2-metadata-token-ttl-seconds" in request.headers
                return Answer(200, "a-token")
            case "GET", "/latest/meta-data/spot/instance-action":
                if self.tokens and request.headers.get("x-aws-ec2-metadata-token") != "a-token":
                    return Answer(401, "Unauthorized")
                return self.notice
            case "GET", "/computeMetadata/v1/instance/preempted" if request.headers.get("metadata-flavor") == "Google":
                return self.notice
            case _:
                return Answer(404, "Not Found")


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata() as service:
        yield service


def ec2(metadata: Metadata) -> float | None:
    return seconds_left("ec2", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata.url})


def test_ec2_machine_without_a_notice_has_no_deadline(metadata: Metadata) -> None:
    assert ec2(metadata) is None


@pytest.mark.parametrize("tokens", [True, False])
def test_ec2_notice_tells_the_seconds_that_are_left(metadata: Metadata, tokens: bool) -> None:
    metadata.tokens = tokens
    at = (datetime.now(UTC) + timedelta(seconds=115)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata.notice = Answer(200, f'{{"action": "terminate", "time": "{at}"}}')
    left = ec2(metadata)
    assert left is not None
    assert 100 < left <= 115


def test_past_notice_leaves_no_time(metadata: Metadata) -> None:
    metadata.notice = Answer(200, '{"action": "terminate", "time": "2020-01-01T00:00:00Z"}')
    assert ec2(metadata) == 0.0


def test_compute_engine_notice_leaves_half_a_minute(metadata: Metadata) -> None:
    environment = {"GCE_METADATA_HOST": metadata.url.removeprefix("http://")}
    metadata.notice = Answer(200, "FALSE")
    assert seconds_left("gcp", environment) is None
    metadata.notice = Answer(200, "TRUE")
    assert seconds_left("gcp", environment) == 30.0


def test_metadata_service_that_is_down_is_an_error_of_the_system() -> None:
    with pytest.raises(URLError):
        seconds_left("ec2", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"})


def test_container_that_got_sigterm_has_what_is_left_of_two_minutes(tmp_path: Path) -> None:
    file = tmp_path / "notice"
    environment = {"SKYWARD_STOP_NOTICE": str(file)}
    assert seconds_left("container", environment) is None
    file.write_text(f"{datetime.now(UTC).timestamp() - 20:.0f}\n")
    left = seconds_left("container", environment)
    assert left is not None
    assert 80 < left <= 91
    file.write_text("")  # about to be written
    with pytest.raises(ValueError, match="float"):
        seconds_left("container", environment)


def test_notice_is_repeated_with_the_seconds_that_are_left_then(metadata: Metadata) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        metadata.notice = Answer(200, "TRUE")

    metadata.notice = Answer(200, "FALSE")
    environment = {"GCE_METADATA_HOST": metadata.url.removeprefix("http://")}
    first, second = islice(reclaim_notices("gcp", environment, sleep), 2)
    assert 30.0 >= first > second > 0
    assert slept == [5.0, 15.0]
