"""`--sync` loses no change and makes both sides equal, whatever the notebook and cells do to the files."""

import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skyward.files.transfer.transfer import FileTransfer
from skyward.worker.cells.cell import CellResult
from tests.unit.files.folders import Sides, contents

pytestmark = pytest.mark.unit

PATHS = ("a", "b.txt", "c/d.txt", "c", "a/e")
"""Some are folders of others: files turn into folders, and folders into files."""

NODES = (0, 1)

changes = st.lists(st.tuples(st.sampled_from(PATHS), st.sampled_from(["write", "delete"])), max_size=2)
cells = st.tuples(st.just("cell"), st.sampled_from(NODES), changes, changes, st.booleans())
elsewhere = st.tuples(st.just("there"), st.sampled_from(NODES), changes)
steps = st.lists(st.one_of(st.tuples(st.just("here"), changes), elsewhere, cells), max_size=8)


@dataclass
class World:
    """Both sides, and the texts that were written and later overwritten or deleted on purpose."""

    sides: Sides
    written: set[str] = field(default_factory=set)
    outdated: set[str] = field(default_factory=set)
    waiting: list[tuple[FileTransfer, CellResult]] = field(default_factory=list)

    def change(self, side: Path, wanted: list[tuple[str, str]]) -> None:
        """Write and delete files on one side, and record the texts that this removes."""
        for path, what in wanted:
            target = side / path
            self.remove(target)
            if what == "write":
                text = f"text {len(self.written)}"
                self.written.add(text)
                for folder in target.relative_to(side).parents:
                    if (side / folder).is_file():
                        self.remove(side / folder)
                self.sides.write(path, text, side)

    def remove(self, target: Path) -> None:
        """Delete a file, or a folder."""
        if target.is_dir():
            self.outdated |= {each.read_text() for each in target.rglob("*") if each.is_file()}
            shutil.rmtree(target)
        elif target.exists():
            self.outdated.add(target.read_text())
            target.unlink()

    def cell(self, node: int, there: list[tuple[str, str]], here: list[tuple[str, str]]) -> None:
        """Run a cell that changes files, while others are changed here; its result waits."""
        transfer = self.sides.transfer(sync=(".",))
        result = self.sides.run(
            transfer.request(shared=False), lambda: self.change(self.sides.there(node), there), node
        )
        self.change(self.sides.here, here)
        self.waiting.append((transfer, result))

    def collect(self) -> None:
        """Fetch the waiting results, oldest first."""
        for transfer, result in self.waiting:
            transfer.write_results([result])
        self.waiting.clear()


@given(steps=steps)
@example(steps=[("cell", 0, [("c/d.txt", "write")], [("c", "write")], True), ("here", [("c", "delete")])])
@settings(max_examples=80)
def test_sync_loses_no_change_and_both_sides_converge(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        world = World(Sides(Path(root)))
        for step in steps:
            match step:
                case ("here", list() as wanted):
                    world.sides.here.mkdir(exist_ok=True)
                    world.change(world.sides.here, wanted)
                case ("there", int() as node, list() as wanted):
                    work = partial(world.change, world.sides.there(node), wanted)
                    world.sides.cell(work, node)  # without --sync
                case ("cell", int() as node, list() as there, list() as here, collects):
                    world.cell(node, there, here)
                    if collects:
                        world.collect()
        world.collect()
        for _ in range(3):  # cells without changes: each side receives those of the other
            for node in NODES:
                world.cell(node, [], [])
                world.collect()
        left = contents(world.sides.here)
        for node in NODES:
            assert contents(world.sides.there(node)) == left
        assert world.written - world.outdated <= set(left.values())
