"""Copies in the cache of a machine: which files are fetched, linked, fetched again, and removed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.storage.listing import ObjectEntry
from skyward.storage.location import BucketLocation
from skyward.worker.volumes.trees import CachedTrees, contents_of

LOCATION = BucketLocation("bucket", "train", "https://store.invalid")
ENTRIES = st.lists(
    st.builds(ObjectEntry, st.sampled_from("abc"), st.integers(0, 2), st.sampled_from(['"1"', '"2"'])),
    unique_by=lambda entry: entry.key,
)


def complete(trees: CachedTrees, *entries: ObjectEntry) -> Path:
    """Fetch what is missing, and return the folder."""
    contents = contents_of(entries)
    linked = trees.link_known(contents, entries)
    for entry in entries:
        if entry.key not in linked:
            path = trees.part(contents) / entry.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry.etag.encode()[:1] * entry.size)
    return trees.finish(contents, entries)


@given(ENTRIES, ENTRIES)
def test_lists_have_one_digest_exactly_if_they_are_equal(first: list[ObjectEntry], second: list[ObjectEntry]) -> None:
    as_sets = [{(each.key, each.size, each.etag) for each in entries} for entries in (first, second)]
    assert (contents_of(first) == contents_of(second)) == (as_sets[0] == as_sets[1])


def test_complete_copy_is_used_again_and_a_changed_file_is_fetched_again(tmp_path: Path) -> None:
    trees = CachedTrees.of(tmp_path, LOCATION)
    entries = [ObjectEntry("a", 3, '"1"'), ObjectEntry("sub/b", 4, '"2"')]
    assert trees.damaged(contents_of(entries), entries) is None
    tree = complete(trees, *entries)
    assert trees.damaged(contents_of(entries), entries) == []
    (tree / "a").chmod(0o600)
    (tree / "a").write_bytes(b"xyz")
    assert trees.damaged(contents_of(entries), entries) == entries[:1]


def test_objects_that_are_the_same_are_linked_from_the_former_copy(tmp_path: Path) -> None:
    trees = CachedTrees.of(tmp_path, LOCATION)
    same, before, after = ObjectEntry("a", 3, '"1"'), ObjectEntry("b", 1, '"2"'), ObjectEntry("b", 2, '"3"')
    former = complete(trees, same, before)
    assert trees.link_known(contents_of([same, after]), [same, after]) == {"a"}
    tree = complete(trees, same, after)
    assert (tree / "a").samefile(former / "a")


def test_changed_file_is_not_linked(tmp_path: Path) -> None:
    trees = CachedTrees.of(tmp_path, LOCATION)
    same, after = ObjectEntry("a", 3, '"1"'), ObjectEntry("b", 2, '"3"')
    former = complete(trees, same)
    (former / "a").chmod(0o600)
    (former / "a").write_bytes(b"xyz")
    assert trees.link_known(contents_of([same, after]), [same, after]) == set()


@pytest.mark.parametrize("is_used", [True, False])
def test_former_copy_is_removed_unless_it_is_used(tmp_path: Path, is_used: bool) -> None:
    trees, other = CachedTrees.of(tmp_path, LOCATION), CachedTrees.of(tmp_path, LOCATION)
    first, second = ObjectEntry("a", 1, '"1"'), ObjectEntry("a", 1, '"2"')
    former = complete(trees, first)
    if is_used:
        other.use(contents_of([first]))
    complete(trees, second)
    trees.remove_former(contents_of([second]))
    assert former.exists() == is_used
    other.release()
    trees.remove_former(contents_of([second]))
    assert not former.exists()


def test_prefixes_and_stores_have_separate_caches(tmp_path: Path) -> None:
    others = [BucketLocation("bucket", "test", "https://store.invalid"), BucketLocation("bucket", "train")]
    folders = {CachedTrees.of(tmp_path, each).folder for each in (LOCATION, *others)}
    assert len(folders) == 3


def test_rest_of_an_interrupted_transfer_is_no_file_of_the_copy(tmp_path: Path) -> None:
    trees = CachedTrees.of(tmp_path, LOCATION)
    entry = ObjectEntry("sub/a", 3, '"1"')
    rest = trees.part(contents_of([entry])) / "sub" / ".a.part"
    rest.parent.mkdir()
    rest.touch()
    tree = complete(trees, entry)
    assert [each.name for each in (tree / "sub").iterdir()] == ["a"]
