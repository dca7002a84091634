"""Results of cells of a former process, in a process that is no notebook."""

import pytest

import skyward as sky
from skyward.control.act.recovered_cells import CellOutcome, FormerObject
from skyward.worker.cells.cell import CellRequest, run_cell

pytestmark = pytest.mark.unit


def outcome(source: str, unsaved: str = "") -> CellOutcome:
    return CellOutcome(run_cell(CellRequest(source)), unsaved)


def test_result_has_the_variables_and_the_last_value() -> None:
    found = outcome(
        "import math\nx = [1]\ny = [x]\ndef area(r):\n    return math.floor(math.pi * r)\nx[0] + 1"
    ).collect()
    assert (found["x"], found["_"], found["area"](2)) == ([1], 2, 6)
    assert found["y"][0] is found["x"]
    assert "math" not in found


def test_exception_of_a_cell_is_its_own_and_keeps_the_variables() -> None:
    failed = outcome("class Own(Exception):\n    pass\nx = 1\nraise Own('why')")
    for _ in range(2):
        with pytest.raises(Exception, match="why") as raised:
            failed.collect()
        assert type(raised.value).__name__ == "Own"
        assert raised.value.__notes__ == [".variables() has what the cell had assigned before: Own and x."]
    assert failed.variables()["x"] == 1
    assert type(raised.value) is failed.variables()["Own"]


def test_files_that_could_not_be_uploaded_are_named_and_the_variables_kept() -> None:
    ended = outcome("x = 1", "1 file could not be uploaded: s3://b/a; refused")
    for _ in range(2):
        with pytest.raises(sky.VolumeError, match="The cell has ended on node 0, but 1 file could not") as raised:
            ended.collect()
        assert raised.value.value == ended.variables() == {"x": 1}
        assert str(raised.value).endswith(" `.variables()` has its variables.")
    failed = outcome("raise KeyError('mine')", "1 file could not be uploaded: s3://b/a; refused")
    for _ in range(2):
        with pytest.raises(KeyError) as own:
            failed.collect()
        assert own.value.__notes__ == ["Beside this error, 1 file could not be uploaded: s3://b/a; refused."]


def test_variable_that_was_not_returned_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("import threading\nx = 1\nlock = threading.Lock()").collect() == {"x": 1}
    assert "lock was not returned from node 0: " in capsys.readouterr().err


def test_placeholder_says_that_its_object_is_gone() -> None:
    gone = FormerObject()
    assert repr(gone) == "<an object of the former process, which is gone>"
    with pytest.raises(sky.UsageError, match="was in the memory of the former process, which is gone: create it again"):
        gone()
    assert not hasattr(gone, "__array_interface__")
