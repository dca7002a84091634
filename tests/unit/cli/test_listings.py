"""Answers of `skyward config` and `skyward status`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from skyward.cli.main import main
from skyward.cli.pools.status import status
from skyward.pool.reaping import recorded_pools
from skyward.pool.reaping.recorded_pools import RecordedMachine, RecordedPool

BIG = """
[pools.big]
nodes = "2:4"
vcpus = 2
budget = 5
cluster = false
provider = ["local", "aws"]
[pools.big.image]
pip = ["numpy"]
[pools.big.image.env]
TOKEN = "secret"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skyward.toml").write_text(BIG)
    return tmp_path


def test_settings_have_the_types_of_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: all of them were texts."""
    assert main(["config", "big", "--json"]) == 0
    out = capsys.readouterr().out
    found = {row["field"]: row["value"] for row in json.loads(out)}
    assert {name: found[name] for name in ("nodes", "vcpus", "budget", "cluster", "region", "ttl")} == {
        "nodes": "2:4",
        "vcpus": 2,
        "budget": 5,
        "cluster": False,
        "region": None,
        "ttl": 600,
    }
    assert (found["provider"], found["image.pip"], found["image.env"]) == (["local", "aws"], ["numpy"], ["TOKEN"])
    assert "secret" not in out


def test_numbers_of_nodes_are_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "skyward.toml").write_text("[pools.small]\nnodes = 3\n")
    assert main(["config", "--json"]) == 0
    (nodes,) = (row for row in json.loads(capsys.readouterr().out) if row["field"] == "nodes")
    assert nodes["value"] == 3


@pytest.mark.parametrize(("name", "hint"), [("bg", "; did you mean 'big'?"), ("other", "; it has big.")])
def test_settings_of_an_unknown_pool_say_so(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, hint: str
) -> None:
    """Regression: the defaults were shown as if they were those of a pool."""
    assert main(["config", name]) == 0
    out, err = capsys.readouterr()
    assert f"pool '{name}'" in out
    assert err == (
        f"skyward config: There is no pool '{name}' in skyward.toml, so these are the settings of any pool without a "
        f"table of its own{hint}\n"
    )
    assert main(["config", "big"]) == 0
    assert capsys.readouterr().err == ""


def test_machine_that_is_no_node_has_its_state_in_its_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: the column of the node was empty."""
    node = RecordedMachine("m-0", 0, "place", "address", None, directory="node=/a")
    starting, leaving = RecordedMachine("m-1", None, "place", "address", None), replace(node, id="m-2", rank=None)
    machines = (node, starting, leaving)
    pool = RecordedPool("p-1", "p", "", 1, "here", 0.0, 0.0, 60.0, machines, 0.0, 0.0, None, True, True, 0.0, 0)
    listed = [pool]
    monkeypatch.setattr(recorded_pools, "recorded_pools", lambda name: listed)
    assert status(pool="p") == 0
    rows = capsys.readouterr().out.splitlines()[-3:]
    assert [(row.split()[0], row.split()[3]) for row in rows] == [
        ("0", "active"),
        ("none", "starting"),
        ("none", "leaving"),
    ]
    listed = [replace(pool, machines=(leaving, replace(node, ended=True)), warm_until=99.0)]
    assert status(pool="p") == 0
    warm, gone = capsys.readouterr().out.splitlines()[-2:]
    assert (warm.split()[3], gone.split()[3]) == ("warm", "gone")
