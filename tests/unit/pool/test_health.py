"""The health of this computer, and the names that other distributions have too."""

import os
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyward.pool.health import computer, names
from skyward.pool.health.computer import Finding, describe_findings, examine_computer
from tests.notebook import new_shell

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SKYWARD_DEFAULTS", "")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of(about: str) -> list[Finding]:
    return [each for each in examine_computer() if each.about == about]


def test_every_check_has_a_finding_and_every_problem_a_fix() -> None:
    findings = examine_computer()
    assert {"Python", "versions", "ssh", "Docker", "journal", "skyward.toml", "ports", "disk", "clock"} <= {
        each.about for each in findings
    }
    assert all(each.fix for each in findings if each.level == "problem")
    lines = describe_findings(findings)
    assert lines[0] == "this computer:"
    assert len(lines) == len(findings) + 1


def test_missing_ssh_is_a_problem_unless_asyncssh_is_there(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    monkeypatch.setenv("PATH", str(data))
    for spec, level in ((None, "problem"), (object(), "note")):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
        (finding,) = of("ssh")
        assert (finding.level, "OpenSSH's client" in finding.fix) == (level, True)


def test_engine_that_cannot_be_used_says_why(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    program = data / "docker"
    program.write_text("#!/bin/sh\necho 'permission denied on its socket' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{data}{os.pathsep}{os.environ['PATH']}")
    (finding,) = of("Docker")
    assert finding.level == "note"
    assert finding.text == "docker cannot be used: permission denied on its socket"
    assert "`docker info` must work" in finding.fix


def test_full_disk_and_wrong_clock_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=5 << 20))
    assert [each.text.partition(" free")[0] for each in of("disk")] == ["only 5.0 MiB"] * 2
    past = time.time() - 40 * 365 * 86400
    monkeypatch.setattr("time.time", lambda: past)
    (finding,) = of("clock")
    assert (finding.level, "before this package was installed" in finding.text) == ("problem", True)


def test_wrong_file_of_settings_is_named(data: Path) -> None:
    (data / "skyward.toml").write_text("[pools.x]\nnodez = 3\n")
    (finding,) = of("skyward.toml")
    assert finding.level == "problem"
    assert "nodez" in finding.text


def test_check_that_fails_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> Any:
        raise RuntimeError("no idea")

    monkeypatch.setitem(computer._CHECKS, "disk", failing)
    assert [each.text for each in of("disk")] == ["could not be checked: no idea"]
    assert of("clock")


def installed(**versions: str) -> Callable[[str], Any]:
    def distribution(name: str) -> Any:
        if name not in versions:
            raise PackageNotFoundError(name)
        return SimpleNamespace(version=versions[name], requires=())

    return distribution


def test_distributions_with_our_names_are_told_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from skyward.cli.main import main

    monkeypatch.setattr(names, "distribution", installed())
    assert (names.conflict(), names.pilot_note()) == ("", "")
    monkeypatch.setattr(names, "distribution", installed(skyward="0.12.0", skypilot="0.9.1"))
    sentence = "the distribution skyward 0.12.0 is installed beside skyward-jupyter, and both have an import package "
    assert names.conflict().startswith(sentence)
    assert "SkyPilot 0.9.1 is installed too" in names.pilot_note()
    assert main(["status"]) == 0
    assert capsys.readouterr().err.startswith(f"skyward status: {sentence}")
    monkeypatch.setattr(names, "distribution", installed(skypilot="0.9.1"))
    main(["status"])
    assert capsys.readouterr().err == "", "the command skyward is ours alone"
    monkeypatch.setattr("sys.argv", ["/usr/bin/sky"])
    main(["status"])
    assert "write `skyward` or `python -m skyward` for this one." in capsys.readouterr().err


def test_extension_says_that_another_distribution_has_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(names, "distribution", installed(skyward="0.12.0"))
    with new_shell() as shell:
        shell.run_line_magic("load_ext", "skyward")
    assert capsys.readouterr().err.startswith("Skyward: the distribution skyward 0.12.0 is installed beside ")


def test_magic_and_command_have_the_same_findings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from skyward.cli.main import main
    from skyward.frontends import pools
    from skyward.pool.account import doctor
    from skyward_kernel.commands.context import Context
    from skyward_kernel.commands.registry import COMMANDS
    from skyward_kernel.pools import PoolManager

    found = [Finding("disk", "problem", "it is full", "free some space")]
    for place in (pools, computer):
        monkeypatch.setattr(place, "examine_computer", lambda: found)
    for place in (pools, doctor):
        monkeypatch.setattr(place, "doctor", lambda providers: [])
    outcome = COMMANDS["doctor"].run(Context(PoolManager()), {})
    assert main(["doctor"]) == 1
    assert (capsys.readouterr().out, outcome.failed) == (f"{outcome.text}\n", True)
    assert outcome.text == "this computer:\n  PROBLEM: disk: it is full; free some space"
