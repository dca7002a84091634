"""`%%sky` in a kernel, with options for the environment of a local node: packages, files, variables, accelerators."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.bootstrapping import make_wheel
from tests.local.kernel import Kernel, started

pytestmark = [pytest.mark.local, pytest.mark.timeout(180)]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A kernel in the user's folder, with local packages and a machine without GPUs."""
    make_wheel(tmp_path / "wheels", "torchy", "2.0")
    (tmp_path / "mine_own.py").write_text("def hello():\n    return 'from the file'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("SKYWARD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SKYWARD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with started() as made:
        yield made


def test_cell_with_pip_has_the_package_and_the_local_ones(kernel: Kernel) -> None:
    kernel("import pandas as pd\nframe = pd.DataFrame({'a': [1, 2]})")
    ran = kernel("%%sky --pip torchy\nimport torchy\nframe['b'] = frame.a * 2\nversion = torchy.VERSION\nversion")
    assert "'2.0'" in ran.data
    assert kernel("(version, list(frame.b))").data == ["('2.0', [2, 4])"]
    log = kernel("%sky logs 0").text()
    assert "deps: done in" in log
    assert "ready" in log
    kernel("%sky down")
    again = kernel("%%sky --pip torchy\nimport torchy\ntorchy.VERSION")
    assert "'2.0'" in again.data
    assert "deps: nothing to do" in kernel("%sky logs 0").text()


def test_unavailable_package_is_one_error_and_is_not_advised_again(kernel: Kernel) -> None:
    ran = kernel("%%sky --pip not-there-at-all\nimport not_there_at_all")
    name, lines = ran.error
    assert name == "NodeStartError"
    assert "its packages (not-there-at-all) could not be installed on this machine (" in lines[0]
    assert "--pip" not in "".join(lines)
    assert "\x1b" not in "".join(lines)


def test_variables_and_included_files_reach_the_node(kernel: Kernel) -> None:
    ran = kernel(
        "%%sky --env GREETING=hello --include ./mine_own.py\n"
        "import importlib, os\n"
        "(os.environ['GREETING'], importlib.import_module('mine_own').hello())"
    )
    assert ran.data[-1] == "('hello', 'from the file')"


def test_advice_for_a_module_of_the_user_works(kernel: Kernel) -> None:
    cell = "import importlib\nimportlib.import_module('mine_own').hello()"
    _, lines = kernel(f"%%sky\n{cell}").error
    assert "send it with `--include ./mine_own.py` on the cell" in "".join(lines)
    _, lines = kernel(f"%%sky --include ./mine_own.py\n{cell}").error
    assert "close it with `%sky down default` and run this again" in "".join(lines)
    kernel("%sky down default")
    assert kernel(f"%%sky --include ./mine_own.py\n{cell}").data[-1] == "'from the file'"


def test_node_shows_its_real_accelerators(kernel: Kernel) -> None:
    kernel("%config SkyMagics.footer = True")
    first = kernel("%%sky --provider local --gpu A100 --apt ffmpeg-of-nobody\n1")
    note = "asked for A100, a local node has none, and runs without it; not acted on: image.apt."
    assert first.text("stderr").count(note) == 1
    second = kernel("%%sky\n2")
    for ran in (first, second):
        assert ran.data[-1].startswith("node 0, local, ")
        assert "A100" not in "".join(ran.data)
    assert note not in second.text("stderr")
    assert "A100" not in kernel("%sky status").text()
    notice = (
        "import skyward_kernel.pools as pools, json\n"
        "print(json.dumps([pools.resident().get().snapshot().accelerators]))"
    )
    assert json.loads(kernel(notice).text()) == [""]
    _, lines = kernel("%%sky\nimport subprocess\nsubprocess.run(['ffmpeg-of-nobody'])").error
    assert "Image.apt asks for ffmpeg-of-nobody, which Skyward does not install on this machine" in "".join(lines)


def test_gpus_of_this_machine_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text('#!/bin/sh\ncase "$*" in *memory.used*) exit 1;; esac\necho NVIDIA GeForce RTX 4090, 24564\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with started() as kernel:
        kernel("%config SkyMagics.footer = True")
        ran = kernel("%%sky --provider local --gpu A100\n1")
        assert "asked for A100, a local node has RTX_4090, and runs with RTX_4090." in ran.text("stderr")
        assert ran.data[-1].startswith("node 0, RTX_4090, ")
