"""Included files, and the source of Skyward itself."""

import hashlib
import io
import os
import random
import re
import subprocess
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from skyward.bootstrap import collect, find_source, send, source
from skyward.bootstrap.includes import Includes
from skyward.bootstrap.names import normalised, requirement_name
from skyward.bootstrap.plan import Plan
from skyward.bootstrap.send import send_commands
from skyward.bootstrap.source import WORKER_PACKAGES, PackageSource, local_source
from skyward.bootstrap.tree import build_tree
from skyward.errors import SpecError
from skyward.specs.image import DEFAULT_EXCLUDES


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)


def paths(includes: Includes) -> list[str]:
    return [file.path for file in includes.files]


def test_folders_and_files_keep_their_relative_paths(tmp_path: Path) -> None:
    write(tmp_path, "mine/__init__.py", "mine/deep/er.py", "one.py", "data/table.csv", "other.py")
    found = collect(["./mine/", "one.py", "data/table.csv"], cwd=tmp_path)
    assert paths(found) == ["data/table.csv", "mine/__init__.py", "mine/deep/er.py", "one.py"]


def test_file_gets_its_path_in_the_search_path(tmp_path: Path) -> None:
    write(tmp_path, "book/one.py", "src/mine/__init__.py", "lib/helper.py", "lost/alone.py")
    given = ["one.py", "../src/mine", str(tmp_path / "lib"), str(tmp_path / "lost/alone.py")]
    found = collect(given, cwd=tmp_path / "book", search_path=["", str(tmp_path / "src"), "../lib", "/"])
    assert paths(found) == ["alone.py", "helper.py", "mine/__init__.py", "one.py"]


def test_working_directory_can_be_included(tmp_path: Path) -> None:
    write(tmp_path, "one.py", "mine/two.py")
    assert paths(collect(["."], cwd=tmp_path)) == ["mine/two.py", "one.py"]


def test_excludes_match_each_part_of_a_path(tmp_path: Path) -> None:
    write(
        tmp_path, "node_modules/mine/a.py", "node_modules/mine/__pycache__/a.pyc", "node_modules/mine/b.pyc",
        "node_modules/mine/.git/config", "node_modules/mine/x.egg-info/y", "node_modules/mine/data/raw/big",
        "node_modules/mine/data/small",
    )  # fmt: skip  # as a list
    excludes = [*DEFAULT_EXCLUDES, "data/raw/"]
    found = collect(["node_modules/mine"], excludes, cwd=tmp_path)  # the include itself is not excluded
    assert paths(found) == ["node_modules/mine/a.py", "node_modules/mine/data/small"]


def test_links_are_followed_without_cycles(tmp_path: Path) -> None:
    write(tmp_path, "mine/a.py", "elsewhere/b.py")
    (tmp_path / "mine/there").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "mine/up").symlink_to(tmp_path / "mine")
    (tmp_path / "mine/gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "mine/pipe")
    assert paths(collect(["mine"], cwd=tmp_path)) == ["mine/a.py", "mine/there/b.py"]


def test_digest_covers_content_path_and_mode(tmp_path: Path) -> None:
    write(tmp_path, "mine/a.py")
    first = collect(["mine"], cwd=tmp_path)
    os.utime(tmp_path / "mine/a.py", (0, 0))
    assert collect(["mine"], cwd=tmp_path).digest == first.digest
    (tmp_path / "mine/a.py").chmod(0o755)
    executable = collect(["mine"], cwd=tmp_path)
    (tmp_path / "mine/a.py").rename(tmp_path / "mine/b.py")
    renamed = collect(["mine"], cwd=tmp_path)
    (tmp_path / "mine/b.py").write_text("edited")
    edited = collect(["mine"], cwd=tmp_path)
    assert len({first.digest, executable.digest, renamed.digest, edited.digest}) == 4
    assert renamed.files[0].digest == first.files[0].digest
    assert collect([], cwd=tmp_path).digest == ""


def test_same_file_twice_is_no_collision(tmp_path: Path) -> None:
    write(tmp_path, "mine/a.py")
    assert paths(collect(["mine", "mine/a.py", str(tmp_path / "mine")], cwd=tmp_path)) == ["mine/a.py"]


def test_collision_error_names_both_files(tmp_path: Path) -> None:
    write(tmp_path, "here/x", "one/util.py", "two/util.py")
    given = [str(tmp_path / "one/util.py"), str(tmp_path / "two/util.py")]
    says = f"both {given[0]} and {given[1]} at 'util.py' on a node; rename one of them"
    with pytest.raises(SpecError, match=re.escape(says)):
        collect(given, cwd=tmp_path / "here")


def test_file_and_folder_with_one_path_collide(tmp_path: Path) -> None:
    write(tmp_path, "here/x", "one/util", "two/util/a.py")
    given = [str(tmp_path / "one/util"), str(tmp_path / "two/util")]
    with pytest.raises(
        SpecError, match=re.escape(f"would create {given[0]} as a file, and {given[1]}/a.py in a folder")
    ):
        collect(given, cwd=tmp_path / "here")


def test_missing_include_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=re.escape(f"names './gone', but there is no such file or folder in {tmp_path}.")
    ):
        collect(["./gone"], cwd=tmp_path)


def test_name_with_a_line_break_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "mine/a\nb.py")
    with pytest.raises(SpecError, match="has a line break"):
        collect(["mine"], cwd=tmp_path)


def test_packs_are_small_and_complete() -> None:
    plan = Plan(python="3.13", source=PackageSource("x", ()))
    parts = [(f"{size}", bytes(size)) for size in (0, 1, 5 * 2**20, 5 * 2**20 + 1, 20 * 2**20, 3)]
    sent = [each.completes for each in send_commands(plan, parts)]
    assert len(sent) == 4
    assert [digest for digests in sent for digest in digests] == [digest for digest, _ in parts]
    assert len(list(send_commands(plan, [("empty", b"")]))) == 1
    assert not list(send_commands(plan, []))


def test_large_file_is_sent_in_pieces_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "_PIECE", 1000)
    large, root = tmp_path / "large", tmp_path / "root"
    data = random.Random(1).randbytes(2500)
    large.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    plan = Plan(python="3.13", source=PackageSource("x", ()), directory=str(root))
    for each in send_commands(plan, [(digest, large)]):
        assert len(each.data) < 1300
        assert not (root / "blobs" / digest).exists()
        subprocess.run(["sh", "-c", each.command], input=each.data, check=True)
    assert [path.name for path in (root / "blobs").iterdir()] == [digest]
    assert (root / "blobs" / digest).read_bytes() == data
    *_, join = send_commands(plan, [("0" * 64, large)])
    assert subprocess.run(["sh", "-c", join.command], capture_output=True, check=False).returncode != 0


def test_tree_is_built_atomically(tmp_path: Path) -> None:
    write(tmp_path / "here", "mine/a b.py", "mine/c.py")
    found = collect(["mine"], cwd=tmp_path / "here")
    node = tmp_path / "node"
    (node / "blobs").mkdir(parents=True)
    (node / "trees").mkdir()
    for file in found.files:
        (node / "blobs" / file.digest).write_bytes(file.origin.read_bytes())
    corrupt = node / "blobs" / found.files[1].digest
    right = corrupt.read_bytes()
    corrupt.write_bytes(b"cut")
    with pytest.raises(ValueError, match=r"c\.py does not match its digest"):
        build_tree(node, found.digest, io.StringIO(found.manifest))
    assert not list((node / "trees").iterdir())
    assert not corrupt.exists()
    corrupt.write_bytes(right)
    for _ in range(2):
        build_tree(node, found.digest, io.StringIO(found.manifest))
    (tree,) = (node / "trees").iterdir()
    assert sorted(path.read_text() for path in tree.rglob("*.py")) == ["mine/a b.py", "mine/c.py"]


def test_local_source_is_a_reproducible_wheel(tmp_path: Path) -> None:
    first, second = local_source(), local_source()
    assert first.wheel == second.wheel
    assert re.fullmatch(r"skyward_jupyter-[\d.]+\+local\.[0-9a-f]{12}-py3-none-any\.whl", first.requirement)
    with zipfile.ZipFile(io.BytesIO(first.wheel)) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert {"skyward/__init__.py", "skyward/py.typed", "skyward/bootstrap/node.sh"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("skyward_jupyter/")]
    assert {requirement_name(each) for each in first.dependencies} == WORKER_PACKAGES
    assert [line[15:] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")] == list(
        first.dependencies
    )


def test_edit_changes_the_wheel(tmp_path: Path) -> None:
    write(tmp_path, "skyward/__init__.py", "skyward/__pycache__/x.pyc", "skyward/a.py")
    first = local_source(tmp_path / "skyward")
    write(tmp_path, "skyward/__pycache__/y.pyc", "skyward/old.pyo")
    os.utime(tmp_path / "skyward/a.py", (0, 0))
    assert local_source(tmp_path / "skyward") == first
    (tmp_path / "skyward/a.py").write_text("edited")
    assert local_source(tmp_path / "skyward").requirement != first.requirement


def test_source_of_skyward_is_a_wheel_or_a_requirement() -> None:
    assert find_source("auto").wheel  # a development install
    from_index = find_source("pypi")
    assert re.fullmatch(r"skyward-jupyter==[\d.]+", from_index.requirement)
    assert not from_index.digest
    assert {requirement_name(each) for each in from_index.dependencies} == WORKER_PACKAGES
    with pytest.raises(SpecError, match="needs the repository's address"):
        find_source("github")


@pytest.mark.parametrize(
    ("origin", "is_sent"),
    [
        (None, False),  # from an index
        ('{"archive_info": {}, "url": "file:///tmp/skyward_jupyter-1.0-py3-none-any.whl"}', True),
        ('{"dir_info": {}, "url": "file:///src"}', True),
        ('{"dir_info": {"editable": true}, "url": "file:///src"}', True),
        ('{"vcs_info": {"vcs": "git", "commit_id": "1"}, "url": "https://host/x"}', True),
    ],
)
def test_copy_that_does_not_come_from_an_index_is_sent(
    origin: str | None, is_sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "skyward_jupyter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: skyward-jupyter\nVersion: 1.0\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin)
    monkeypatch.setattr(source, "_installed", lambda: Distribution.at(info))
    found = find_source("auto")
    assert bool(found.wheel) is is_sent
    assert is_sent or found.requirement == "skyward-jupyter==1.0"


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("torch", "torch"), ("Typing_Extensions >= 4", "typing-extensions"), ("jax[cuda12]==0.4; x > '3'", "jax"),
        ("a.b", "a-b"), ("x~=1", "x"), ("git+https://host/x", None), ("x @ https://host/x.whl", None),
        ("./x.whl", None), ("--pre", None), ("", None),
    ],
)  # fmt: skip  # as a table
def test_names_of_requirements_are_parsed(requirement: str, name: str | None) -> None:
    assert requirement_name(requirement) == name
    assert name is None or normalised(name) == name
