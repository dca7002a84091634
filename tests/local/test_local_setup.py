"""Local nodes with included files and computed variables of an image."""

import contextlib
import os
import threading
from pathlib import Path
from typing import Literal

import pytest

import skyward as sky
from tests.waiting import wait_for


@sky.function
def imported(module: str) -> str:
    import importlib

    return str(importlib.import_module(module).__doc__)


@sky.function
def variable(name: str) -> str | None:
    return os.environ.get(name)


@sky.function
def folder_of(module: str) -> list[str]:
    import importlib

    file = importlib.import_module(module).__file__
    assert file is not None
    return sorted(entry.name for entry in Path(file).parent.iterdir() if entry.name != "__pycache__")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with modules of the user, the working directory of the script."""
    (tmp_path / "mypkg_of_mine").mkdir()
    (tmp_path / "mypkg_of_mine" / "__init__.py").write_text('"""first"""')
    (tmp_path / "mypkg_of_mine" / "data.txt").write_text("1")
    (tmp_path / "mypkg_of_mine" / "notes.md").write_text("not for nodes")
    (tmp_path / "single_of_mine.py").write_text('"""single"""')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_included_files_are_importable_and_excludes_are_honoured(
    project: Path, executor: Literal["thread", "process"]
) -> None:
    image = sky.Image(includes=["./mypkg_of_mine", "single_of_mine.py"], excludes=["*.md"])
    worker = sky.Worker(executor=executor)
    with sky.Compute(nodes=2, image=image, worker=worker) as pool:
        assert imported("mypkg_of_mine") @ pool == ["first", "first"]
        assert imported("single_of_mine") >> pool == "single"
        assert folder_of("mypkg_of_mine") >> pool == ["__init__.py", "data.txt"]


def test_all_nodes_of_a_pool_have_the_files_as_they_were_when_it_opened(project: Path) -> None:
    image = sky.Image(includes=["mypkg_of_mine"])
    with sky.Compute(nodes=1, image=image, retry_on_interruption=0) as pool:
        (project / "mypkg_of_mine" / "__init__.py").write_text('"""second"""')
        with pytest.raises(sky.NodeLostError):
            _die() >> pool
        assert imported("mypkg_of_mine") >> pool == "first"  # on the replacement of the lost node
    with sky.Compute(nodes=1, image=image) as pool:
        assert imported("mypkg_of_mine") >> pool == "second"


@sky.function
def _die() -> None:
    os._exit(1)


def test_nodes_that_outlive_their_client_have_the_included_files(project: Path) -> None:
    with sky.Compute(provider=sky.Local(outlives=True), image=sky.Image(includes=["mypkg_of_mine"])) as pool:
        assert imported("mypkg_of_mine") >> pool == "first"


def test_computed_variables_are_set_for_tasks(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = sky.Image(
        env={"BASE_OF_MINE": "it's"},
        shell_vars={"ONE_OF_MINE": "printf '%s here\\n\\n' \"$BASE_OF_MINE\"", "TWO_OF_MINE": 'echo "$ONE_OF_MINE!"'},
    )
    with sky.Compute(nodes=2, image=image) as pool:
        assert variable("ONE_OF_MINE") @ pool == ["it's here"] * 2
        assert variable("TWO_OF_MINE") >> pool == "it's here!"
    assert "not acted on" not in capsys.readouterr().err


def test_commands_of_variables_run_once_for_all_nodes(project: Path) -> None:
    with sky.Compute(
        nodes=3, image=sky.Image(shell_vars={"RUNS": f"echo x >>{project}/runs; wc -l <{project}/runs"})
    ) as pool:
        assert [str(each).strip() for each in variable("RUNS") @ pool] == ["1"] * 3


def test_failing_command_of_a_variable_is_named(project: Path) -> None:
    with (
        pytest.raises(sky.NodeStartError, match="The command of BROKEN in shell_vars ended with status 3: echo no"),
        sky.Compute(image=sky.Image(shell_vars={"BROKEN": "echo nothing there >&2; exit 3"}), max_provision_attempts=1),
    ):
        pass


def test_computed_value_that_no_worker_could_start_with_is_named(project: Path) -> None:
    with pytest.raises(sky.ProvisioningError, match="shell_vars sets PATH to a value that keeps workers from starting"):
        sky.Compute(image=sky.Image(shell_vars={"PATH": "printf ''"})).open()


def test_command_of_a_variable_that_takes_too_long_is_named(project: Path) -> None:
    image = sky.Image(shell_vars={"SLOW": "sleep 600"}, bootstrap_timeout=0.2)
    with pytest.raises(sky.NodeStartError, match="shell_vars took longer than the 0.2 s"), sky.Compute(image=image):
        pass


def test_commands_of_variables_end_when_opening_is_interrupted(project: Path) -> None:
    image = sky.Image(shell_vars={"SLOW": f"echo $$ >{project}/pid; exec sleep 600"})
    pool = sky.Compute(image=image, name="unopened")
    opening = threading.Thread(target=_open, args=(pool,))
    opening.start()
    wait_for(lambda: (project / "pid").exists() and (project / "pid").read_text().strip(), "the command")
    pool.__exit__(None, None, None)
    opening.join()
    pid = int((project / "pid").read_text())
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command")


def _open(pool: sky.Compute) -> None:
    with contextlib.suppress(Exception):
        pool.__enter__()


def test_missing_include_is_refused_before_launching(project: Path) -> None:
    image = sky.Image(includes=["./gone"])
    with (
        pytest.raises(sky.SpecError, match=r"Image.includes names './gone', but there is no such file or folder in"),
        sky.Compute(image=image),
    ):
        pass
