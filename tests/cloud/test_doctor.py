"""Checks of the credentials of clouds."""

from pathlib import Path

import pytest

import skyward as sky
from skyward.cli.main import main
from tests.fakes.runpod import KEY, FakeRunPod
from tests.fakes.server import Answer

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def configured(runpod: FakeRunPod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYWARD_DEFAULTS", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "skyward.toml").write_text(
        f'[providers.pods]\ntype = "runpod"\napi_key = "{KEY}"\nendpoint = "{runpod.url}"\n'
    )


def test_working_credentials_have_no_problem() -> None:
    (cloud,) = sky.doctor(["pods"])
    assert cloud.is_usable
    assert cloud.found == "the settings"
    assert [check.problem for check in cloud.checks] == ["", ""]


def test_refused_credentials_are_a_problem_with_its_fix(runpod: FakeRunPod, capsys: pytest.CaptureFixture[str]) -> None:
    runpod.fail("GET", "/v1/pods", Answer(401, {"error": "revoked"}), times=-1)
    assert main(["doctor", "pods", "--policy"]) == 1
    told = capsys.readouterr().out
    assert "PROBLEM: may list pods: RunPod refuses the API key (401: revoked)" in told
    assert "ok: may list offers" in told
    assert "least permissions:" in told
    assert KEY not in told


def test_key_that_the_cloud_repeats_is_not_printed(runpod: FakeRunPod, capsys: pytest.CaptureFixture[str]) -> None:
    runpod.fail("GET", "/v1/pods", Answer(401, {"error": f"unknown key {KEY}"}), times=-1)
    assert main(["doctor", "pods"]) == 1
    told = capsys.readouterr().out
    assert "unknown key ***" in told
    assert KEY not in told


def test_cloud_without_credentials_says_how_to_give_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "skyward.toml").unlink()
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    (cloud,) = sky.doctor(["runpod"])
    assert not cloud.is_usable
    assert cloud.how.startswith("set RUNPOD_API_KEY")


def test_unknown_cloud_is_refused() -> None:
    with pytest.raises(sky.ProviderMissingError, match="did you mean 'pods'"):
        sky.doctor(["pod"])
