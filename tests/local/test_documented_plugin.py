"""The plugin that docs/extend/plugins.md shows."""

import importlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import skyward as sky
from skyward.plugins.conformance import check_plugin

pytestmark = pytest.mark.local

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "plugins.md"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package on the page, in the working directory."""
    value, on_node, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    folder = tmp_path / "skyward_threads"
    folder.mkdir()
    (folder / "__init__.py").write_text(value)
    (folder / "node.py").write_text(on_node)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("skyward_threads")
    monkeypatch.setattr(module.Threads, "requirement", None)  # no index has it
    yield module
    for name in [name for name in sys.modules if name.partition(".")[0] == "skyward_threads"]:
        del sys.modules[name]


@sky.function
def threads() -> tuple[str | None, set[int]]:
    import numpy as np
    from threadpoolctl import threadpool_info

    np.linalg.norm([1.0])  # loads BLAS
    return os.environ.get("OMP_NUM_THREADS"), {each["num_threads"] for each in threadpool_info()}


def test_documented_plugin_conforms(package: ModuleType, tmp_path: Path) -> None:
    check_plugin(package.Threads(count=2), tmp_path)


def test_documented_plugin_is_sent_with_its_folder(package: ModuleType) -> None:
    image = sky.Image(includes=["skyward_threads"])
    with sky.Compute(image=image, plugins=[package.Threads(count=1)]) as pool:
        assert threads() >> pool == ("1", {1})


def test_documented_plugin_refuses_what_is_wrong(package: ModuleType) -> None:
    with pytest.raises(sky.SpecError, match="count must be a positive number"):
        package.Threads(count=0)
