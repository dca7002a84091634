"""Analysis of the text of a cell, with the file name under which IPython finds its lines."""

import inspect
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from skyward.errors import UsageError
from skyward_jupyter.cells.cell import CellCode, analyse, blank_lines, transform_cell
from skyward_jupyter.failures.tracebacks import as_cell_error

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from skyward_jupyter.options.cell_options import CellOptions

__all__ = ["analyse_cell", "named_source", "refuse_stream"]

_NUMBER = re.compile(r"\d+")


def analyse_cell(shell: "InteractiveShell", raw: str, options: "CellOptions", first_line: int = 2) -> CellCode:
    """Analyse the text of a cell for its options.

    Args:
        shell: the shell of the notebook.
        raw: the text.
        options: the options of the cell.
        first_line: the number of the first line of the text in the cell.

    Raises:
        SyntaxError: the text is not Python.
        UsageError: the cell cannot run with these options.
    """
    try:
        source = transform_cell(raw)
        first_line += blank_lines(raw)
        filename = named_source(shell, source, first_line)
        code = analyse(source, filename=filename, first_line=first_line)
    except SyntaxError as error:
        raise as_cell_error(error) from None
    if code.is_stream:
        refuse_stream(options)
    elif options.plot:
        raise UsageError(
            "--plot draws what a cell yields, but this one yields nothing: add a `yield`, such as `yield loss`."
        )
    inputs = options.inputs if options.capture else ()
    if inputs is not None and options.map is not None:
        inputs = (*inputs, options.map)
    code = code.narrow(inputs=inputs, outputs=options.outputs)
    return code if options.capture else replace(code, withheld="--no-capture")


def named_source(shell: "InteractiveShell", source: str, first_line: int) -> str:
    """Return IPython's file name for the source of a cell, by which it finds its lines and its number."""
    number, text = _cell_number(shell), "\n" * (first_line - 1) + source
    name: str = shell.compile.cache(text, number, raw_code=f"%%sky {number} {hash(text)}")
    return name


def _cell_number(shell: "InteractiveShell") -> int:
    """Return the number of the running cell. Depending on its version, IPython increments it before or after."""
    number = shell.execution_count
    frame = inspect.currentframe()
    while frame is not None:
        label = shell.compile.format_code_name(frame.f_code.co_filename)
        found = None if label is None else _NUMBER.search(label[1])
        number = number if found is None else int(found.group())
        frame = frame.f_back
    return number


def refuse_stream(options: "CellOptions") -> None:
    """Check that a cell that yields has no option for several runs.

    Raises:
        UsageError: it has one.
    """
    given = {"--map": options.map is not None, "--gang": options.gang is not None, "--on": options.on_several}
    for option, is_given in given.items():
        if is_given:
            fix = "write `--on one`" if option == "--on" else "leave the option out"
            raise UsageError(
                f"A cell that yields streams from one node into the notebook, so it cannot be combined with {option}: "
                f"{fix}, or collect the elements in a list."
            )
