"""Wrong options of `skyward run` and `skyward up`, which are refused before anything starts."""

from pathlib import Path

import pytest

from skyward.cli.main import main

GROUPS = """
[pools.mixed.groups.cpu]
provider = "local"
nodes = 2
vcpus = 1
[pools.mixed.groups.gpu]
provider = "local"
nodes = "0:2"
vcpus = 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("print('ran')")
    (tmp_path / "skyward.toml").write_text(GROUPS)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            "--on 5 --nodes 2",
            "--on 5: Pool 'run-t' starts with 2 nodes, of ranks 0 to 1, so there is no node 5: give it at least 6 "
            "nodes with --nodes, or name others.",
        ),
        ("--on 1 --nodes 1:4", "--on 1: Pool 'run-t' starts with 1 node, so there is no node 1: give it at least 2 "),
        ("--on 0,2:4 --nodes 3/2:4", "--on 0,2,3: Pool 'run-t' starts with 3 nodes, of ranks 0 to 2, so there is no "),
        ("--on head --nodes 0:4", "--on head: Pool 'run-t' starts with no nodes, so there is no node 0: give it at "),
        ("--on gpu", "--on gpu: Pool 'run-t' has no group of that name; it has no groups. Write one, head, all, or "),
        ("--on tpu --pool mixed", "--on tpu: Pool 'mixed' has no group of that name; its groups are cpu and gpu."),
        ("--on gpu --pool mixed", "--on gpu: group 'gpu' of pool 'mixed' starts with no nodes: give it at least one."),
        ("--on 2 --pool mixed", "--on 2: Pool 'mixed' starts with 2 nodes, of ranks 0 to 1, so there is no node 2"),
        ("--file nothing.csv", "--file nothing.csv: no such file in "),
        ("--sync nothing", "--sync nothing: no such folder in "),
        ("--fetch ../out", "--fetch ../out: it is outside the working folder "),
        ("--file t.py --file-limit 1 --provider local", "the files to send are 12 B, which is over the limit of 1 B"),
        ("--decision-log no/log", "--decision-log no/log: there is no folder no: create it, or name another file."),
        ("--decision-log .", "--decision-log .: it is a folder: name a file in it."),
    ],
)
def test_wrong_option_of_run_is_refused_before_anything_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], options: str, says: str
) -> None:
    """Regression: --on was looked at when the machines had started, and files ended with status 1."""
    status = main(["run", "t.py", *options.split()])
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith(f"skyward run: {says}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("on", ["one", "head", "all", "1", "0:2", "cpu"])
def test_nodes_that_a_pool_starts_with_are_not_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], on: str
) -> None:
    """A later option is refused instead."""
    assert main(["run", "t.py", "--pool", "mixed", "--on", on, "--file", "nothing.csv"]) == 2
    assert capsys.readouterr().err.startswith("skyward run: --file nothing.csv: no such file in ")


def test_decision_log_of_a_pool_that_stays_is_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "stays", "--detach", "--decision-log", "no/log"]) == 2
    assert capsys.readouterr().err.startswith("skyward up: --decision-log no/log: there is no folder no: ")
