"""Files that are sent with a cell and fetched after it."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from skyward.errors import PayloadError
from skyward.files.disk import write
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.returned_state import ReturnedState
from skyward_jupyter.options.cell_options import parse_cell
from tests.unit.files.folders import Sides, contents

pytestmark = pytest.mark.unit


def writes(sides: Sides, *files: tuple[str, str], node: int = 0) -> Callable[[], None]:
    """Return the work of a cell that writes files in its folder."""

    def work() -> None:
        for path, text in files:
            sides.write(path, text, sides.there(node))

    return work


def fails_for(path: str) -> Callable[..., None]:
    """Return a `write` that has no room for one of the files."""

    def attempt(target: str, *rest: object, **more: object) -> None:
        if target.endswith(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, *rest, **more)  # type: ignore[arg-type]  # passes its own arguments on

    return attempt


# --file


def test_sent_file_is_in_the_folder_of_the_cell(sides: Sides) -> None:
    sides.write("data.csv", "1")
    sides.write("more/b.csv", "2")
    seen: dict[str, str] = {}
    notices = sides.cell(lambda: seen.update(contents(Path.cwd())), files=("data.csv", "more/*.csv"))
    assert seen == {"data.csv": "1", "more/b.csv": "2"}
    assert notices == []


def test_sent_file_keeps_mode_and_modification_time(sides: Sides) -> None:
    sides.write("tool.sh", "echo 1")
    (sides.here / "tool.sh").chmod(0o755)
    os.utime(sides.here / "tool.sh", ns=(10**18, 10**18))
    sides.cell(files=("tool.sh",))
    there = (sides.there() / "tool.sh").stat()
    assert there.st_mtime_ns == 10**18
    assert there.st_mode & 0o111 == 0o111
    (sides.here / "tool.sh").chmod(0o644)
    sides.cell(files=("tool.sh",))
    assert (sides.there() / "tool.sh").stat().st_mode & 0o111 == 0


def test_empty_and_multi_chunk_files_are_sent(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.files.disk.CHUNK", 400_000)
    large = os.urandom(1_000_001)
    sides.write("empty", "")
    (sides.here / "large").write_bytes(large)
    (sides.here / "last").write_bytes(b"x")
    sides.cell(files=("empty", "large", "last"))
    assert [(sides.there() / name).read_bytes() for name in ("empty", "large", "last")] == [b"", large, b"x"]


def test_changed_file_is_sent_again(sides: Sides) -> None:
    sides.write("a", "1")
    sides.cell(files=("a",))
    sides.write("a", "2")
    assert sides.cell(files=("a",)) == []
    assert contents(sides.there()) == {"a": "2"}


def test_write_to_sent_file_changes_neither_original_nor_blob(sides: Sides) -> None:
    sides.write("a", "1")
    sides.cell(writes(sides, ("a", "2")), files=("a",))
    assert contents(sides.here) == {"a": "1"}
    notices = sides.cell(files=("a",))
    assert contents(sides.there()) == {"a": "1"}
    assert notices == [
        "a on node 0 had been changed there before, and was overwritten with the version from here. "
        "To keep such changes, fetch them with --fetch a, or use --sync."
    ]


def test_change_of_same_size_and_time_is_detected(sides: Sides) -> None:
    sides.write("a", "1")
    sides.cell(writes(sides, ("a", "2")), files=("a",))
    sides.cell(files=("a",))
    assert contents(sides.there()) == {"a": "1"}


def test_runs_of_one_cell_on_a_node_share_the_file(sides: Sides) -> None:
    sides.write("a", "1")
    request = sides.transfer("map", files=("a",)).request(shared=False)
    sides.run(request, writes(sides, ("a", "2")), run="one cell")
    sides.run(request, run="one cell")
    assert contents(sides.there()) == {"a": "2"}


def test_folder_in_place_of_file_is_reported_with_node(sides: Sides) -> None:
    sides.write("a", "1")
    sides.write("a/b", "2", sides.there())
    with pytest.raises(PayloadError, match="^a cannot be put in place on node 0: it is not a file there.$"):
        sides.cell(files=("a",))


def test_each_notebook_folder_has_its_own_folder_on_the_node(sides: Sides, tmp_path: Path) -> None:
    sides.write("a", "1")
    sides.cell(sync=(".",))
    other = Sides(tmp_path, "other", fetched=sides.fetched)
    seen: list[str] = []
    other.cell(lambda: seen.append(os.getcwd()), sync=(".",))
    assert contents(other.here) == {}
    assert seen == [str(sides.there().parent / "work-2")]
    assert contents(sides.there()) == {"a": "1"}


def test_sent_file_is_replaced_by_folder_of_same_name_and_vice_versa(sides: Sides) -> None:
    sides.write("a", "1")
    sides.cell(files=("a",))
    (sides.here / "a").unlink()
    sides.write("a/b", "2")
    sides.cell(files=("a/b",))
    assert contents(sides.there()) == {"a/b": "2"}
    shutil.rmtree(sides.here / "a")
    sides.write("a", "1")
    sides.cell(files=("a",))
    assert contents(sides.there()) == {"a": "1"}


def test_file_of_cell_in_place_of_folder_is_reported(sides: Sides) -> None:
    sides.write("a/b", "2")
    sides.write("a", "of a cell", sides.there())
    with pytest.raises(PayloadError, match="^a/b cannot be put in place on node 0: a is not a folder there.$"):
        sides.cell(files=("a/b",))


def test_run_with_failed_placement_does_not_count_as_first(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.write("a", "1")
    sides.write("b", "2")
    request = sides.transfer("map", files=("a", "b")).request(shared=False)
    with monkeypatch.context() as patched:
        patched.setattr("skyward.worker.cells.file_placement.write", fails_for("b"))
        assert sides.attempt(request, run="one cell")[1] is not None
    sides.run(request, run="one cell")
    assert contents(sides.there()) == {"a": "1", "b": "2"}


# --fetch


def test_files_written_by_the_cell_are_fetched(sides: Sides) -> None:
    work = writes(sides, ("out/a.png", "1"), ("out/b.png", "22"), ("out/c.txt", "3"))
    notices = sides.cell(work, fetch=("out/*.png",))
    assert contents(sides.here) == {"out/a.png": "1", "out/b.png": "22"}
    assert notices == [
        "Fetched out/a.png and out/b.png (3 B).",
        "Left on node 0, and lost when the pool closes: out/c.txt. Fetch such files with --fetch.",
    ]


def test_existing_folder_is_created_for_output_of_the_cell(sides: Sides) -> None:
    (sides.here / "out").mkdir()
    sides.cell(lambda: Path("out/a.png").write_text("1"), fetch=("out/*.png",))
    assert contents(sides.here) == {"out/a.png": "1"}


def test_unmatched_pattern_is_reported(sides: Sides) -> None:
    assert sides.cell(fetch=("out/*.png",)) == ["--fetch out/*.png: there is no such file on node 0."]


def test_file_left_open_is_fetched_as_far_as_written(sides: Sides) -> None:
    transfer = sides.transfer(fetch=("a",))
    namespace: dict[str, object] = {}

    def work() -> None:
        file = namespace["file"] = open("a", "w")  # noqa: SIM115  # a file that is left open is the point
        file.write("not flushed")

    result = sides.run(transfer.request(shared=False), work, namespace=namespace)
    transfer.write_results([result])
    assert contents(sides.here) == {"a": "not flushed"}
    namespace["file"].close()  # type: ignore[attr-defined]  # it is a file


def test_later_cell_fetches_earlier_output_once(sides: Sides) -> None:
    sides.cell(writes(sides, ("a", "1")))
    assert sides.cell(fetch=("a",)) == ["Fetched a (1 B)."]
    assert sides.cell(fetch=("a",)) == []
    sides.write("a", "mine")
    assert sides.cell(fetch=("a",)) == []  # the node has nothing new
    assert contents(sides.here) == {"a": "mine"}


def test_file_written_by_the_cell_replaces_local_one(sides: Sides) -> None:
    sides.write("a", "old")
    assert sides.cell(writes(sides, ("a", "new")), fetch=("a",)) == ["Fetched a (3 B). Replaced here: a."]
    assert contents(sides.here) == {"a": "new"}


def test_file_of_earlier_cell_does_not_replace_different_local_one(sides: Sides) -> None:
    sides.cell(writes(sides, ("a.txt", "theirs")))
    sides.write("a.txt", "mine")
    notices = sides.cell(fetch=("a.txt",))
    assert contents(sides.here) == {"a.txt": "mine", "a.node0.txt": "theirs"}
    assert notices[0] == "a.txt here differs from what was written before: the version of node 0 is in a.node0.txt."


def test_sent_file_changed_on_node_replaces_local_one(sides: Sides) -> None:
    sides.write("a", "1")
    sides.cell(writes(sides, ("a", "2")), files=("a",))
    sides.cell(fetch=("a",))
    assert contents(sides.here) == {"a": "2"}


def test_file_changed_locally_during_the_cell_is_kept(sides: Sides) -> None:
    sides.write("a.txt", "1")

    def work() -> None:
        sides.write("a.txt", "there", sides.there())
        sides.write("a.txt", "here")

    notices = sides.cell(work, fetch=("a.txt",))
    assert contents(sides.here) == {"a.txt": "here", "a.node0.txt": "there"}
    assert notices[0] == "a.txt was changed here meanwhile: the version of node 0 is in a.node0.txt."


def test_files_of_same_name_from_several_nodes_get_ranks_in_names(sides: Sides) -> None:
    transfer = sides.transfer("all", fetch=("*.txt",))
    request = transfer.request(shared=False)
    transfer.write_results(
        [
            sides.run(request, writes(sides, ("log.txt", f"of {node}"), ("same.txt", "1"), node=node), node, "cell")
            for node in (0, 1)
        ]
    )
    assert contents(sides.here) == {"log.node0.txt": "of 0", "log.node1.txt": "of 1", "same.txt": "1"}


def test_files_of_same_name_from_several_elements_get_indices_in_names(sides: Sides) -> None:
    transfer = sides.transfer("map", fetch=("*.png",))
    request = transfer.request(shared=False)
    works = [writes(sides, ("plot.png", f"of {run}"), (f"{run}.png", "own")) for run in range(3)]
    lost = CellResult(ReturnedState(), None, 0)  # a run that was killed
    transfer.write_results([lost, *(sides.run(request, work, run="cell") for work in works)])
    assert contents(sides.here) == {
        **{f"plot.{run + 1}.png": f"of {run}" for run in range(3)},
        **{f"{run}.png": "own" for run in range(3)},
    }


def test_map_fetches_a_file_only_from_the_run_that_wrote_it(sides: Sides) -> None:
    request = sides.transfer("map", fetch=("*.png",)).request(shared=False)
    results = [sides.run(request, writes(sides, (f"{run}.png", "own")), run="cell") for run in range(3)]
    assert [[each.span.path for each in result.files.files] for result in results if result.files] == [
        ["0.png"],
        ["1.png"],
        ["2.png"],
    ]


def test_file_over_the_limit_stays_and_is_reported(sides: Sides) -> None:
    notices = sides.cell(writes(sides, ("a", "1" * 10), ("b", "2" * 1000)), fetch=("*",), limit=100)
    assert contents(sides.here) == {"a": "1" * 10}
    assert notices[0] == (
        "b (1000 B) stayed on node 0: the returned files would be over the limit of 100 B. "
        "Raise it with --file-limit, and fetch it with --fetch b."
    )


@pytest.mark.parametrize("name", ["-dash.txt", "a b.txt", "it's.txt", "~me", "a,b.txt", "a #1", "a[1]*.txt", " x "])
def test_suggested_option_fetches_file_of_any_name(sides: Sides, name: str) -> None:
    sides.cell(writes(sides, (name, "1" * 1000)))
    notices = sides.cell(fetch=("*",), limit=100)
    line = notices[0].partition("fetch it with ")[2].removesuffix(".")
    sides.cell(fetch=parse_cell(line).fetch)
    assert contents(sides.here) == {name: "1" * 1000}


def test_files_beyond_free_memory_stay_and_others_are_fetched(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.worker.cells.files.free_memory", lambda: 200)
    notices = sides.cell(writes(sides, ("a", "1" * 10), ("b", "2" * 1000)), fetch=("*",))
    assert contents(sides.here) == {"a": "1" * 10}
    assert "b (1000 B) stayed on node 0: the returned files would be more than half of the" in notices[0]


def test_failed_write_of_the_record_loses_nothing(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sides.write("a", "1")
    sides.cell(sync=(".",))
    monkeypatch.setattr("skyward.worker.cells.file_record._save", full)
    sides.cell(writes(sides, ("a", "2")), sync=(".",))
    assert contents(sides.here) == {"a": "2"}


def test_unwritable_file_is_reported_and_others_are_fetched(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.files.transfer.writer.write", fails_for("out/a"))
    notices = sides.cell(writes(sides, ("out/a", "1"), ("b", "2")), fetch=("**",))
    assert contents(sides.here) == {"b": "2"}
    assert notices[0] == "out/a of node 0 could not be written here: No space left on device."


def test_files_of_folder_that_is_a_local_file_get_another_folder(sides: Sides) -> None:
    sides.write("out", "mine")
    notices = sides.cell(writes(sides, ("out/a", "1"), ("out/b", "2")), fetch=("out",))
    assert contents(sides.here) == {"out": "mine", "out.node0/a": "1", "out.node0/b": "2"}
    assert notices[:2] == [
        f"out is a file here, and a folder on node 0: out/{name} was written as out.node0/{name}." for name in "ab"
    ]


def test_fetched_file_that_is_a_local_folder_gets_another_name(sides: Sides) -> None:
    sides.cell(writes(sides, ("out", "1")))
    sides.write("out/a", "mine")
    notices = sides.cell(fetch=("out",))
    assert contents(sides.here) == {"out/a": "mine", "out.node0": "1"}
    assert notices[0] == "out is not a regular file here: the version of node 0 is in out.node0."


def all_nodes(sides: Sides, texts: tuple[str, str], path: str, **asked: object) -> list[str]:
    """Run a cell on two nodes that each write a file. Return the notices that were shown to the user."""
    del sides.notices[:]
    transfer = sides.transfer("all", **asked)  # type: ignore[arg-type]  # as the test gives them
    request = transfer.request(shared=False)
    run = str(sides.cells)
    results = [sides.run(request, writes(sides, (path, text), node=node), node, run) for node, text in enumerate(texts)]
    transfer.write_results(results)
    return sides.notices


def test_rerun_of_cell_replaces_its_earlier_copies(sides: Sides) -> None:
    all_nodes(sides, ("1", "2"), "log.txt", fetch=("log.txt",))
    notices = all_nodes(sides, ("3", "4"), "log.txt", fetch=("log.txt",))
    assert contents(sides.here) == {"log.node0.txt": "3", "log.node1.txt": "4"}
    assert notices == ["Fetched log.node0.txt and log.node1.txt (2 B). Replaced here: log.node0.txt and log.node1.txt."]


def test_locally_changed_copy_is_not_replaced(sides: Sides) -> None:
    all_nodes(sides, ("1", "2"), "log.txt", fetch=("*.txt",))
    sides.write("log.node0.txt", "mine")
    notices = all_nodes(sides, ("3", "4"), "log.txt", fetch=("*.txt",))
    assert contents(sides.here) == {"log.node0.txt": "mine", "log.node0-2.txt": "3", "log.node1.txt": "4"}
    assert notices[0] == "log.node0.txt already exists here: the version of node 0 is in log.node0-2.txt."


def test_existing_file_with_name_of_copy_is_not_replaced(sides: Sides) -> None:
    sides.write("log.node0.txt", "a conflict of an earlier cell")
    all_nodes(sides, ("1", "2"), "log.txt", fetch=("*.txt",))
    assert contents(sides.here) == {
        "log.node0.txt": "a conflict of an earlier cell",
        "log.node0-2.txt": "1",
        "log.node1.txt": "2",
    }


def test_copies_in_folder_that_is_a_local_file_get_another_folder(sides: Sides) -> None:
    sides.write("out", "mine")
    notices = all_nodes(sides, ("1", "2"), "out/a", fetch=("out/*",))
    assert contents(sides.here) == {"out": "mine", "out.node0/a": "1", "out.node1/a": "2"}
    assert notices[0] == "out is a file here: the version of node 0 is in out.node0/a."


@pytest.mark.parametrize("earlier", ["a conflict of an earlier cell", "1"])
def test_copies_in_a_synced_folder_take_free_names(sides: Sides, earlier: str) -> None:
    sides.write("d/a.txt", "0")
    sides.write("d/a.node0.txt", earlier)
    notices = all_nodes(sides, ("1", "2"), "d/a.txt", sync=("d",))
    here = contents(sides.here)
    assert here.pop("d/a.node0.txt") == earlier
    assert here.pop("d/a.node0-2.txt", earlier) == "1"
    assert here == {"d/a.txt": "0", "d/a.node1.txt": "2"}
    if earlier != "1":
        assert notices[0] == "d/a.node0.txt already exists here: the version of node 0 is in d/a.node0-2.txt."


# --sync


def test_new_changed_and_deleted_files_reach_both_sides(sides: Sides) -> None:
    for path in ("data/a", "data/b", "data/c"):
        sides.write(path, "1")

    def work() -> None:
        sides.write("data/a", "changed", sides.there())
        sides.write("data/d/e", "new", sides.there())
        (sides.there() / "data/b").unlink()

    notices = sides.cell(work, sync=("data",))
    expected = {"data/a": "changed", "data/c": "1", "data/d/e": "new"}
    assert contents(sides.here) == contents(sides.there()) == expected
    assert notices == [
        "Deleted here, as on the node: data/b.",
        "Fetched data/a and data/d/e (10 B). Replaced here: data/a.",
    ]
    (sides.here / "data/c").unlink()
    assert sides.cell(sync=("data",)) == []
    assert contents(sides.there()) == {"data/a": "changed", "data/d/e": "new"}


def test_empty_folders_are_created_on_the_node(sides: Sides) -> None:
    (sides.here / "out/deep").mkdir(parents=True)
    sides.cell(lambda: Path("out/deep/a").write_text("1"), sync=(".",))
    assert contents(sides.here) == {"out/deep/a": "1"}


def test_empty_folders_made_or_removed_by_the_cell_are_synced(sides: Sides) -> None:
    (sides.here / "d/old/inner").mkdir(parents=True)
    sides.write("d/full/a", "1")

    def work() -> None:
        os.makedirs("d/new/inner")
        os.makedirs("d/.git/left out")
        os.removedirs("d/old/inner")
        shutil.rmtree("d/full")

    notices = sides.cell(work, sync=("d",))
    folders = {str(path.relative_to(sides.here)) for path in sides.here.rglob("*")}
    assert folders == {"d", "d/new", "d/new/inner"}
    assert notices == [
        "Deleted here, as on the node: d/full/a and d/old/inner/.",
        "Created here, as on the node: d/new/ and d/new/inner/.",
    ]


def test_folder_removed_by_the_cell_stays_if_it_has_local_files(sides: Sides) -> None:
    sides.write("d/e/a.pyc", "left out")
    sides.write("d/e/a", "1")
    assert sides.cell(lambda: shutil.rmtree("d/e"), sync=("d",)) == ["Deleted here, as on the node: d/e/a."]
    assert contents(sides.here) == {"d/e/a.pyc": "left out"}


def test_failed_placement_returns_no_files(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("e/a", "e/deleted", "e/edited"):
        sides.write(path, "old")
    sides.cell(sync=("e",))
    (sides.here / "e/deleted").unlink()
    sides.write("e/edited", "an hour of work")
    sides.write("e/b", "new")
    with monkeypatch.context() as patched:
        patched.setattr("skyward.worker.cells.file_placement.write", fails_for("e/b"))
        transfer = sides.transfer(sync=("e",))
        result, error = sides.attempt(transfer.request(shared=False))
    assert str(error) == "e/b cannot be put in place on node 0: No space left on device."
    del sides.notices[:]
    transfer.write_results([result])
    assert sides.notices == []
    assert contents(sides.here) == {"e/a": "old", "e/edited": "an hour of work", "e/b": "new"}
    assert sides.cell(sync=("e",)) == []  # files put in place are recorded
    assert (
        contents(sides.here) == contents(sides.there()) == {"e/a": "old", "e/edited": "an hour of work", "e/b": "new"}
    )


def test_file_turned_into_folder_locally_is_synced(sides: Sides) -> None:
    for path in ("e/f", "e/deleted", "e/edited"):
        sides.write(path, "old")
    sides.cell(sync=("e",))
    (sides.here / "e/f").unlink()
    (sides.here / "e/deleted").unlink()
    sides.write("e/f/x", "folder")
    sides.write("e/edited", "an hour of work")
    expected = {"e/f/x": "folder", "e/edited": "an hour of work"}
    assert sides.cell(sync=("e",)) == []
    assert contents(sides.here) == contents(sides.there()) == expected


def test_folder_turned_into_file_locally_is_synced(sides: Sides) -> None:
    sides.write("e/f/x/y", "1")
    (sides.here / "e/f/empty").mkdir()
    sides.cell(sync=("e",))
    shutil.rmtree(sides.here / "e/f")
    sides.write("e/f", "file")
    assert sides.cell(sync=("e",)) == []
    assert contents(sides.here) == contents(sides.there()) == {"e/f": "file"}


def test_file_changed_on_node_is_kept_if_it_is_a_folder_locally(sides: Sides) -> None:
    sides.write("e/f", "1")
    sides.cell(sync=("e",))
    sides.write("e/f", "changed", sides.there())
    (sides.here / "e/f").unlink()
    sides.write("e/f/x", "folder")
    assert sides.cell(sync=("e",)) == [
        "e/f is a folder here and a file on node 0; the file was renamed to e/f.node0.",
        "Fetched e/f.node0 (7 B).",
    ]
    assert contents(sides.here) == contents(sides.there()) == {"e/f/x": "folder", "e/f.node0": "changed"}


def test_folder_changed_on_node_is_kept_if_it_is_a_file_locally(sides: Sides) -> None:
    sides.write("e/f/x", "1")
    sides.cell(sync=("e",))
    sides.write("e/f/y", "new", sides.there())
    (sides.here / "e/f/x").unlink()
    (sides.here / "e/f").rmdir()
    sides.write("e/f", "file")
    assert sides.cell(sync=("e",)) == [
        "e/f is a file here and a folder on node 0; the folder was renamed to e/f.node0.",
        "Fetched e/f.node0/y (3 B).",
    ]
    assert contents(sides.here) == contents(sides.there()) == {"e/f": "file", "e/f.node0/y": "new"}


def test_cell_turns_files_into_folders_and_vice_versa(sides: Sides) -> None:
    sides.write("h/f", "file")
    sides.write("h/g/x/y", "folder")

    def work() -> None:
        os.unlink("h/f")
        shutil.rmtree("h/g")
        writes(sides, ("h/f/result", "new"), ("h/g", "now a file"))()

    notices = sides.cell(work, sync=("h",))
    assert contents(sides.here) == contents(sides.there()) == {"h/f/result": "new", "h/g": "now a file"}
    assert notices == ["Deleted here, as on the node: h/f and h/g/x/y.", "Fetched h/f/result and h/g (13 B)."]
    assert sides.cell(sync=("h",)) == []


def test_locally_changed_file_stays_if_cell_turned_it_into_a_folder(sides: Sides) -> None:
    sides.write("h/f", "file")

    def work() -> None:
        os.unlink("h/f")
        sides.write("h/f/result", "new", sides.there())
        sides.write("h/f", "changed")

    sides.cell(work, sync=("h",))
    assert contents(sides.here) == {"h/f": "changed", "h/f.node0/result": "new"}
    assert sides.cell(sync=("h",)) == []
    assert contents(sides.here) == contents(sides.there()) == {"h/f": "changed", "h/f.node0/result": "new"}


def test_name_of_file_set_aside_is_free_on_both_sides(sides: Sides) -> None:
    sides.write("a.csv", "1")
    sides.cell(sync=(".",))
    sides.write("a.csv", "there", sides.there())
    sides.write("a.csv", "here")
    sides.write("a.node0.csv", "mine")
    sides.cell(sync=(".",))
    expected = {"a.csv": "here", "a.node0.csv": "mine", "a.node0-2.csv": "there"}
    assert contents(sides.here) == contents(sides.there()) == expected


def test_conflicting_changes_keep_both_versions(sides: Sides) -> None:
    sides.write("a.txt", "1")
    sides.cell(sync=(".",))
    sides.write("a.txt", "there", sides.there())
    sides.write("a.txt", "here")
    notices = sides.cell(sync=(".",))
    assert contents(sides.here) == contents(sides.there()) == {"a.txt": "here", "a.node0.txt": "there"}
    assert notices[0] == "a.txt was changed here and on node 0; the node's version was renamed to a.node0.txt."


def test_excluded_files_are_untouched_on_both_sides(sides: Sides) -> None:
    for path in ("a.py", ".git/x", "big.ckpt", "tmp/x", "data/b.csv"):
        sides.write(path, "1")
    sides.write(".skyignore", "# scratch\n*.ckpt\ntmp/\n\n")
    sides.cell(writes(sides, ("c.ckpt", "2"), (".git/y", "2")), sync=(".",), excludes=("*.csv",))
    assert contents(sides.there()).keys() == {"a.py", ".skyignore", "c.ckpt", ".git/y"}
    assert "c.ckpt" not in contents(sides.here)
    sides.cell(sync=(".",))  # no longer excluded
    assert contents(sides.there())["data/b.csv"] == "1"
    sides.cell(sync=(".",), excludes=("*.csv",))  # excluded again: it does not count as deleted
    assert contents(sides.there())["data/b.csv"] == "1"


def test_file_missing_on_node_is_restored(sides: Sides) -> None:
    sides.write("a", "1")
    sides.cell(sync=(".",))
    (sides.there() / "a").unlink()
    sides.cell(sync=(".",))
    assert contents(sides.here) == contents(sides.there()) == {"a": "1"}


def test_file_deleted_by_cell_stays_if_changed_locally(sides: Sides) -> None:
    sides.write("a", "1")

    def work() -> None:
        (sides.there() / "a").unlink()
        sides.write("a", "2")

    assert sides.cell(work, sync=(".",)) == ["a was deleted on its node, but changed here meanwhile: it was kept."]
    assert contents(sides.here) == {"a": "2"}


def test_changes_of_one_node_reach_the_next(sides: Sides) -> None:
    sides.cell(writes(sides, ("a", "1"), node=0), 0, sync=(".",))
    sides.cell(writes(sides, ("b", "2"), node=1), 1, sync=(".",))
    sides.cell(node=0, sync=(".",))
    assert contents(sides.here) == contents(sides.there(0)) == contents(sides.there(1)) == {"a": "1", "b": "2"}


def test_small_files_share_blobs_and_one_change_resends_one_blob(sides: Sides) -> None:
    for number in range(300):
        sides.write(f"data/{number:03}", f"{number}" * 3000)
    before = sides.transfer(sync=("data",)).request(shared=False)
    assert len(before.blobs) < 30
    sides.write("data/150", "other")
    after = sides.transfer(sync=("data",)).request(shared=False)
    same = {blob.addresses().whole for blob in before.blobs} & {blob.addresses().whole for blob in after.blobs}
    assert len(same) >= len(before.blobs) - 4


def test_names_that_are_not_utf8_are_synced(sides: Sides) -> None:
    one, other = os.fsdecode(b"\xff 1"), os.fsdecode(b"\xfe 2")
    sides.write(one, "1")
    notices = sides.cell(writes(sides, (other, "2")), sync=(".",))
    assert contents(sides.here) == contents(sides.there()) == {one: "1", other: "2"}
    assert notices == ["Fetched \\udcfe 2 (1 B)."]


def test_no_bytes_are_sent_to_nodes_that_share_the_disk(sides: Sides) -> None:
    sides.write("a", "1")
    request = sides.transfer(files=("a",), sync=(".",), fetch=("b",)).request(shared=True)
    assert (request.blobs, request.sent, request.roots, request.fetch) == ((), (), (), ())
