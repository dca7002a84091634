"""Requests to close a pool, and what a process that leaves one records for the next."""

import os
from pathlib import Path

import pytest

from skyward.journal import Claim
from skyward.journal.requests import heed_request, is_heeded, is_requested, request_to_close, withdraw_request

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def test_request_is_seen_until_it_is_withdrawn() -> None:
    assert not is_requested("pool-1")
    request_to_close("pool-1")
    assert is_requested("pool-1")
    assert not is_requested("pool-2")
    withdraw_request("pool-1")
    withdraw_request("pool-1")
    assert not is_requested("pool-1")


def test_owner_heeds_a_request() -> None:
    request_to_close("pool-1")
    assert not is_heeded("pool-1")
    heed_request("pool-1")
    assert is_heeded("pool-1")
    assert is_requested("pool-1")
    withdraw_request("pool-1")
    assert is_heeded("pool-1"), "it has closed the pool"


def test_request_is_private_to_the_user(data: Path) -> None:
    request_to_close("pool-1")
    assert (data / "requests").stat().st_mode & 0o077 == 0


def test_request_is_none_where_there_is_no_directory(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.parent.joinpath("file").touch()
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(data.parent / "file"))
    assert not is_requested("pool-1")
    withdraw_request("pool-1")


def test_claim_records_whether_its_pool_was_left_idle() -> None:
    claim = Claim.new("pool-1")
    claim.unsent = 7
    assert not claim.left_idle
    claim.left_idle = True
    key = claim.secrets_key
    claim.release()
    taken = Claim.take("pool-1")
    assert taken is not None
    assert (taken.left_idle, taken.unsent, taken.secrets_key) == (True, 7, key)
    taken.left_idle = False
    assert not taken.left_idle
    taken.end()


def test_key_for_the_records_of_another_process_is_read_without_its_lock() -> None:
    """A process that closes a descriptor of a file loses all its locks on it, so its own file is left alone."""
    claim = Claim.new("pool-1")
    assert Claim.read_secrets_key("pool-1") is None
    child = os.fork()
    if not child:
        os._exit(0 if Claim.take("pool-1") is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    key = claim.secrets_key
    claim.release()
    assert Claim.read_secrets_key("pool-1") == key
    assert Claim.read_secrets_key("pool-2") is None
