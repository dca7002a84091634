"""`skyward offers` and `%sky offers`: the table, notes, JSON, and errors."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from skyward.cli.main import main
from skyward.commands.words import parse
from skyward.frontends import pools as frontend
from skyward.market.survey import MachineOffer, Survey
from skyward.pool.account import offers as pool_offers
from skyward.views.offers import offer_table
from skyward_kernel.commands.context import Context
from skyward_kernel.commands.registry import COMMANDS
from skyward_kernel.pools import PoolManager


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        status = main(["offers", *arguments])
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    return status, *capsys.readouterr()


def test_table_has_the_offers_of_a_provider(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--provider", "local")
    assert (status, err) == (0, "")
    head, row = out.splitlines()
    assert head.split("  ")[0] == "provider"
    assert row.startswith("local ")
    assert row.rstrip().endswith("now")


def test_table_leaves_out_unknown_columns_and_names_accelerators_as_options_take_them() -> None:
    listed = datetime(2026, 7, 1, tzinfo=UTC)
    card = MachineOffer(
        "cloud", "gpu-2", "", "spot", 0.7, "NVIDIA GeForce RTX 4090", 2, 0, 0, "x86_64", listed, "catalogue"
    )
    head, row = offer_table([card]).splitlines()
    assert head.split() == ["provider", "type", "accelerator", "market", "$/hour", "price", "of"]
    assert row.split() == ["cloud", "gpu-2", "RTX_4090:2", "spot", "$0.70", "2026-07-01,", "catalogue"]
    head, *rows = offer_table([card, replace(card, region="here", vcpus=8)]).splitlines()
    assert head.split()[3:5] == ["vCPUs", "region"]
    assert [each.split()[3] for each in rows] == ["?", "8"]


def test_json_has_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--provider", "local", "--json", "--limit", "1")
    assert status == 0
    (row,) = json.loads(out)
    assert set(row) == set(MachineOffer.__dataclass_fields__)
    assert (row["provider"], row["origin"], row["is_current"]) == ("local", "provider", True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--provider", "lokal"), "did you mean 'local'?"),
        (("--gpu", "A1000"), "There is no accelerator 'A1000'"),
        (("--limit", "0"), "--limit takes a positive whole number, but got '0'."),
        (("--vcpus", "-3"), "--vcpus takes a number, but got '-3'."),
    ],
)
def test_error_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status > 0, out) == (True, "")
    assert sentence in err
    assert err.startswith("skyward offers: ")
    assert len(err.splitlines()) == 1


def test_options_are_fields_of_a_spec(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def survey(*arguments: Any, **options: Any) -> Survey:
        asked.append((arguments[1], options["limit"]))
        return Survey((), {"cloud": "Provider 'cloud' did not list its offers (no route)."})

    monkeypatch.setattr(pool_offers, "survey_offers", survey)
    monkeypatch.setattr(frontend, "survey_offers", survey)
    line = ["--gpu", "A100:2", "--vcpus", "4", "--provider", "a,b", "--spot", "--limit", "3"]
    _, _, err = run(capsys, *line)
    assert err.startswith("skyward offers: Provider 'cloud' did not list its offers (no route).\n")
    command, context = COMMANDS["offers"], Context(PoolManager())
    outcome = command.run(context, parse(command, line))
    assert outcome.text.startswith("Provider 'cloud' did not list its offers (no route).\nNo offer fits")
    typed, of_cell = asked
    assert str(typed[0].pop("accelerator")) == str(of_cell[0].pop("accelerator")) == "A100-80GB:2"
    assert typed == of_cell == ({"vcpus": 4.0, "provider": "a,b", "allocation": "spot"}, 3)


def test_magic_shows_the_table_and_the_notes() -> None:
    outcome = COMMANDS["offers"].run(Context(PoolManager()), {"provider": "local"})
    assert outcome.table.startswith("provider ")
    assert outcome.text == ""
