"""Decisions about a file, from its versions."""

import pytest

from skyward.files.plan import FileVersions, decide_fetch, decide_landing, decide_placement, decide_sync, version_names

pytestmark = pytest.mark.unit

A, B, C = b"A", b"B", b"C"


@pytest.mark.parametrize(
    ("here", "there", "base", "taken", "step"),
    [
        (A, None, None, (), "write"),
        (A, A, None, (), "keep"),
        (B, A, A, (), "write"),
        (B, A, None, (A,), "write"),
        (A, B, A, (), "replace"),
        (A, B, None, (), "replace"),
    ],
)
def test_sent_file_is_placed_without_loss(
    here: bytes, there: bytes | None, base: bytes | None, taken: tuple[bytes, ...], step: str
) -> None:
    assert decide_placement(here, there, base, taken) == step


@pytest.mark.parametrize(
    ("here", "there", "base", "taken", "is_gone", "step"),
    [
        (A, None, None, (), False, "write"),  # new here
        (None, A, None, (), False, "keep"),  # new there: it is fetched
        (A, A, B, (), False, "keep"),
        (B, A, A, (), False, "write"),  # changed here
        (A, B, A, (), False, "keep"),  # changed there
        (B, C, A, (), False, "set aside"),  # changed on both sides
        (B, C, None, (), False, "set aside"),  # new on both sides
        (B, C, A, (C,), False, "write"),  # the version there was fetched before
        (None, A, A, (), False, "remove"),  # deleted here
        (None, B, A, (), False, "keep"),  # deleted here, changed there
        (None, B, A, (B,), False, "remove"),
        (None, B, None, (B,), True, "remove"),
        (None, B, None, (B,), False, "keep"),  # it was fetched under another name, and never existed here under its own
        (A, None, A, (), False, "write"),  # a cleanup of the node must not delete anything here
    ],
)
def test_file_is_synced_before_the_cell_without_loss(
    here: bytes | None, there: bytes | None, base: bytes | None, taken: tuple[bytes, ...], is_gone: bool, step: str
) -> None:
    assert decide_sync(here, there, base, taken, is_gone=is_gone) == step


@pytest.mark.parametrize(
    ("here", "base", "taken", "is_written", "only_written", "way"),
    [
        (None, None, (), True, False, "replace"),
        (None, None, (), False, False, "replace"),  # written by an earlier cell
        (A, None, (), True, False, "stay"),  # it exists here
        (B, None, (), True, False, "replace"),  # as if the cell had run here
        (B, None, (), False, False, "add"),  # the later one is unknown
        (B, B, (), False, False, "replace"),  # sent, and changed there
        (B, None, (A,), False, False, "stay"),  # it was fetched before
        (None, None, (), False, True, "stay"),
    ],
)
def test_file_is_fetched_after_the_cell_only_if_needed(
    here: bytes | None, base: bytes | None, taken: tuple[bytes, ...], is_written: bool, only_written: bool, way: str
) -> None:
    assert decide_fetch(here, A, base, taken, is_written=is_written, only_written=only_written) == way


@pytest.mark.parametrize(
    ("now", "then", "may_replace", "landing"),
    [
        (None, None, True, "write"),
        (None, B, True, "write"),
        (A, B, True, "same"),
        (B, B, True, "write"),
        (B, B, False, "set aside"),
        (C, B, True, "set aside"),
        (C, None, True, "set aside"),
    ],
)
def test_fetched_file_never_overwrites_a_local_change(
    now: bytes | None, then: bytes | None, may_replace: bool, landing: str
) -> None:
    assert decide_landing(now, then, A, may_replace=may_replace) == landing


def found(run: int, version: bytes, node: int = 0, began: float = 0, ended: float = 1, **more: bool) -> FileVersions:
    return FileVersions(run, node, began, ended, version, **more)


def test_single_version_keeps_its_name() -> None:
    assert version_names("out/a", [found(0, A)], ["node0"]) == {0: "out/a"}
    assert version_names("out/a", [found(0, A, 0), found(1, A, 1)], ["node0", "node1"]) == {0: "out/a"}


def test_several_versions_are_named_by_node_or_element() -> None:
    both = [found(0, A, 0), found(1, B, 1)]
    assert version_names("out/a.txt", both, ["node0", "node1"]) == {0: "out/a.node0.txt", 1: "out/a.node1.txt"}
    turns = [found(0, A, 0, 0, 1), found(1, B, 0, 1, 2), found(2, C, 0, 2, 3)]
    assert version_names("a.png", turns, ["0", "1", "2"]) == {0: "a.0.png", 1: "a.1.png", 2: "a.2.png"}


def test_version_seen_during_a_concurrent_write_is_ignored() -> None:
    half, whole = found(1, A, 0, 0, 1), found(0, B, 0, 0, 2)
    assert version_names("a.png", [half, whole], ["0", "1"]) == {0: "a.png"}
    assert len(version_names("a.png", [half, found(0, B, 1, 0, 2)], ["0", "1"])) == 2  # not on another node


def test_unwritten_version_is_ignored_beside_a_written_one() -> None:
    both = [found(0, A, 0, is_written=False), found(1, B, 1)]
    assert version_names("a", both, ["node0", "node1"]) == {1: "a"}


def test_synced_folder_keeps_last_version_of_each_node() -> None:
    turns = [found(0, A, 0, 0, 1, is_synced=True), found(1, B, 0, 1, 2, is_synced=True)]
    assert version_names("a", turns, ["0", "1"]) == {1: "a"}
    elsewhere = found(2, C, 1, 0, 1, is_synced=True)
    assert version_names("a", [*turns, elsewhere], ["0", "1", "2"]) == {1: "a.node0", 2: "a.node1"}
