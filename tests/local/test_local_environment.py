"""Local pools with a separate environment: the packages and the Python of their image.

Packages are made by the tests; nothing is fetched.
"""

import asyncio
import contextlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no types
import pytest

import skyward as sky
from skyward.bootstrap import PHASES, PhaseEvent, bootstrap, client_environment
from skyward.bootstrap.client_environment import client_plan
from skyward.link.connection.programs import ClientShell
from tests.local.bootstrapping import make_wheel, repack
from tests.waiting import wait_for

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]

UV = Path(sys.executable).with_name("uv")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local package folder. The test has its own caches."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "torchy", "1.0")
    make_wheel(folder, "torchy", "2.0")
    make_wheel(folder, "visiony", "1.0", ["torchy", "numpy", "tqdm"])
    make_wheel(folder, "tqdm", "0.1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return how many times uv was called to install."""
    log = tmp_path / "installs"
    program(tmp_path, monkeypatch, f'case "$*" in *"pip install"*) echo "$*" >>{log} ;; esac; exec {UV} "$@"')
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str = "uv") -> None:
    """Put a program on PATH, before all others."""
    path = tmp_path / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    if str(path.parent) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


def system_without(tmp_path: Path, *missing: str) -> Path:
    """Return a folder with the programs of the system, without some."""
    folder = tmp_path / "system"
    folder.mkdir()
    for entry in (*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()):
        if entry.name not in missing and not (folder / entry.name).is_symlink():
            (folder / entry.name).symlink_to(entry)
    return folder


def without_uv(tmp_path: Path) -> Callable[[Mapping[str, str]], dict[str, str]]:
    """Return environment variables of an installer without uv."""
    path = str(system_without(tmp_path, "uv"))
    return lambda environ: {**environ, "PATH": path, "HOME": str(tmp_path)}


@sky.function
def look(*modules: str) -> dict[str, tuple[str, str]]:
    """Return version and file of modules by name, and the interpreter as "python"."""
    import importlib
    import sys

    found = {"python": ("", sys.executable)}
    for name in modules:
        module = importlib.import_module(name)
        found[name] = str(getattr(module, "VERSION", getattr(module, "__version__", ""))), str(module.__file__)
    return found


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_packages_of_the_image_are_beside_those_of_this_process(
    executor: Literal["thread", "process"], tmp_path: Path
) -> None:
    worker = sky.Worker(executor=executor)
    with sky.Compute(nodes=2, image=sky.Image(pip=["visiony", "torchy<2"]), worker=worker) as pool:
        first, second = look("visiony", "torchy", "numpy", "pandas", "skyward") @ pool
    assert first == second
    assert (first["visiony"][0], first["torchy"][0]) == ("1.0", "1.0")
    assert (first["numpy"], first["pandas"]) == ((np.__version__, np.__file__), (pd.__version__, pd.__file__))
    assert first["skyward"][1] == sky.__file__
    for name in ("python", "visiony", "torchy"):
        assert Path(first[name][1]).is_relative_to(tmp_path / "cache")


def test_frames_can_be_sent_and_returned() -> None:
    @sky.function
    def doubled(frame: pd.DataFrame) -> pd.DataFrame:
        import visiony  # type: ignore[import-not-found]  # made by the test

        return frame * 2 + int(float(visiony.VERSION))

    with sky.Compute(image=sky.Image(pip=["visiony"])) as pool:
        result = doubled(pd.DataFrame({"a": [1, 2]})) >> pool
    pd.testing.assert_frame_equal(result, pd.DataFrame({"a": [3, 5]}))


def test_package_is_replaced_only_if_its_version_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    with sky.Compute(image=sky.Image(pip=["visiony", "tqdm"])) as pool:
        assert (look("tqdm") >> pool)["tqdm"][0] == importlib.metadata.version("tqdm")

    @sky.function
    def older() -> str:
        import tqdm  # type: ignore[import-untyped]  # no types

        return str(tqdm.VERSION)

    with sky.Compute(image=sky.Image(pip=["visiony", "tqdm<1"])) as pool:
        assert older() >> pool == "0.1"
        assert (look("numpy") >> pool)["numpy"] == (np.__version__, np.__file__)
    assert importlib.metadata.version("tqdm") != "0.1"


def test_package_of_another_version_is_reported_when_it_is_used(caplog: pytest.LogCaptureFixture) -> None:
    @sky.function
    def older() -> str:
        import tqdm

        return str(tqdm.VERSION)

    with sky.Compute(image=sky.Image(pip=["tqdm<1"])) as pool:
        assert older() >> pool == "0.1"
        wait_for(lambda: "node 0 has tqdm 0.1 and this process" in caplog.text, "the sentence")


def test_later_pool_with_the_same_image_installs_nothing(
    installs: Callable[[], int], wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with sky.Compute(image=sky.Image(pip=["visiony"])) as pool:
            assert (look("visiony") >> pool)["visiony"][0] == "1.0"
            log = pool.start_log(0)
        assert installs() == 1
        shutil.rmtree(wheels, ignore_errors=True)
    assert "deps: nothing to do" in log
    with (
        pytest.raises(sky.NodeStartError, match="could not be installed"),
        sky.Compute(image=sky.Image(pip=["torchy"]), max_provision_attempts=1),
    ):
        pass


def test_two_processes_create_one_environment_once(installs: Callable[[], int], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("""
import skyward as sky

@sky.function
def version():
    import visiony
    return visiony.VERSION

with sky.Compute(image=sky.Image(pip=["visiony"])) as pool:
    print(version() >> pool)
""")
    command = [sys.executable, str(script)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [each.communicate(timeout=120)[0] for each in running]
    assert outputs == ["1.0\n", "1.0\n"]
    assert installs() == 1


@pytest.mark.parametrize("missing", [(), ("flock", "timeout")], ids=["with flock", "without flock"])
def test_concurrent_creation_happens_once_also_without_flock(
    missing: tuple[str, ...], installs: Callable[[], int], tmp_path: Path
) -> None:
    """As on macOS."""
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{system_without(tmp_path, *missing)}"}
    assert (shutil.which("flock", path=environ["PATH"]) is None) == bool(missing)
    plan = client_plan(sky.Image(pip=["visiony"]), {})
    reports: list[list[PhaseEvent]] = [[], []]

    async def both() -> list[Any]:
        return await asyncio.gather(*(bootstrap(ClientShell(environ), plan, each.append) for each in reports))

    first, second = asyncio.run(both())
    assert first == second
    assert installs() == 1
    ended = [{event.phase: event.event for event in each} for each in reports]
    skipped = dict.fromkeys(PHASES, "skipped")
    made = skipped | dict.fromkeys(("env", "uv", "deps", "worker"), "completed")
    assert made in ended
    assert skipped in ended


def test_unavailable_package_is_named_and_the_log_has_the_output_of_uv() -> None:
    pool = sky.Compute(name="p", image=sky.Image(pip=["not-there-at-all"]), max_provision_attempts=1)
    with pytest.raises(sky.NodeStartError) as failed:
        pool.open()
    first, *rest = str(failed.value).splitlines()
    assert first.startswith(
        "Pool 'p' could not start node 0: its packages (not-there-at-all) could not be installed on this machine ("
    )
    assert "not-there-at-all was not found" in first, "decisions show only this line"
    assert "not-there-at-all was not found" in "".join(rest)
    assert "\x1b" not in str(failed.value)
    assert "not-there-at-all was not found" in pool.start_log(0)


def test_failed_environment_is_created_on_the_next_attempt(wheels: Path) -> None:
    image = sky.Image(pip=["latey"])
    with pytest.raises(sky.NodeStartError), sky.Compute(image=image, max_provision_attempts=1):
        pass
    make_wheel(wheels, "latey", "1.0")
    with sky.Compute(image=image) as pool:
        assert (look("latey") >> pool)["latey"][0] == "1.0"


def test_environment_that_takes_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skyward.bootstrap.runner.GRACE", 0.5)
    program(tmp_path, monkeypatch, f'case "$*" in *"pip install"*) sleep 600 ;; esac; exec {UV} "$@"')
    image = sky.Image(pip=["torchy"], bootstrap_timeout=3)
    with (
        pytest.raises(sky.NodeStartError, match=r"\(torchy\) could not be installed .* within the 3 s of bootstrap_t"),
        sky.Compute(image=image, max_provision_attempts=1),
    ):
        pass


def test_installation_ends_when_opening_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = tmp_path / "pid"
    program(
        tmp_path, monkeypatch, f'case "$*" in *"pip install"*) echo $$ >{noted}; exec sleep 600;; esac; exec {UV} "$@"'
    )
    pool = sky.Compute(image=sky.Image(pip=["torchy"]))

    def opening() -> None:
        with contextlib.suppress(Exception):
            pool.open()

    thread = threading.Thread(target=opening)
    thread.start()
    wait_for(lambda: noted.exists() and noted.read_text().strip(), "the installation")
    pool.close()
    thread.join()
    wait_for(lambda: not Path(f"/proc/{noted.read_text().strip()}").exists(), "the end of the installation")


def test_machine_without_uv_explains_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_environment, "for_installer", without_uv(tmp_path))
    with (
        pytest.raises(sky.NodeStartError, match="or check that pip can reach its index") as outputs,
        sky.Compute(image=sky.Image(pip=["torchy"]), max_provision_attempts=1),
    ):
        pass
    assert "its environment could not be made on this machine:" in str(outputs.value)


def test_missing_uv_is_installed_with_pip(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repack(wheels, "uv")
    monkeypatch.setattr(client_environment, "for_installer", without_uv(tmp_path))
    with sky.Compute(image=sky.Image(pip=["torchy"])) as pool:
        assert (look("torchy") >> pool)["torchy"][0] == "2.0"
    assert (tmp_path / "cache" / "uv" / "bin" / "uv").exists()


def test_another_python_has_only_what_the_image_names(
    tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This Python stands in for another one: there may be no packages for a second one on this machine."""
    for name in ("blake3", "casty", "cloudpickle", "uvloop"):
        repack(wheels, name)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(client_environment, "is_python_here", lambda version: False)
    with sky.Compute(image=sky.Image(python=VERSION, pip=["torchy"])) as pool:
        found = look("torchy", "skyward", "cloudpickle") >> pool
        assert found["torchy"][0] == "2.0"
        assert all(Path(file).is_relative_to(tmp_path / "cache") for _, file in found.values())
        with pytest.raises(sky.MissingModuleError, match=r"'pandas' is not installed on node 0; add it with `--pip p"):
            look("pandas") >> pool
    assert "skyward: done in" in pool.start_log(0)


def test_nodes_that_outlive_their_client_have_the_environment() -> None:
    with sky.Compute(provider=sky.Local(outlives=True), image=sky.Image(pip=["visiony"])) as pool:
        found = look("visiony", "numpy") >> pool
    assert (found["visiony"][0], found["numpy"][1]) == ("1.0", np.__file__)


def test_programs_of_packages_can_be_run(wheels: Path) -> None:
    repack(wheels, "uv")

    @sky.function
    def program_of(name: str) -> str | None:
        return shutil.which(name)

    with sky.Compute(image=sky.Image(pip=["torchy"])) as pool:
        found = program_of("python") >> pool
        assert found == (look() >> pool)["python"][1]


def test_variables_and_included_files_work_with_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchy.py").write_text("VERSION = 'mine'")
    monkeypatch.chdir(tmp_path)
    image = sky.Image(
        pip=["${WHICH}==1.0"], env={"TOKEN": "secret"}, shell_vars={"WHICH": "echo torchy"}, includes=["torchy.py"]
    )

    @sky.function
    def variable(name: str) -> str | None:
        return os.environ.get(name)

    with sky.Compute(image=image) as pool:
        assert variable("TOKEN") >> pool == "secret"
        assert (look("torchy") >> pool)["torchy"][0] == "mine"  # the user's files come first
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and "envs" not in path.parts]
    assert kept
    assert not [path for path in kept if "secret" in path.read_text(errors="replace")]


def test_uninstallable_requirements_are_refused_before_launching(tmp_path: Path) -> None:
    for requirement in (str(tmp_path), f"-e {tmp_path}", f"mine @ {tmp_path.as_uri()}"):
        with pytest.raises(sky.SpecError, match="names the folder .*, whose later edits the nodes would not see"):
            sky.Compute(image=sky.Image(pip=[requirement])).open()
    with pytest.raises(sky.SpecError, match="neither shell_vars nor env defines NAME"):
        sky.Compute(image=sky.Image(pip=["torchy==${NAME}"])).open()


def test_module_missing_from_an_installed_package_is_not_advised_to_be_installed(wheels: Path) -> None:
    make_wheel(wheels, "opencv_python_headless", "1.0")
    with sky.Compute(image=sky.Image(pip=["opencv-python-headless"])) as pool:
        with pytest.raises(sky.MissingModuleError) as missing:
            look("cv2") >> pool
        with pytest.raises(sky.MissingModuleError, match="add it with `--pip pyserial` on the cell"):
            look("serial") >> pool
    assert str(missing.value) == (
        "module 'cv2' is not installed on node 0; Image.pip has 'opencv-python-headless', which is installed on the "
        "node and does not provide this module: check the module's name"
    )


def test_missing_system_packages_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    @sky.function
    def run(*words: str, check: bool = False) -> None:
        import subprocess

        subprocess.run(words, check=check)

    @sky.function
    def read(path: str) -> str:
        return Path(path).read_text()

    note = "Image.apt asks for ffmpeg-of-nobody, which Skyward does not install on this machine: install it yourself."
    with sky.Compute(image=sky.Image(apt=["ffmpeg-of-nobody"])) as pool:
        for call in (run("ffmpeg-of-nobody"), run("sh", "-c", "ffmpeg-of-nobody", check=True)):
            with pytest.raises(Exception, match="ffmpeg-of-nobody|127") as failed:
                call >> pool
            assert failed.value.__notes__ == [note]
        with pytest.raises(FileNotFoundError) as failed:
            read(shlex.quote(str(tmp_path / "gone"))) >> pool
        assert not hasattr(failed.value, "__notes__")
    assert capsys.readouterr().err.count("not acted on: image.apt.") == 1
