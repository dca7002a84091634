"""Notices of clouds that they will take a spot machine back, from the machine's metadata service.

Sources: EC2's `spot/instance-action` (two minutes ahead), and Compute Engine's `instance/preempted` (30 s ahead). A
container of Fargate gets a SIGTERM two minutes ahead, whose time its first process writes to a file.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from threading import Thread
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from skyward.process.clock import clock

__all__ = ["STOP_NOTICE", "reclaim_notices", "seconds_left", "start_watching_notices"]

STOP_NOTICE: Final = "/run/skyward-stop-notice"
"""File with the time of a container's SIGTERM, in seconds since 1970."""

_EVERY: Final = 5.0
"""Seconds between questions, as EC2 recommends."""

_AGAIN_EVERY: Final = 15.0
"""Seconds after which a notice is repeated, for a client that has attached since."""

_WITHIN: Final = 2.0
_GCP_NOTICE: Final = 30.0
_CONTAINER_NOTICE: Final = 110.0
"""Seconds between SIGTERM and SIGKILL: 120 on Fargate, of which the first process may take some to write the time."""

_open = build_opener(ProxyHandler({})).open  # the metadata service is on the machine's own network


def start_watching_notices(service: str, emit: Callable[[float], None]) -> None:
    """Call `emit` with the seconds that are left once the machine will be taken back, and again from time to time."""

    def run() -> None:
        for left in reclaim_notices(service, dict(os.environ)):  # a copy: tasks may change it
            emit(left)

    Thread(target=run, name="skyward-notices", daemon=True).start()


def reclaim_notices(
    service: str, environment: Mapping[str, str], sleep: Callable[[float], None] = clock.sleep
) -> Iterator[float]:
    """Wait until the machine will be taken back; then yield the seconds that are left, again and again."""
    while (left := _asked(service, environment)) is None:
        sleep(_EVERY)
    until = clock.monotonic() + left
    while True:
        yield max(0.0, until - clock.monotonic())
        sleep(_AGAIN_EVERY)


def _asked(service: str, environment: Mapping[str, str]) -> float | None:
    try:
        return seconds_left(service, environment)
    except (OSError, ValueError, KeyError):  # no answer, or no sense in it: ask again
        return None


def seconds_left(service: str, environment: Mapping[str, str]) -> float | None:
    """Return the seconds until the machine is taken back; None while it is not.

    Args:
        service: the kind of metadata service, "ec2" or "gcp"; or "container".
        environment: variables, which may name another address of the service, as the vendors' clients read them.

    Raises:
        OSError: the service does not answer.
        ValueError, KeyError: its answer has another form.
    """
    if service == "container":
        return _left_in_container(environment.get("SKYWARD_STOP_NOTICE", STOP_NOTICE))
    if service == "gcp":
        host = environment.get("GCE_METADATA_HOST", "metadata.google.internal")
        url = f"http://{host}/computeMetadata/v1/instance/preempted"
        return _GCP_NOTICE if _get(url, {"Metadata-Flavor": "Google"}) == "TRUE" else None
    base = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    headers = {}
    if token := _token(base):
        headers["X-aws-ec2-metadata-token"] = token
    try:
        notice = json.loads(_get(f"{base}/latest/meta-data/spot/instance-action", headers))
    except HTTPError as error:
        with error:
            if error.code == 404:  # there is no notice
                return None
            raise
    at = datetime.fromisoformat(notice["time"])
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _left_in_container(file: str) -> float | None:
    try:
        with open(file) as notice:
            at = float(notice.read())
    except FileNotFoundError:
        return None
    return max(0.0, at + _CONTAINER_NOTICE - clock.time_ns() / 1e9)


def _token(base: str) -> str:
    """Return a token of IMDSv2; "" where the service has none."""
    request = Request(f"{base}/latest/api/token", method="PUT")  # a fixed scheme
    request.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
    try:
        with _open(request, timeout=_WITHIN) as answer:
            return str(answer.read().decode())
    except URLError:
        return ""


def _get(url: str, headers: Mapping[str, str]) -> str:
    with _open(Request(url, headers=dict(headers)), timeout=_WITHIN) as answer:  # a fixed scheme
        return str(answer.read().decode()).strip()
