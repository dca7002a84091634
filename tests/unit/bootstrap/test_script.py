"""The script of a plan as text, and the validation of plans."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

import skyward as sky
from skyward.bootstrap import PHASES, PackageSource, Plan, client_settings, script
from skyward.bootstrap.plan import _TAKEN, OnClient
from skyward.bootstrap.script import command, fetch_limit, limits
from skyward.errors import SpecError
from skyward.specs.image import PipIndex
from skyward.specs.plugin import PluginStep

SOURCE = PackageSource("skyward-jupyter==0.1.0", ("casty>=0.30", "cloudpickle>=3.1"))


def plan(directory: str | None = None, plugins: tuple[PluginStep, ...] = (), **given: object) -> Plan:
    image = sky.Image(**given)  # type: ignore[arg-type]  # whatever an image takes
    return Plan.of(image, source=SOURCE, directory=directory, plugins=plugins)


@pytest.fixture
def full() -> Plan:
    return plan(
        directory="~/it is here",
        plugins=(PluginStep("mps", "nvidia-cuda-mps-control -d\necho 'on'"),),
        python="3.13.1",
        pip=["torch==${TORCH}", "numpy>=2; python_version > '3'", "git+https://host/a$b`c`\\d"],
        pip_indexes=[PipIndex("https://host/cpu", ["torch"]), PipIndex("https://host/more")],
        apt=["ffmpeg", "libc6:amd64", "jq=1.7*"[:6]],
        env={"A": 'it\'s "$HOME" \\ `x`\nEND_OF_THIS\n'},
        shell_vars={"TORCH": "echo 2.0 # 'quoted'"},
    )


def function(text: str, name: str) -> str:
    """Return the body of a function of the script."""
    return text.partition(f"\n{name}() {{\n")[2].partition("\n}\n")[0]


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_script_is_valid_in_every_shell(full: Plan, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    done = subprocess.run([shell, "-n"], input=script(full), capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


def test_shellcheck_finds_nothing(full: Plan) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("there is no shellcheck here")
    checked = ["shellcheck", "--shell=sh", "-"]
    done = subprocess.run(checked, input=script(full), capture_output=True, text=True, check=False, timeout=50)
    assert done.stdout == ""


def test_shellcheck_finds_nothing_in_a_plan_for_the_clients_machine(full: Plan) -> None:
    made = replace(full, on_client=OnClient("/usr/bin/python 3", layered=True, source="/it's here", digest=""))
    test_shellcheck_finds_nothing(made)


def test_truncated_script_does_nothing(full: Plan, tmp_path: Path) -> None:
    """A broken link may truncate the script, and a shell would run the rest."""
    text = script(replace(full, directory=str(tmp_path / "made"))).encode()
    lines = text.splitlines(keepends=True)
    for end in range(0, len(lines) - 2, 7):
        subprocess.run(["sh"], input=b"".join(lines[:end]), capture_output=True, check=False, timeout=20)
    assert not list(tmp_path.iterdir())


def test_script_is_deterministic(full: Plan) -> None:
    assert script(full) == script(replace(full))
    assert command(full, script(full)) != command(full, script(full) + "#")


def test_image_hash_depends_on_the_environment_only() -> None:
    base = plan()
    same = [plan(directory="/opt/x"), plan(plugins=(PluginStep("p", "true"),)), plan(bootstrap_timeout=9.0)]
    assert {each.image_hash for each in same} == {base.image_hash}
    others = [
        plan(python="3.12" if sys.version_info[:2] != (3, 12) else "3.13"),
        plan(pip=["numpy"]),
        plan(pip=["numpy"], pip_indexes=[PipIndex("https://host/simple", ["numpy"])]),
        plan(apt=["jq"]),
        plan(env={"A": "1"}),
        plan(shell_vars={"A": "1"}),
        plan(shell_vars={"A": "1", "B": "2"}),
        plan(shell_vars={"B": "2", "A": "1"}),
        replace(base, source=PackageSource("skyward-jupyter==0.2.0", SOURCE.dependencies)),
        replace(base, source=PackageSource(SOURCE.requirement, ("casty>=0.31",))),
    ]
    hashes = {base.image_hash, *(each.image_hash for each in others)}
    assert len(hashes) == len(others) + 1
    assert all(re.fullmatch("[0-9a-f]{12}", each) for each in hashes)


def test_project_file_has_requirements_and_indexes(full: Plan) -> None:
    text = script(full)
    project, requirements = function(text, "project"), function(text, "requirements")
    assert 'dependencies = ["torch==${TORCH}"]' in project
    assert 'url = "https://host/cpu"\nexplicit = true' in project
    assert 'url = "https://host/more"\nexplicit' not in project
    assert '[tool.uv.sources]\ntorch = { index = "index0" }' in project
    assert requirements.splitlines()[1:-2] == [
        "numpy>=2; python_version > '3'", r"git+https://host/a\$b\`c\`\\d", *SOURCE.dependencies,
    ]  # fmt: skip  # as a list


def test_git_is_installed_for_git_requirements_only(full: Plan) -> None:
    assert "\ngit='yes'\n" in script(full)
    assert "\ngit=''\n" in script(plan(pip=["gitpython"]))


def test_script_contains_no_address() -> None:
    assert "://" not in script(plan(pip=["numpy"]))


@pytest.mark.parametrize(
    ("directory", "assigned"),
    [
        (None, 'if [ "$(id -u)" = 0 ]; then root=/opt/skyward; else root=$HOME/.skyward; fi'),
        ("/data/sky ward", "root='/data/sky ward'"),
        ("~/sky ward", "root=$HOME/'sky ward'"),
    ],
)
def test_directory_is_assigned_to_root(directory: str | None, assigned: str) -> None:
    made = plan(directory=directory)
    assert f"\n{assigned}\n" in script(made)
    assert assigned.split("'")[0] in command(made, "")


def test_phases_are_limited_by_the_bootstrap_timeout() -> None:
    assert limits(plan(bootstrap_timeout=3600.0)) == {
        "env": 60, "apt": 3600, "uv": 300, "deps": 3600, "skyward": 180, "includes": 300, "plugins": 3600, "worker": 60,
    }  # fmt: skip  # as a table
    assert limits(plan(bootstrap_timeout=20.0)) == dict.fromkeys(PHASES, 20)
    assert fetch_limit(plan(bootstrap_timeout=20.0)) == 10


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"env": {"A-B": "x"}}, "env must have names of shell variables"),
        ({"shell_vars": {"1": "x"}}, "shell_vars must have names of shell variables"),
        (
            {"env": {"python": "x"}},
            "env names a variable 'python', which the bootstrap itself uses: write it in capitals.",
        ),
        ({"env": {"limit_env": "x"}}, "env names a variable 'limit_env', which the bootstrap itself uses"),
        ({"pip": ["torch==${TORCH}"]}, "pip has 'torch==${TORCH}', and neither shell_vars nor env defines TORCH."),
        ({"pip": ["a\nb"]}, "pip must have one requirement in each entry, but got 'a\\nb'."),
        ({"apt": ["jq; reboot"]}, "apt must have names of packages, but got 'jq; reboot'."),
        ({"apt": ["-y"]}, "apt must have names of packages, but got '-y'."),
        ({"directory": "here"}, "directory must be an absolute path, or begin with '~/', but got 'here'."),
        ({"directory": "/a$(reboot)"}, "directory must be an absolute path"),
    ],
)
def test_invalid_values_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError, match=re.escape(says)):
        plan(**given)  # type: ignore[arg-type]  # arguments of the case


def test_variables_of_the_script_are_reserved() -> None:
    text = files("skyward.bootstrap").joinpath("node.sh").read_text() + script(plan())
    text = re.sub(r"(?m)^ *#.*$", "", text)
    text = re.sub(r"(?s)-c '\n.*?'", "", text)  # Python code
    assigned = set(re.findall(r"(?m)(?:^|[ ;({])([a-z_]+)=", text)) | set(re.findall(r"\bfor ([a-z_]+) in", text))
    for words in re.findall(r"\bread -r ([a-z_ ]+)", text):
        assigned |= set(words.split())
    ours = {name for name in assigned if not name.startswith(("limit_", "peer_"))} - {"_"}
    assert {"image_hash", "clock", "candidate", "name"} <= ours
    assert ours <= _TAKEN, sorted(ours - _TAKEN)


def test_names_of_settings_are_validated() -> None:
    with pytest.raises(
        SpecError, match=re.escape("settings names a variable 'A-B', which is not a valid name in a shell.")
    ):
        replace(plan(), settings={"A-B": "x"})


def test_repr_of_a_plan_hides_secrets() -> None:
    made = replace(plan(env={"TOKEN": "secret1"}), settings={"PIP_INDEX_URL": "https://me:secret2@host"})
    assert "secret" not in repr(made)


def test_client_settings_are_those_valid_on_other_machines() -> None:
    environ = {
        "PIP_INDEX_URL": "a", "PIP_FIND_LINKS": "b", "UV_INDEX": "c", "UV_INDEX_MINE_PASSWORD": "d",
        "SSL_CERT_FILE": "e",
        "UV_PYTHON_INSTALL_MIRROR": "f", "UV_PYTHON": "no", "UV_PROJECT_ENVIRONMENT": "no", "UV_CACHE_DIR": "no",
        "UV_TOOL_DIR": "no", "PIP_TARGET": "no", "HOME": "no", "UV": "no", "UV_ENV_FILE": "no",
        "UV_PYTHON_PREFERENCE": "no", "UV_PYTHON_DOWNLOADS_JSON_URL": "g",
    }  # fmt: skip  # as a table
    assert client_settings(environ) == {name: value for name, value in sorted(environ.items()) if value != "no"}
