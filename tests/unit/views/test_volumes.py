"""Volumes of a pool as rows, as text and as HTML."""

import re
from typing import Any, get_args

import pytest

from skyward.control.observe.snapshot import PoolReport
from skyward.events.volumes import VolumeState, VolumeStatus
from skyward.views import static
from skyward.views.projection import project, volume_rows
from skyward.views.rows import VolumeRow
from skyward.views.status import VOLUME_STATUSES
from skyward.views.volumes import volume_table
from skyward_kernel.panel.encoding import changes, encode
from tests.unit.kernel.conftest import node, snapshot

pytestmark = pytest.mark.unit

MIB = 1 << 20
GIB = 1 << 30


def volume(mount: str = "/data", status: VolumeStatus = "ready", **other: Any) -> VolumeState:
    """Return a copy of a prefix."""
    fields: dict[str, Any] = {"source": f"s3://lab{mount}", "mode": "copy", "read_only": True, "path": mount}
    return VolumeState(mount=mount, status=status, **{**fields, **other})


def written(mount: str = "/results", status: VolumeStatus = "ready", **other: Any) -> VolumeState:
    """Return a volume that tasks write to."""
    return volume(mount, status, **{"mode": "sync", "read_only": False, **other})


def lines(*volumes: tuple[VolumeState, ...]) -> list[list[str]]:
    """Return the cells of the table of a pool whose nodes have these volumes."""
    text = volume_table(snapshot(nodes=tuple(node(rank, volumes=each) for rank, each in enumerate(volumes))))
    return [re.split(r" {2,}", line) for line in text.splitlines()]


def test_volume_of_each_node_is_a_row() -> None:
    state = project(PoolReport(snapshot(nodes=(node(0, volumes=(volume(), written())), node(1, volumes=(volume(),))))))
    assert set(state["volumes"]) == {"p/1/data", "p/1/results", "p/2/data"}
    row = state["volumes"]["p/2/data"]
    assert isinstance(row, VolumeRow)
    assert (row.pool, row.machine, row.rank, row.source, row.read_only) == ("p", 2, 1, "s3://lab/data", True)
    assert encode(row)["status"] == "ready"


def test_row_is_sent_when_it_changes_and_gone_with_its_node() -> None:
    before = project(PoolReport(snapshot(nodes=(node(0, volumes=(written(),)), node(1, volumes=(written(),))))))
    after = project(PoolReport(snapshot(nodes=(node(0, volumes=(written(unflushed=1, unflushed_bytes=9),)),))), before)
    rows, gone = changes({"p": before}, {"p": after})
    assert set(rows["volumes"]) == {"p/1/results"}
    assert gone["volumes"] == ("p/2/results",)


def test_pool_without_volumes_has_no_rows_and_no_table() -> None:
    assert project(PoolReport(snapshot()))["volumes"] == {}
    assert volume_table(snapshot()) == ""
    assert "volume" not in static.describe(PoolReport(snapshot()))
    assert "volume" not in static.page(PoolReport(snapshot()))


def test_every_status_has_a_label() -> None:
    assert set(VOLUME_STATUSES) == set(get_args(VolumeStatus.__value__))
    assert len({label.word for label in VOLUME_STATUSES.values()}) == len(VOLUME_STATUSES)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (written(mode="mount", unflushed=2), "flushing"),
        (written(mode="mount"), "ready"),
        (written(mode="mount", status="restarting", unflushed=2), "restarting"),
    ],
)
def test_ready_mount_with_files_that_wait_has_unsaved_files(state: VolumeState, status: VolumeStatus) -> None:
    assert [row.status for row in volume_rows(snapshot(nodes=(node(0, volumes=(state,)),)))] == [status]


def test_nodes_that_are_alike_have_one_line() -> None:
    assert lines(*[(volume(), written())] * 4) == [
        ["volume", "source", "mode", "state", "nodes"],
        ["/data", "s3://lab/data", "copy, read-only", "ready", "0-3"],
        ["/results", "s3://lab/results", "sync", "ready", "0-3"],
    ]


def test_states_of_a_volume_have_a_line_each_the_most_urgent_first() -> None:
    ready = volume(nbytes=GIB, total=GIB, from_peers=GIB // 2)
    attaching = volume(status="attaching", nbytes=GIB // 2, total=GIB)
    failed = volume(status="failed", detail="OSError: no space")
    header, *rest = lines((ready,), (attaching,), (failed,), (ready,))
    assert header == ["volume", "source", "mode", "state", "nodes", "fetched", "reason"]
    assert [line[3:] for line in rest] == [
        ["failed", "2", "OSError: no space"],
        ["attaching", "1", "512.0 MiB of 1.0 GiB"],
        ["ready", "0, 3", "2.0 GiB, 1.0 GiB from other nodes"],
    ]


def test_files_that_wait_are_counted_over_nodes() -> None:
    waits = written(mode="mount", tool="s3fs", unflushed=2, unflushed_bytes=3 * MIB)
    (_, line, _) = lines((waits,), (waits,), (written(mode="mount", tool="s3fs"),))
    assert line[2:] == ["mount with s3fs", "unsaved", "0-1", "4 files, 6.0 MiB"]


def test_scattered_nodes_are_counted() -> None:
    found = lines(*[(written(unflushed=rank % 2),) for rank in range(100)])
    assert [line[4] for line in found[1:]] == ["1, 3, 5, 7, 9, 11, 44 more", "0, 2, 4, 6, 8, 10, 44 more"]


def test_static_views_have_the_volumes() -> None:
    bad = written(status="restarting", detail="<b>s3fs</b> ended", unflushed=1, unflushed_bytes=5)
    report = PoolReport(snapshot(nodes=(node(0, volumes=(bad,)),)))
    for expected in ("/results", "s3://lab/results", "restarting", "1 file, 5 B"):
        assert expected in static.describe(report)
        assert expected in static.page(report)
    assert "<b>s3fs" not in static.page(report)
