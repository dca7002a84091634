"""A notebook's folder and the folders of nodes, on one disk, and cells that only work on files."""

import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from skyward.errors import PayloadError
from skyward.files.request import FilesRequest, FilesResult
from skyward.files.transfer.choice import FileOptions
from skyward.files.transfer.transfer import FetchedVersions, FileTransfer
from skyward.values.validation import FrozenMap
from skyward.worker.cells.cell import CellResult
from skyward.worker.cells.files import CellFiles
from skyward.worker.cells.returned_state import ReturnedState
from skyward.worker.tasks import folder as folders
from skyward.worker.tasks.folder import Directories

__all__ = ["Sides", "contents"]


def contents(folder: Path) -> dict[str, str]:
    """Return the text of the files below a folder, by relative path."""
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@dataclass
class Sides:
    """The notebook's folder, `here`, and a node's folder for each rank.

    Attributes:
        name: of the notebook's folder in `root`.
        notices: notices that were shown to the user.
    """

    root: Path
    name: str = "here"
    notices: list[str] = field(default_factory=list)
    fetched: FetchedVersions = field(default_factory=FetchedVersions)
    cells: int = 0

    @property
    def here(self) -> Path:
        return self.root / self.name

    def there(self, node: int = 0) -> Path:
        """Return the working folder of a node."""
        return self.root / f"node-{node}" / "work"

    def write(self, path: str, text: str, side: Path | None = None) -> None:
        """Write a file here, or in another folder."""
        target = (side or self.here) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def transfer(self, shape: str = "single", *, quiet: bool = False, **asked: object) -> FileTransfer:
        """Return the trip of a cell's files, with the files chosen."""
        self.here.mkdir(exist_ok=True)
        given = FileOptions(**asked)  # type: ignore[arg-type]  # as the test gives them
        return FileTransfer(given, str(self.here), self.fetched, shape, self.notices.append, quiet)  # type: ignore[arg-type]

    def run(
        self,
        request: FilesRequest,
        work: Callable[[], object] = lambda: None,
        node: int = 0,
        run: str | None = None,
        namespace: Mapping[str, object] = FrozenMap(),
    ) -> CellResult:
        """Run a cell on a node, in its folder. Return its result as it is returned to the notebook.

        Raises:
            PayloadError: its files cannot be put in place.
        """
        result, error = self.attempt(request, work, node, run, namespace)
        if error is not None:
            raise error
        return result

    def attempt(
        self,
        request: FilesRequest,
        work: Callable[[], object] = lambda: None,
        node: int = 0,
        run: str | None = None,
        namespace: Mapping[str, object] = FrozenMap(),
    ) -> tuple[CellResult, PayloadError | None]:
        """Run a cell as `run` does. Return its result, and the error if its files cannot be put in place."""
        error: PayloadError | None = None
        self.cells += 1
        self.there(node).mkdir(parents=True, exist_ok=True)
        around = Directories(str(self.there(node)), str(self.there(node).parent))
        with patch.object(folders, "_found", around):
            files = CellFiles(pickle.loads(pickle.dumps(request)), run or str(self.cells), node)
            before = os.getcwd()
            try:
                files.enter()
                work()
            except PayloadError as failed:
                error = failed
            finally:
                files.leave()
                os.chdir(before)
            left: FilesResult | None = pickle.loads(pickle.dumps(files.collect(namespace)))
        return CellResult(ReturnedState(), None, node, files=left), error

    def cell(self, work: Callable[[], object] = lambda: None, node: int = 0, **asked: object) -> list[str]:
        """Run a cell and fetch its files. Return the notices that were shown to the user."""
        del self.notices[:]
        transfer = self.transfer(**asked)  # type: ignore[arg-type]
        transfer.write_results([self.run(transfer.request(shared=False), work, node)])
        return list(self.notices)
