"""Arithmetic and tables of the benchmarks, without timings."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import scaling
from benchmarks.__main__ import main
from benchmarks.figure import Aim, Figure, Peer, best, interleave, percentile, table
from benchmarks.report import BEGIN, END, replaced

pytestmark = pytest.mark.unit

PEERS = (Peer("dask", 8), Peer("px", None, "absent"))
FIGURE = Figure("no-op", "ms", 0.4, 0.2, "casty ask", 1.9, Aim("ratio", 1.5), PEERS)


def test_figure_has_its_floor_aim_and_peers() -> None:
    assert FIGURE.cells() == (
        "no-op",
        "0.4 ms",
        "0.2 (casty ask)",
        "2.00",
        "1.90",
        "<= 1.5x floor",
        "missed by 33%",
        "dask 8 (0.05x); px absent",
    )


def test_figure_without_floor_or_peers() -> None:
    rate = Figure("tasks", "tasks/s", 12_345.6, aim=Aim("value", 5000, at_least=True), note="7 rounds")
    assert rate.cells() == ("tasks", "12,346 tasks/s", "", "", "", ">= 5,000 tasks/s", "met", "7 rounds")


def test_figure_without_measurement_has_a_note() -> None:
    absent = Figure("cell", "ms", None, aim=Aim("value", 15), peers=[Peer("px", 0.7)], note="IPython is not installed")
    assert absent.cells()[1] == "not available"
    assert absent.cells()[-2:] == ("not measured", "px 0.7; IPython is not installed")


def test_columns_of_the_table_are_aligned() -> None:
    lines = table([FIGURE, Figure("a longer name of a figure", "s", 1)]).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {9}
    head, *rest = [[place for place, char in enumerate(line) if char == "|"][:-1] for line in lines]
    assert all(places == head for places in rest)


@pytest.mark.parametrize(
    ("aim", "value", "verdict"),
    [
        (Aim("value", 40), 40, "met"),
        (Aim("value", 40), 50, "missed by 25%"),
        (Aim("value", 5000, at_least=True), 5000, "met"),
        (Aim("value", 5000, at_least=True), 4000, "missed by 20%"),
    ],
)
def test_verdict_compares_a_value_with_its_aim(aim: Aim, value: float, verdict: str) -> None:
    assert aim.verdict(value) == verdict


def test_percentile_and_best_are_measured_values() -> None:
    assert [percentile([3, 1, 2, 4], part) for part in (0, 0.5, 0.99)] == [1, 3, 4]
    assert best([9, 9, 9, 1, 2, 3, 5], 3) == 2
    assert best([3, 1, 2]) == 1


def test_calls_alternate_after_a_batch_to_warm_up() -> None:
    made: list[str] = []
    first, second = interleave([lambda: made.append("a"), lambda: made.append("b")], batch=2, rounds=2)
    assert "".join(made) == "aabb" * 3
    assert (len(first), len(second)) == (4, 4)


def test_only_text_between_the_marks_is_replaced() -> None:
    assert replaced(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"])
def test_file_without_marks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one line <!-- figures: begin -->"):
        replaced(text, "new")


def test_run_writes_its_table_and_figures(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Runs the cheapest benchmark with all output files."""
    readme, figures = tmp_path / "README.md", tmp_path / "figures.json"
    readme.write_text(f"{BEGIN}\n{END}\n")
    main(["--only", "imports", "--quick", "--no-peers", "--json", str(figures), "--markdown", str(readme)])
    assert "| `import skyward` over bare Python |" in readme.read_text()
    assert '"unit": "ms"' in figures.read_text()
    assert " cores of " in capfd.readouterr().out


def test_unwritable_file_is_refused_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "imports", "--markdown", str(tmp_path / "absent.md")])
    assert "absent.md" in capsys.readouterr().err


def test_scaling_compares_the_chosen_policies() -> None:
    """Runs two cases of small pools, in a separate process, since policies run in processes."""
    options = ["--only", "burst/1/300s/60s", "--only", "burst/groups", "--policies", "pressure,no", "--seeds", "1"]
    command = [sys.executable, "-m", "benchmarks.scaling", *options, "--nodes", "8", "--hours", "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    head = [cell.strip() for cell in lines[2].split("|")[1:-1]]
    rows = [dict(zip(head, (cell.strip() for cell in line.split("|")[1:-1]), strict=True)) for line in lines[4:8]]
    assert [(row["slots"], row["policy"].split(",")[0]) for row in rows] == [
        *(("1", "pressure"), ("1", "no")),
        *(("groups", "pressure"), ("groups", "no")),
    ]
    assert all(float(row["to the bound"].rstrip("x")) >= 1 for row in rows if row["to the bound"] != "-")


def test_cases_of_scaling_are_those_of_the_readme() -> None:
    cases = scaling.CASES
    assert len({case.name for case in cases}) == len(cases)
    assert {case.pool for case in cases} == {"1", "8", "16", "groups"}
    assert {case.task for case in cases} == {0.01, 1, 30, 300, 3600}
    assert {case.boot for case in cases} == {10, 60, 400}
    assert len(cases[0].scenario(100, 24, "no", 0).tasks()) > 100


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--policies", "presure"], "There is no scaling policy 'presure'; did you mean 'pressure'?"),
        (["--only", "nothing"], "no case matches --only nothing; one is burst/1/300s/60s"),
        (["--seeds", "0"], "--nodes, --hours and --seeds must be above 0"),
    ],
)
def test_scaling_refuses_wrong_options(capsys: pytest.CaptureFixture[str], options: list[str], says: str) -> None:
    with pytest.raises(SystemExit):
        scaling.main(options)
    assert says in capsys.readouterr().err
