"""Some scenarios of each topic in a real kernel, as nbclient runs them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from skyward import errors
from tests.corpus.compare import Difference
from tests.corpus.harness import Output, findings, is_refusal
from tests.corpus.scenario import Scenario
from tests.corpus.scenarios import SCENARIOS

pytestmark = [pytest.mark.local, pytest.mark.notebooks]

_ROOT = Path(__file__).parents[2]

_NAMES = {
    "training: the loss is assigned",
    "training: a stream of losses",
    "training: a trainer that holds the model",
    "training: an error in the third epoch",
    "aliasing: a list of models of which the cell reads one",
    "arrays: a function writes into a view",
    "frames: inplace=True",
    "functions: two closures that share a variable",
    "functions: lru_cache",
    "functions: a coroutine",
    "classes: a dataclass",
    "classes: a lock in an object, made in the cell",
    "state: a function changes a global in place",
    "control: a file iterator",
    "outputs: stderr and stdout",
    "outputs: the last expression",
    "outputs: a figure over two cells",
}
_SOME = [scenario for scenario in SCENARIOS if scenario.name in _NAMES]

_PREPARE = "%load_ext skyward\n%config SkyMagics.footer = False\n%config SkyMagics.show_progress = False\n%sky up"

type Execute = Callable[[str], Output]


@pytest.fixture(scope="module")
def execute() -> Iterator[Execute]:
    """Provide a function that runs cells in a kernel, shared by all scenarios."""
    notebook = nbformat.v4.new_notebook()
    place = {"metadata": {"path": str(_ROOT)}}
    client = NotebookClient(notebook, timeout=50, kernel_name="python3", allow_errors=True, resources=place)

    def execute(source: str) -> Output:
        notebook.cells.append(nbformat.v4.new_code_cell(source))
        return _output(client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1).outputs)

    with client.setup_kernel():
        prepared = execute(_PREPARE)
        assert prepared.error is None, prepared
        yield execute


def _output(messages: list[Any]) -> Output:
    output = Output()
    for message in messages:
        match message.output_type:
            case "stream" if message.name == "stdout":
                output.stdout += message.text
            case "stream":
                output.stderr += message.text
            case "error":
                output.error = (message.ename, message.evalue)
                output.refusal = is_refusal(getattr(errors, message.ename, None))
            case _:
                data = message.data.items()
                output.data.append({kind: text if kind.startswith("text/") else "..." for kind, text in data})
    return output


def test_all_named_scenarios_exist() -> None:
    assert {scenario.name for scenario in _SOME} == _NAMES


@pytest.mark.parametrize("scenario", _SOME, ids=lambda scenario: scenario.name)
def test_same_state_in_a_kernel_as_in_the_notebook(scenario: Scenario, execute: Execute, tmp_path: Path) -> None:
    def inside(call: str) -> str:
        answer = execute(f"print(__import__('tests.corpus.inside').corpus.inside.{call}(globals(), {str(tmp_path)!r}))")
        assert answer.error is None, answer
        return answer.stdout

    def run(sources: list[str]) -> list[Output]:
        assert execute("get_ipython().reset(new_session=True)").error is None
        return [execute(source.replace("{place}", str(tmp_path))) for source in sources]

    here = run([cell.source for cell in scenario.cells])
    inside("keep")
    there = run([cell.sky or cell.source for cell in scenario.cells])
    differences = [Difference(frozenset(roots), text) for roots, text in json.loads(inside("report"))]
    found = findings(scenario, here, there, differences, [])
    if found:
        pytest.fail("\n  ".join([scenario.name, *found]), pytrace=False)
