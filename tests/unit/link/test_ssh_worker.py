"""Errors about workers on machines."""

import pytest

from skyward.link.ssh.worker import _not_up

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("loading\nwaiting", ":\nloading\nwaiting"),
        ("", ", and printed nothing"),
        (None, ", and the machine does not answer any more"),
    ],
)
def test_worker_that_does_not_come_up_is_reported_with_what_is_known_of_it(log: str | None, said: str) -> None:
    sentence = "the worker on root@10.0.0.7 did not come up within 60 s (`bootstrap_timeout`)"
    assert _not_up("root@10.0.0.7", 60.0, log) == f"{sentence}{said}"
