"""Calls that wait for the import of a module."""

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from skyward.process.after_import import call_after_import

pytestmark = pytest.mark.unit


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a package with a module `inner`, which nothing has imported."""
    name = f"awaited_{threading.get_ident()}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(f"from {name} import inner\n")
    (tmp_path / name / "inner.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield name
    for loaded in (name, f"{name}.inner"):
        sys.modules.pop(loaded, None)


def test_module_that_is_imported_later_is_passed_once_it_is_complete(package: str) -> None:
    seen: list[tuple[str, int]] = []
    call_after_import(f"{package}.inner", lambda module: seen.append((module.__name__, module.value)))
    importlib.import_module("colorsys")
    assert seen == []
    importlib.import_module(package)
    assert seen == [(f"{package}.inner", 1)]
    module = sys.modules[f"{package}.inner"]
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert type(module.__loader__).__name__ == "SourceFileLoader"


def test_module_that_is_loaded_is_passed_at_once(package: str) -> None:
    importlib.import_module(package)
    seen: list[ModuleType] = []
    call_after_import(f"{package}.inner", seen.append)
    assert seen == [sys.modules[f"{package}.inner"]]


def test_module_that_another_thread_imports_is_passed_at_its_end(package: str, tmp_path: Path) -> None:
    began, go = threading.Event(), threading.Event()
    sys.modules["test_after_import_events"] = ModuleType("test_after_import_events")
    sys.modules["test_after_import_events"].__dict__.update(began=began, go=go)
    (tmp_path / package / "inner.py").write_text(
        "from test_after_import_events import began, go\nbegan.set()\ngo.wait()\nvalue = 1\n"
    )
    importing = threading.Thread(target=importlib.import_module, args=[package])
    importing.start()
    began.wait()
    seen: list[int] = []
    calling = threading.Thread(
        target=call_after_import, args=[f"{package}.inner", lambda module: seen.append(module.value)]
    )
    calling.start()
    go.set()
    calling.join()
    importing.join()
    del sys.modules["test_after_import_events"]
    assert seen == [1]


def test_module_that_does_not_exist_is_still_missing(package: str) -> None:
    call_after_import(f"{package}.missing", lambda _: pytest.fail("there is no such module"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.missing")
