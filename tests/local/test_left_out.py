"""Sentences of the command line on nodes of an open pool that a script did not run on."""

import pytest

import skyward as sky
from skyward.cli.scripts.everywhere import tell_left_out

pytestmark = pytest.mark.local


def test_nodes_that_a_script_did_not_run_on_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: a script for all nodes left some out without a line."""
    with sky.Compute(name="some", provider=sky.Local(), nodes=2) as pool:
        for on, ran in (("all", [0, 1]), ("one", [1]), ("head", [0]), (1, [1])):
            tell_left_out(pool, on, ran, "t.py", stays=True)
        assert "did not run" not in capsys.readouterr().err
        tell_left_out(pool, "all", [1], "t.py", stays=True)
    said = "t.py did not run on node 0 of pool 'some', since it was not ready: run it there with `--on 0`.\n"
    assert said in capsys.readouterr().err
