"""Runs a notebook cell by cell, and shows each cell and its output as it happens.

    python scripts/demo.py notebooks/quickstart.ipynb

The file is not changed. Exits with status 1 at the first cell that fails.
"""

import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

_BOLD, _DIM, _PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")
_ANSI = re.compile(r"\033\[[0-9;]*m")


def show(text: str) -> None:
    """Write `text` unchanged, at once."""
    sys.stdout.write(text if sys.stdout.isatty() else _ANSI.sub("", text))
    sys.stdout.flush()


def as_text(data: dict[str, Any]) -> str:
    """Return the plain text of an output, or a word for what a terminal cannot show."""
    text = str(data.get("text/plain", ""))
    kinds = [kind for kind in data if kind.startswith("image/")]
    return f"{text}  [{', '.join(kinds)}: shown in JupyterLab]" if kinds else text


class Screen(NotebookClient):  # type: ignore[misc]  # nbclient is typed in part only
    """A notebook client that shows each output message when it arrives."""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        content = msg["content"]
        match msg["msg_type"]:
            case "stream":
                show(content["text"])
            case "execute_result" | "display_data":
                show(as_text(content["data"]) + "\n")
            case "update_display_data":
                show("\r" + as_text(content["data"]))
            case "error":
                show("\n".join(content["traceback"]) + "\n")
        return super().process_message(msg, cell, cell_index)


def show_source(cell: Any) -> None:
    """Return the text of a cell: prose dimmed, code after a prompt."""
    if cell.cell_type == "markdown":
        show(f"\n{_DIM}{cell.source}{_PLAIN}\n")
    else:
        lines = cell.source.splitlines() or [""]
        show(f"\n{_BOLD}" + "".join(f"{'>>>' if n == 0 else '...'} {line}\n" for n, line in enumerate(lines)) + _PLAIN)


def main(path: Path) -> int:
    """Run the notebook at `path`; return the exit status."""
    if not path.is_file():
        sys.stderr.write(f"demo: there is no notebook {path}.\n")
        return 1
    notebook = nbformat.read(path, as_version=4)
    client = Screen(
        notebook,
        timeout=120,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],  # hides the kernel's own warnings
        resources={"metadata": {"path": str(path.parent)}},
    )
    started = time.monotonic()
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            show_source(cell)
            if cell.cell_type != "code":
                continue
            try:
                client.execute_cell(cell, index)
            except CellExecutionError:
                sys.stderr.write(f"demo: cell {index} of {path} failed; its traceback is above.\n")
                return 1
    show(
        f"\n{_BOLD}{path} ran in {time.monotonic() - started:.1f} s.{_PLAIN} "
        f"To work in it: `make lab`, and open {path.name} in the browser that it starts.\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
