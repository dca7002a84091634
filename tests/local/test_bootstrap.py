"""Environments created by the real script, in `sh`, from packages on this machine."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import skyward as sky
from skyward.bootstrap import (
    PHASES,
    BootstrapError,
    PackageSource,
    PhaseEvent,
    Plan,
    Ready,
    bootstrap,
    worker_environment,
)
from skyward.specs.image import PipIndex
from skyward.specs.plugin import PluginStep
from skyward.wire.transport.secrets import SECRETS_VARIABLE
from skyward.wire.transport.trust import issue_secrets
from tests.local.bootstrapping import ShellNode, make_wheel, repack

UV = Path(sys.executable).with_name("uv")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"

type Planner = Callable[..., Plan]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(folder, name)
    make_wheel(folder, "torchy", "1.0")
    make_wheel(folder, "torchy", "2.0")
    make_wheel(folder, "visiony", "1.0", ["torchy"])
    return folder


@pytest.fixture
def planner(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Planner:
    cache = tmp_path_factory.getbasetemp() / "uv-cache"

    def make(image: sky.Image | None = None, **given: Any) -> Plan:
        settings = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1", "UV_CACHE_DIR": str(cache)}
        settings |= given.pop("settings", {})
        return Plan.of(image or sky.Image(), directory="~/of skyward", settings=settings, search_path=[], **given)

    return make


@pytest.fixture
def node(tmp_path: Path) -> ShellNode:
    made = ShellNode(tmp_path / "node")
    made.link("uv", UV.resolve())
    return made


def make(node: ShellNode, plan: Plan, reports: list[PhaseEvent] | None = None) -> Ready:
    return asyncio.run(bootstrap(node, plan, None if reports is None else reports.append))


def happened(reports: list[PhaseEvent]) -> dict[str, str]:
    """Return the last report of each phase."""
    return {event.phase: event.event for event in reports}


def ask(plan: Plan, ready: Ready, program: str) -> str:
    """Return the output of a program that runs in the environment."""
    done = subprocess.run(
        [ready.facts.executable, "-c", program],
        env=worker_environment(plan, ready), capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip  # one option per line would hide the command
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_image_becomes_an_environment(node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("WHO = 'me'\n")
    image = sky.Image(
        python=VERSION,
        pip=["torchy==${TORCHY}"],
        env={"GREETING": 'it\'s $HOME "and" `more`\nlines', "PYTHONPATH": "/elsewhere"},
        shell_vars={"ONE": "echo 1", "TORCHY": "echo $ONE.0", "QUOTED": 'printf "it\'s\\n\\n two"'},
        includes=["mine"],
    )
    plan = planner(image, cwd=tmp_path)
    reports: list[PhaseEvent] = []
    ready = make(node, plan, reports)
    assert happened(reports) == dict.fromkeys(PHASES, "completed") | {"apt": "skipped", "plugins": "skipped"}
    assert [event.phase for event in reports if event.event != "completed"] == list(PHASES)
    assert ready.directory == f"{node.home}/of skyward"
    assert ready.facts.executable == f"{ready.directory}/envs/{plan.image_hash}/bin/python"
    assert ready.facts.python == ".".join(map(str, sys.version_info[:3]))
    assert ready.facts.packages["torchy"] == "1.0"
    assert ready.facts.packages["skyward-jupyter"].startswith(f"{version('skyward-jupyter')}+local.")
    assert "ipython" not in ready.facts.packages
    assert ready.facts.variables == {
        **image.env, "ONE": "1", "TORCHY": "1.0", "QUOTED": "it's\n\n two",
    }  # fmt: skip  # a table
    assert ask(plan, ready, "import mine, torchy; print(mine.WHO, torchy.VERSION)") == "me 1.0"
    assert "Greeting" not in repr(plan)
    assert "more" not in repr(ready)


def test_existing_environment_takes_one_command(node: ShellNode, planner: Planner) -> None:
    plan = planner()
    first = make(node, plan)
    node.commands.clear()
    node.link("apt-get", Path("/nonexistent"))
    (node.bin / "uv").unlink()
    reports: list[PhaseEvent] = []
    assert make(node, plan, reports) == first
    assert len(node.commands) == 1
    assert happened(reports) == dict.fromkeys(PHASES, "skipped")


def on_machine(node: ShellNode, name: str) -> None:
    """Let the node be a machine of that name, which shares its directory with others."""
    node.program("uname", f'[ "$1" != -n ] || {{ echo {name}; exit; }}\nexec /usr/bin/uname "$@"')


def test_machines_that_share_a_directory_have_their_own_values_of_variables(node: ShellNode, planner: Planner) -> None:
    (node.home / "wanted").write_text("1.0")
    plan = planner(
        sky.Image(
            python=VERSION,
            pip=["torchy==${WANTED}"],
            env={"GREETING": "hello"},
            shell_vars={"WHERE": "uname -n", "BOTH": 'echo "$WHERE $GREETING"', "WANTED": "cat $HOME/wanted"},
        )
    )
    on_machine(node, "one")
    first = make(node, plan)
    assert first.facts.variables == {"GREETING": "hello", "WHERE": "one", "BOTH": "one hello", "WANTED": "1.0"}
    on_machine(node, "two")
    reports: list[PhaseEvent] = []
    second = make(node, plan, reports)
    assert happened(reports) == dict.fromkeys(PHASES, "skipped") | {"worker": "completed"}
    assert second.facts == replace(
        first.facts, variables={**first.facts.variables, "WHERE": "two", "BOTH": "two hello"}
    )
    reports.clear()
    assert make(node, plan, reports) == second
    assert happened(reports) == dict.fromkeys(PHASES, "skipped")
    on_machine(node, "one")
    assert make(node, plan) == first
    (node.home / "wanted").write_text("2.0")
    on_machine(node, "three")
    with pytest.raises(BootstrapError, match=r"(?s)have other values on this machine than on one, and both use"):
        make(node, plan)


def test_removed_environment_is_created_again(node: ShellNode, planner: Planner) -> None:
    plan = planner()
    ready = make(node, plan)
    shutil.rmtree(Path(ready.facts.executable).parents[1])
    assert make(node, plan).facts.packages == ready.facts.packages
    assert Path(ready.facts.executable).exists()


@pytest.mark.parametrize("phase", [phase for phase in PHASES if phase != "apt"])
def test_bootstrap_killed_in_any_phase_resumes(phase: str, node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("WHO = 'me'\n")
    steps = [PluginStep("mps", "echo started >>$HOME/plugin")]
    plan = planner(sky.Image(pip=["torchy"], includes=["mine.py"], env={"A": "b"}), cwd=tmp_path, plugins=steps)

    def kill(event: PhaseEvent) -> None:
        if (event.phase, event.event) == (phase, "started"):
            node.kill()

    reached = PHASES[PHASES.index(phase) :]  # a short phase may have ended before the kill
    with pytest.raises(BootstrapError, match=f"status (-9|137) in phase '({'|'.join(reached)})'") as caught:
        asyncio.run(bootstrap(node, plan, kill))
    assert caught.value.phase in reached
    ready = make(node, plan)
    assert ready.facts.variables == {"A": "b"}
    assert ask(plan, ready, "import mine, torchy, skyward.worker.__main__; print(mine.WHO)") == "me"


def test_half_installed_packages_are_installed_again(node: ShellNode, planner: Planner) -> None:
    plan = planner(sky.Image(pip=["torchy"]))
    node.program("uv", f'case "$*" in *"-r requirements"*) {UV} "$@"; rm "$4"/../../lib/*/site-packages/torchy.py; '
                       f'echo cut; exit 9;; esac; exec {UV} "$@"')  # fmt: skip  # one command
    with pytest.raises(BootstrapError, match="'deps' failed"):
        make(node, plan)
    node.program("uv", f'exec {UV} "$@"')
    ready = make(node, plan)
    assert ask(plan, ready, "import torchy; print(torchy.VERSION)") == "2.0"


def test_failure_names_its_phase_and_shows_its_last_lines(node: ShellNode, planner: Planner) -> None:
    with pytest.raises(BootstrapError) as caught:
        make(node, planner(sky.Image(pip=["not-there-at-all"])))
    assert caught.value.phase == "deps"
    assert str(caught.value).startswith("bootstrap phase 'deps' failed (status 1)")
    assert "not-there-at-all" in "".join(caught.value.lines)


def test_version_of_skyward_that_no_index_has_is_named(node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    make_wheel(tmp_path, "skyward_jupyter", "0.0.1")
    plan = planner()
    absent = replace(plan, source=PackageSource("skyward-jupyter==9.9", plan.source.dependencies))
    for links in (plan.settings["PIP_FIND_LINKS"], f"{plan.settings['PIP_FIND_LINKS']} {tmp_path}"):
        with pytest.raises(BootstrapError) as caught:
            make(node, replace(absent, settings={**plan.settings, "PIP_FIND_LINKS": links}))
        assert caught.value.phase == "skyward"
        assert (
            '; the package index has no skyward-jupyter==9.9: sky.Image(skyward_source="local") sends the copy of this '
            "computer instead:\n"
        ) in str(caught.value)


@pytest.mark.parametrize("says", ['"quotes" \\ and \\n', "tabs\tand\x1b[31m colours", "a bar\r50 %\r100 %", "\xff\xfe"])
def test_any_output_can_be_reported(says: str, node: ShellNode, planner: Planner) -> None:
    (node.home / "says").write_bytes(says.encode("latin-1"))
    with pytest.raises(BootstrapError) as caught:
        make(node, planner(sky.Image(shell_vars={"A": "cat $HOME/says; cat $HOME/says >&2; echo >&2; exit 3"})))
    assert caught.value.phase == "env"
    assert "shell_vars: the command of A ended with status 3" in caught.value.lines[-1]
    if says.isprintable() and says.isascii():
        assert caught.value.lines[0] == says
        assert caught.value.log.splitlines()[0] == says


def test_only_the_last_lines_are_reported(node: ShellNode, planner: Planner) -> None:
    with pytest.raises(BootstrapError) as caught:
        make(node, planner(plugins=[PluginStep("loud", "seq 1 100000; exit 1")]))
    assert caught.value.lines[-2:] == ("100000", "the set-up of plugin loud ended with status 1")
    assert len(caught.value.lines) == 20


def test_phase_past_its_deadline_is_ended(node: ShellNode, planner: Planner) -> None:
    image = sky.Image(shell_vars={"A": "echo waiting >&2; sleep 1000"}, bootstrap_timeout=1)
    with pytest.raises(BootstrapError, match="'env' exceeded its limit of 1 s:\nwaiting"):
        make(node, planner(image))


def test_plugins_run_each_time_and_see_the_environment(node: ShellNode, planner: Planner) -> None:
    plan = planner(sky.Image(env={"A": "b"}), plugins=[PluginStep("p", 'echo "$A $(command -v python)" >>"$HOME/ran"')])
    for _ in range(2):
        ready = make(node, plan)
    assert (node.home / "ran").read_text() == f"b {ready.facts.executable}\n" * 2


def test_process_started_by_a_plugin_does_not_block_the_bootstrap(node: ShellNode, planner: Planner) -> None:
    plan = planner(plugins=[PluginStep("p", "sleep 1000 & echo $! >$HOME/daemon")])
    try:
        make(node, plan)
        other = planner(sky.Image(env={"A": "b"}), plugins=plan.plugins[:0])
        make(node, other)
    finally:
        subprocess.run(["kill", (node.home / "daemon").read_text().strip()], check=True)


def test_two_concurrent_bootstraps_create_the_environment_once(node: ShellNode, planner: Planner) -> None:
    plan = planner(sky.Image(pip=["torchy"]))
    node.program("uv", f'case "$*" in *"-r requirements"*) echo made >>$HOME/made;; esac; exec {UV} "$@"')
    other = ShellNode(node.home / "other")
    other.home, other.path = node.home, node.path

    async def both() -> tuple[Ready, Ready]:
        return await asyncio.gather(bootstrap(node, plan), bootstrap(other, plan))

    first, second = asyncio.run(both())
    assert first == second
    assert (node.home / "made").read_text() == "made\n"


def test_includes_follow_edits_and_deletions(node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "__init__.py").write_text("from mine.one import ONE\n")
    (folder / "one.py").write_text("ONE = 1\n")
    (folder / "two.py").write_text("TWO = 2\n")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    image = sky.Image(includes=["mine"])
    look = "import mine, os, sys; print(mine.ONE, *sorted(os.listdir(mine.__path__[0])))"
    before = planner(image, cwd=tmp_path)
    was = make(node, before)
    (folder / "one.py").write_text("ONE = 'edited'\n")
    (folder / "two.py").unlink()
    node.commands.clear()
    node.given.clear()
    after = planner(image, cwd=tmp_path)
    reports: list[PhaseEvent] = []
    now = make(node, after, reports)
    assert after.image_hash == before.image_hash
    assert [phase for phase, event in happened(reports).items() if event == "completed"] == ["includes"]
    assert len(node.commands) == 2  # the script, which waits for the missing file, and its transfer
    assert len(node.given[1]) < 250  # one small file
    assert ask(after, now, f"import sys; sys.dont_write_bytecode = True; {look}") == "edited __init__.py one.py tool"
    assert ask(before, was, f"import sys; sys.dont_write_bytecode = True; {look}") == "1 __init__.py one.py tool two.py"
    tool = Path(now.directory, "trees", after.includes.digest, "mine", "tool")
    assert tool.stat().st_mode & 0o777 == 0o755


def test_corrupt_file_is_sent_again(node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("ONE = 1\n")
    plan = planner(sky.Image(includes=["mine.py"]), cwd=tmp_path)
    make(node, planner())
    blobs = node.home / "of skyward" / "blobs"
    (blobs / plan.includes.files[0].digest).write_text("ONE = ")
    with pytest.raises(BootstrapError, match=r"mine\.py does not match its digest"):
        make(node, plan)
    assert ask(plan, make(node, plan), "import mine; print(mine.ONE)") == "1"


def test_package_is_installed_from_the_configured_index(node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    special, usual = tmp_path / "special", tmp_path / "usual"
    for index, release in ((special, "2.0+cpu"), (usual, "3.0")):
        wheel = make_wheel(index / "files", "torchy", release)
        (index / "torchy").mkdir()
        (index / "torchy" / "index.html").write_text(f'<a href="{wheel.as_uri()}">{wheel.name}</a>')
    only = make_wheel(special / "files", "only_there", "1.0")
    (special / "only-there").mkdir()
    (special / "only-there" / "index.html").write_text(f'<a href="{only.as_uri()}">{only.name}</a>')
    settings = {"PIP_NO_INDEX": "", "PIP_INDEX_URL": usual.as_uri()}
    indexes = [PipIndex(special.as_uri(), ["Torchy"])]
    plan = planner(sky.Image(pip=["visiony", "torchy"], pip_indexes=indexes), settings=settings)
    assert make(node, plan).facts.packages["torchy"] == "2.0+cpu"
    plain = planner(sky.Image(pip=["torchy"]), settings=settings)
    assert make(node, plain).facts.packages["torchy"] == "3.0"
    with pytest.raises(BootstrapError, match="only-there"):  # an index for some packages is used for no other
        make(node, planner(sky.Image(pip=["torchy", "only-there"], pip_indexes=indexes), settings=settings))
    open_index = planner(sky.Image(pip=["only-there"], pip_indexes=[PipIndex(special.as_uri())]), settings=settings)
    assert make(node, open_index).facts.packages["only-there"] == "1.0"


def test_missing_uv_is_downloaded(node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    (node.bin / "uv").unlink()
    node.program("uv", "echo uv 0.4.30")  # too old
    plan = planner(
        settings={"PIP_FIND_LINKS": f"{repack(tmp_path / 'uv', 'uv').parent} {planner().settings['PIP_FIND_LINKS']}"}
    )
    reports: list[PhaseEvent] = []
    ready = make(node, plan, reports)
    assert happened(reports)["uv"] == "completed"
    own = Path(ready.directory, "uv", "bin", "uv")
    assert subprocess.run([own, "--version"], capture_output=True, text=True, check=True).stdout.startswith("uv ")


def test_missing_python_is_named(node: ShellNode, planner: Planner) -> None:
    settings = {"UV_PYTHON_DOWNLOADS": "never", "UV_OFFLINE": "1"}
    with pytest.raises(BootstrapError, match=r"Python 3\.99 is not on this machine.*Image\(python=") as caught:
        make(node, planner(sky.Image(python="3.99"), settings=settings))
    assert caught.value.phase == "uv"


def test_system_packages_wait_for_the_lock(node: ShellNode, planner: Planner) -> None:
    """Machines often update themselves while they boot."""
    node.program("id", "echo 0")
    node.program("sleep", "exit 0")
    node.program("dpkg", "exit 0")
    node.program("dpkg-query", '[ -f "$HOME/installed" ] && printf "install ok installed"')
    node.program(
        "apt-get",
        """
echo x >>"$HOME/tries"
if [ "$(wc -l <"$HOME/tries")" -le 3 ]; then
  echo 'E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)' >&2
  exit 100
fi
echo "$*" >>"$HOME/apt"
case " $* " in *' install '*) touch "$HOME/installed" ;; esac""",
    )
    image = sky.Image(apt=["ffmpeg", "libsndfile1"])
    reports: list[PhaseEvent] = []
    make(node, planner(image), reports)
    assert happened(reports)["apt"] == "completed"
    update, install = (node.home / "apt").read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install -y --no-install-recommends ffmpeg libsndfile1")
    make(node, planner(sky.Image(apt=["ffmpeg", "libsndfile1"], env={"A": "another environment"})))
    assert len((node.home / "apt").read_text().splitlines()) == 2


ESSENTIAL = "sh sed tr tail mkdir cut cat date flock timeout cmp rm mv id tar gzip find"  # a minimal machine


@pytest.mark.parametrize(
    ("image", "missing"),
    [
        (sky.Image(apt=["ffmpeg"]), "ffmpeg"),
        (sky.Image(pip=["mine @ git+https://host.invalid/mine"]), "git ca-certificates"),
    ],
)
def test_packages_that_cannot_be_installed_are_named(
    image: sky.Image, missing: str, node: ShellNode, planner: Planner
) -> None:
    for name in ESSENTIAL.split():
        node.link(name, Path(shutil.which(name) or name))
    node.path = str(node.bin)
    with pytest.raises(BootstrapError, match=f"cannot install {missing}: this machine has no apt-get") as caught:
        make(node, planner(image))
    assert caught.value.phase == "apt"
    for name, text in {"apt-get": "exit 0", "dpkg-query": "exit 1", "id": "echo 1000", "sudo": "exit 1"}.items():
        node.program(name, text)
    with pytest.raises(BootstrapError, match=f"installing {missing} needs root, or sudo without a password"):
        make(node, planner(image))


def test_worker_starts_from_the_environment(node: ShellNode, planner: Planner, tmp_path: Path) -> None:
    plan = planner(sky.Image(env={"WHO": "me"}))
    ready = make(node, plan)
    variables = {
        "SKYWARD_NODE_ID": "3",
        SECRETS_VARIABLE: issue_secrets("node", bytes(32))[1].write(),
        **worker_environment(plan, ready),
    }
    worker = subprocess.Popen(
        [ready.facts.executable, "-m", "skyward.worker"],
        env=variables, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip  # one option per line would hide the command
    with worker:
        assert worker.stdout is not None
        hello = json.loads(worker.stdout.readline())
        assert hello["pid"] == worker.pid
        assert hello["address"].startswith("127.0.0.1:")
        assert hello["python"] == ready.facts.python
        worker.kill()
