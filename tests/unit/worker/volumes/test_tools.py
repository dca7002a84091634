"""Programs that mount buckets: which one is taken, and where secrets are."""

import json
import os
import shutil
from pathlib import Path

import pytest

from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes.tools import Rclone, S3fs, Unflushed, find_tool

KEYS = ("the-key", "the-secret", "the-token")
LOCATION = BucketLocation("bucket", "train/deep", "https://store.invalid", "eu", True, *KEYS)


@pytest.mark.parametrize(
    ("installed", "user", "reads", "writes"),
    [
        ({"s3fs", "rclone", "fusermount3"}, 0, "rclone", "s3fs"),
        ({"s3fs", "fusermount3"}, 1000, "s3fs", "s3fs"),
        ({"rclone", "fusermount"}, 1000, "rclone", "rclone"),
        ({"s3fs", "rclone"}, 0, "s3fs", "s3fs"),
        ({"s3fs", "rclone"}, 1000, None, None),
        ({"rclone"}, 0, None, None),
        (set(), 0, None, None),
    ],
)
def test_program_is_one_that_can_mount(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], user: int, reads: str | None, writes: str | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in installed else None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = [find_tool(read_only=read_only) for read_only in (True, False)]
    assert [each and each.name for each in found] == [reads, writes]


@pytest.mark.parametrize("tool", [S3fs("/usr/bin/s3fs"), Rclone("/usr/bin/rclone")])
@pytest.mark.parametrize("read_only", [True, False])
def test_secrets_are_in_the_environment_of_the_program_only(
    monkeypatch: pytest.MonkeyPatch, tool: S3fs | Rclone, read_only: bool
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/etc/bundle.crt")
    volume = NodeVolume("/data", "mount", read_only, LOCATION)
    words = " ".join(tool.command(volume, Path("/run/skyward/space/m1"), Path("/state")))
    assert not [secret for secret in KEYS if secret in words]
    environment = tool.environment(volume)
    assert environment["AWS_SECRET_ACCESS_KEY"] == "the-secret"
    assert not {environment.get("RCLONE_RC_PASS")} & {*words.split()}
    assert "AWS_CA_BUNDLE" not in environment, "rclone fails with it"
    assert ("ro" in words.split()) == read_only or "--read-only" in words


def test_address_for_control_is_in_the_log() -> None:
    tool = Rclone("/usr/bin/rclone")
    line = "2026/11/29 02:40:05 NOTICE: Serving remote control on http://127.0.0.1:43663/"
    assert tool.control_address(line) == "127.0.0.1:43663"
    assert not tool.control_address("2026/11/29 02:40:05 ERROR : a.txt: not found")


def test_files_in_the_cache_that_are_changed_are_named_below_the_mount(tmp_path: Path) -> None:
    known = tmp_path / "vfsMeta" / ":s3" / "bucket" / "train" / "deep" / "sub"
    known.mkdir(parents=True)
    for name, dirty in (("new.txt", True), ("old.txt", False)):
        (known / name).write_text(json.dumps({"Size": 7, "Dirty": dirty}))
    (known / "being-written").write_text("{")
    volume = NodeVolume("/data", "mount", False, LOCATION)
    assert Rclone("/usr/bin/rclone").unflushed(volume, tmp_path) == [Unflushed("sub/new.txt", 7)]
