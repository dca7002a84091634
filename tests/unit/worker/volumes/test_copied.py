"""Copies whose objects change while they are fetched."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from skyward.errors import StorageError
from skyward.storage.listing import ObjectEntry
from skyward.storage.location import BucketLocation
from skyward.wire.protocol.volumes import NodeVolume
from skyward.worker.volumes import copied
from skyward.worker.volumes import volume as volume_module
from skyward.worker.volumes.copied import CopiedVolume
from skyward.worker.volumes.peers import SharedFiles
from skyward.worker.volumes.trees import contents_of

BEFORE = [ObjectEntry("busy", 1, '"1"'), ObjectEntry("rest", 4, '"2"'), ObjectEntry("sub/gone", 1, '"3"')]
AFTER = [ObjectEntry("busy", 2, '"4"'), BEFORE[1]]


def test_object_that_is_changed_while_it_is_fetched_is_fetched_anew_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = [BEFORE, AFTER]
    fetched: list[str] = []

    class Source:
        def fetch(
            self, entries: Sequence[ObjectEntry], folder: Path, arrived: Callable[[int, bool], None], contents: str = ""
        ) -> None:
            for entry in reversed(entries):
                if listings and entry.key != "rest":
                    continue
                fetched.append(entry.key)
                (folder / entry.key).write_bytes(b"x" * entry.size)
            if listings:
                raise StorageError("changed: start again.", code="PreconditionFailed", names=("busy", "sub/gone"))

    def list_objects(*_: Any, **__: Any) -> list[ObjectEntry]:
        return listings.pop(0)

    def find(_: BucketLocation, key: str) -> ObjectEntry | None:
        return {each.key: each for each in AFTER}.get(key)

    for module in (copied, volume_module):
        monkeypatch.setattr(module, "list_objects", list_objects)
    monkeypatch.setattr(volume_module, "find", find)
    location = BucketLocation("bucket", "", "https://store.invalid")
    shared = SharedFiles()
    made = CopiedVolume(
        NodeVolume("/data", "copy", True, location), tmp_path, Source(), lambda each: each, lambda: None, shared, print
    )
    tree = made.attach()
    assert fetched == ["rest", "busy"]
    assert sorted(each.name for each in tree.iterdir()) == ["busy", "rest"]
    assert (tree / "busy").read_bytes() == b"xx"
    assert made.contents == contents_of(AFTER)
    assert made._trees.damaged(made.contents, AFTER) == []
