"""The scaling cases: those in `../shared/cases`, if present, and our own."""

import json
from pathlib import Path

import pytest

from tests.scaling.run_cases import ANSWERS, Result, main, problem, run

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
OWN = sorted((ROOT / "tests" / "scaling" / "cases").glob("*.json"))
SHARED = ROOT.parent / "shared" / "cases"


def failures(results: list[Result]) -> list[str]:
    return [f"{result.id}: {result.problem}" for result in results if result.problem is not None]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_own_cases_pass(path: Path) -> None:
    assert not failures(run(path))


def test_own_cases_cover_every_kind() -> None:
    results = [result for path in OWN for result in run(path)]
    assert len(results) >= 40
    assert {result.kind for result in results} == set(ANSWERS)
    assert len({result.id for result in results}) == len(results)


def test_shared_cases_pass() -> None:
    paths = sorted(SHARED.glob("*.json"))
    if not paths:
        pytest.skip(f"no shared cases: {SHARED} has no JSON file")
    results = [result for path in paths for result in run(path)]
    assert results
    assert not failures(results)


RECONCILE = {"id": "r", "kind": "seed_reconcile", "title": "up", "input": {"current": [0], "pending": [], "desired": 3}}
GATE = {
    "id": "g",
    "kind": "gate",
    "input": {"queued": {"a": 9}, "upscaling_speed": 4, "max_concurrent_launches": 10},
}
PLAN = {
    "id": "p",
    "kind": "plan",
    "input": {"node_types": {"a": {"resources": {"CPU": 1}, "min": 0, "max": 1}}, "demands": [{"bundle": {"CPU": 2}}]},
}


@pytest.mark.parametrize(
    ("case", "passes"),
    [
        ({**RECONCILE, "expect": {"provision": 2, "drain": []}}, True),
        ({**RECONCILE, "expect": {"provision": 2}}, True),
        ({**RECONCILE, "expect": {"provision": 1, "drain": []}}, False),
        ({**RECONCILE, "expect": {"launched": 2}}, False),
        ({**RECONCILE, "expect": {}}, False),
        ({**RECONCILE, "expect": {}, "expect_any_of": {"provision": [1, 2]}}, True),
        ({**RECONCILE, "expect": {"drain": []}, "expect_any_of": [{"provision": 1}, {"provision": 2}]}, True),
        ({**RECONCILE, "expect": {}, "expect_any_of": {"provision": [1, 3]}}, False),
        ({**GATE, "expect": {"launch_now": {"a": 1}}, "expect_2_48": {"launch_now": {"a": 4, "b": 0}}}, True),
        ({**GATE, "expect": {"launch_now": {"a": 1}}, "expect_2_48": {"launch_now": {"a": 2}}}, False),
        ({**PLAN, "expect": {"infeasible_demands": [{"CPU": 2.0}]}}, True),
        ({**PLAN, "expect": {"infeasible_demands": [{"GPU": 2}]}}, True),
        ({**PLAN, "expect": {"infeasible_demands": [{"CPU": 2}, {"CPU": 2}]}}, False),
        ({**PLAN, "expect": {"infeasible_demands": []}}, False),
        ({"id": "x", "kind": "weather", "input": {}, "expect": {}}, False),
        ({"id": "x", "kind": "gate", "input": {}, "expect": {}}, False),
    ],
)
def test_runner_tells_passes_from_failures(case: dict[str, object], passes: bool) -> None:
    assert (problem(case) is None) is passes


def test_last_line_counts_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {**RECONCILE, "expect": {"provision": 2}}
    bad = {**RECONCILE, "expect": {"provision": 9}}
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [good, bad]}))
    assert main([str(path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "FAILED r (seed_reconcile): up"
    assert printed[-1] == "1 passed, 1 failed"
    path.write_text(json.dumps([good]))
    assert main([str(path), str(path)]) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed\n"
