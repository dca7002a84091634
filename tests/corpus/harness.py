"""Runs a scenario in the notebook and under `%%sky`, and reports the differences."""

import decimal
import hashlib
import io
import os
import pickle
import random
import re
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from skyward.errors import SkywardError, TaskError
from skyward_jupyter.magics.sky_magics import SkyMagics
from skyward_kernel.pools import PoolManager
from tests.corpus.compare import Difference, Names
from tests.corpus.scenario import Scenario
from tests.notebook import new_shell

__all__ = ["Output", "Run", "findings", "is_refusal", "run", "world"]


_UNSEEN = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
"""Warnings that a kernel hides, except those of the first type that a cell raises itself."""


@dataclass
class Output:
    """The outputs of a cell.

    Attributes:
        stdout: its text on stdout.
        stderr: its text on stderr.
        data: by MIME type, each display and the value of its last expression; only the type for binary data.
        error: name and text of its exception.
        notes: the notes of its exception.
        refusal: True if the error says that the cell cannot be run, and was not.
    """

    stdout: str = ""
    stderr: str = ""
    data: list[dict[str, str]] = field(default_factory=list)
    error: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()
    refusal: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a scenario.

    Attributes:
        outputs: the outputs of each cell; None for a cell that was skipped.
        names: the names at the end.
    """

    outputs: list[Output | None]
    names: Names


def run(scenario: Scenario, pools: PoolManager | None, place: str, *, without: int | None = None) -> Run:
    """Run the cells of `scenario` in a new shell: under `%%sky` with `pools`, otherwise in the notebook.

    Args:
        scenario: the scenario.
        pools: the pools of the kernel; None to run all of it in the notebook.
        place: the folder that `{place}` in a cell stands for.
        without: the index of the first cell to skip.
    """
    with _as_it_was(place), _shell() as shell:
        magics = None
        if pools is not None:
            magics = SkyMagics(shell, pools)
            magics.footer = magics.show_progress = False
            shell.register_magics(magics)
        outputs: list[Output | None] = []
        for i, cell in enumerate(scenario.cells):
            if without is not None and i >= without:
                outputs.append(None)
                continue
            source = cell.source if pools is None or cell.sky is None else cell.sky
            output = _execute(shell, source.replace("{place}", place))
            outputs.append(output)
            if output.refusal:
                outputs += [None] * (len(scenario.cells) - len(outputs))
                break
        names = Names.of(shell.user_ns, world(place), place)
    return Run(outputs, names)


@contextmanager
def _shell() -> Iterator[Any]:
    """Provide a plain shell for one run, without displays of its own."""
    with new_shell() as shell:
        each: Any = shell
        each.displayhook.flush = each.showtraceback = each.showsyntaxerror = lambda *_, **__: None
        each.enable_gui = lambda gui=None: None  # for %matplotlib
        yield each


def is_refusal(error: type | None) -> bool:
    """Return whether an error type means that a cell cannot be run, and was not."""
    return error is not None and issubclass(error, SkywardError) and not issubclass(error, TaskError)


def _execute(shell: Any, source: str) -> Output:
    output = Output()
    out, err = io.StringIO(), io.StringIO()

    def publish(data: dict[str, Any], *_: Any, update: bool = False, **__: Any) -> None:
        output.data.append({kind: value if kind.startswith("text/") else "..." for kind, value in data.items()})

    def warned(message: Any, category: Any, filename: str, number: int, file: Any = None, line: Any = None) -> None:
        sys.stderr.write(warnings.formatwarning(message, category, filename, number, line))

    shell.display_pub.publish = publish
    hook = shell.displayhook
    hook.write_output_prompt = hook.finish_displayhook = lambda: None
    hook.write_format_data = lambda data, _=None: publish(data)
    with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
        warnings.simplefilter("default")  # pytest has turned them into errors
        for kind in _UNSEEN:
            warnings.simplefilter("ignore", kind)
        warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
        warnings.showwarning = warned  # type: ignore[assignment]  # called with these arguments
        ran = shell.run_cell(source, store_history=True)
    output.stdout, output.stderr = out.getvalue(), err.getvalue()
    error = ran.error_in_exec or ran.error_before_exec
    if error is not None:
        output.error = (type(error).__qualname__, str(error))
        output.notes = tuple(getattr(error, "__notes__", ()))
        output.refusal = is_refusal(type(error))
    return output


_RESULTS = re.compile(r"_+|_\d+|Out")


def findings(
    scenario: Scenario,
    here: Sequence[Output | None],
    there: Sequence[Output | None],
    differences: Sequence[Difference],
    from_before: Sequence[Difference],
) -> list[str]:
    """Return unreported differences between two runs, and needless notices.

    Args:
        scenario: the scenario.
        here: the outputs of its cells in the notebook.
        there: the outputs of its cells under `%%sky`.
        differences: the differences of the names at the end.
        from_before: for a refused cell, the differences from the state before it.
    """
    if scenario.plain is not None:  # the notebook prints what is the value of the cell under %%sky
        differences = [each for each in differences if not all(map(_RESULTS.fullmatch, each.roots))]
    if any(output is not None and output.refusal for output in there):
        return _of_refusal(scenario, there, from_before)
    found = _of_run(scenario, here, there, differences)
    return _of_refusal(scenario, there, from_before) if found and scenario.refused else found


def _of_run(
    scenario: Scenario,
    here: Sequence[Output | None],
    there: Sequence[Output | None],
    differences: Sequence[Difference],
) -> list[str]:
    pairs = [_of_output(mine, theirs, scenario.raises_there) for mine, theirs in zip(here, there, strict=True)]
    said = [notice for _, notices in pairs for notice in notices]
    reported = {name for name in scenario.reported if _names(said, name)}
    if reported:
        reported |= {*scenario.follows}
    last = max(i for i, cell in enumerate(scenario.cells) if cell.sky is not None)
    found = []
    for i, (different, _) in enumerate(pairs):
        if not (reported and i > last):  # only shows reported differences again
            found += [f"cell {i + 1}: {text}" for text in different]
    for difference in differences:
        is_absent = difference.roots <= {*scenario.absent} and "not under %%sky" in difference.text
        if not is_absent and reported.isdisjoint(difference.roots):
            allowed = not difference.roots.isdisjoint(scenario.reported)
            found.append(f"{'not reported: ' if allowed else ''}{difference}")
    found += [
        f"needless notice: {line}" for line in said if not any(_names([line], name) for name in scenario.reported)
    ]
    return found


def _of_refusal(scenario: Scenario, there: Sequence[Output | None], from_before: Sequence[Difference]) -> list[str]:
    kind, text = next(output.error for output in there if output is not None and output.error is not None)
    found = []
    if scenario.refused:
        if kind != scenario.refused:
            found.append(f"refused with {kind}, and not with {scenario.refused}: {text}")
    elif not any(_names([text], name) for name in scenario.reported):
        found.append(f"refused: {kind}: {text}")
    return found + [f"after the refusal: {difference}" for difference in from_before]


def _of_output(here: Output | None, there: Output | None, raises_there: str) -> tuple[list[str], list[str]]:
    """Return the differences, and the lines that only the run under `%%sky` has on stderr."""
    assert here is not None
    assert there is not None
    found = []
    if _masked(there.stdout) != _masked(here.stdout):
        found.append(f"prints {here.stdout!r} in the notebook and {there.stdout!r} under %%sky")
    lines = [Counter(_masked(output.stderr).splitlines()) for output in (here, there)]
    if (missing := lines[0] - lines[1]) and not raises_there:  # IPython itself warns about an exit
        found.append(f"writes {list(missing)} to stderr in the notebook, and not under %%sky")
    data = [[{kind: _masked(text) for kind, text in each.items()} for each in output.data] for output in (here, there)]
    if data[0] != data[1]:
        found.append(f"shows {data[0]} in the notebook and {data[1]} under %%sky")
    errors = [output.error and tuple(map(_masked, output.error)) for output in (here, there)]
    if errors[0] != errors[1] and not (raises_there and errors[1] and errors[1][0] == raises_there):
        found.append(f"raises {errors[0]} in the notebook and {errors[1]} under %%sky")
    notes = [note for note in there.notes if note not in here.notes]
    return found, [*(lines[1] - lines[0]), *notes]


def _masked(text: str) -> str:
    """Return `text` without addresses and line numbers, because the line of the magic counts too."""
    text = re.sub(r"\b0x[0-9a-f]+", "0x", text)
    text = re.sub(r"\(.*, line \d+\)$", "(<cell>)", text)
    return re.sub(r"^\S.*?:\d+: (\w*Warning:)", r"<cell>: \1", text, flags=re.MULTILINE)


def _names(lines: list[str], name: str) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line) for line in lines)


def world(place: str) -> dict[str, Any]:
    """Return process-wide state that a program changes; its files are in the folder `place`."""
    return {
        "sys.path": list(sys.path),
        "os.environ": dict(os.environ),
        "os.getcwd": os.getcwd(),
        "random": _digest(random.getstate()),
        "np.random": _digest(np.random.get_state(legacy=False)),
        "decimal": repr(decimal.getcontext()),
        "files": {
            str(path.relative_to(place)): path.read_bytes()
            for path in sorted(Path(place).rglob("*"))
            if path.is_file() and path.suffix != ".pyc"
        },
    }


def _digest(state: object) -> str:
    return hashlib.sha256(pickle.dumps(state)).hexdigest()[:8]


@contextmanager
def _as_it_was(place: str) -> Iterator[None]:
    """Undo process-wide changes of a run, and unload the user's modules."""
    path, environ, folder = list(sys.path), dict(os.environ), os.getcwd()
    state, numbers, context = random.getstate(), np.random.get_state(), decimal.getcontext()
    random.seed(0)
    np.random.seed(0)
    decimal.setcontext(decimal.Context())
    os.chdir(place)
    try:
        yield
    finally:
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(folder)
        random.setstate(state)
        np.random.set_state(numbers)
        decimal.setcontext(context)
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(place):
                del sys.modules[name]
        if "matplotlib.pyplot" in sys.modules:
            _forget_figures()
        for made in Path(place).iterdir():
            shutil.rmtree(made) if made.is_dir() else made.unlink()


def _forget_figures() -> None:
    """Reset matplotlib to its state in a fresh kernel."""
    from matplotlib import pyplot
    from matplotlib_inline.backend_inline import configure_inline_support
    from matplotlib_inline.config import InlineBackend

    pyplot.close("all")
    pyplot.switch_backend("agg")
    InlineBackend.clear_instance()
    configure_inline_support.current_backend = "unset"  # type: ignore[attr-defined]  # private attribute
