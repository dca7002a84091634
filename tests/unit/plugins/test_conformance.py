"""All plugins pass the conformance checks, and plugins that break a promise do not."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import skyward as sky
from skyward.plugins.conformance import check_plugin
from skyward.plugins.registry import find_plugin, plugin_names
from skyward.specs.plugin import Plugin
from tests.unit.plugins.broken_plugins import BROKEN, Right
from tests.unit.plugins.stand_ins import Machine

pytestmark = pytest.mark.unit


def seeded(task: sky.plugins.TaskInfo) -> Iterator[None]:
    state = random.getstate()
    random.seed(task.task)
    yield
    random.setstate(state)


@contextmanager
def greeted(node: sky.InstanceInfo) -> Iterator[None]:
    print(f"hello from node {node.node}")
    yield


BUILT_IN: dict[str, Callable[[], Plugin]] = {
    "accelerate": lambda: sky.plugins.accelerate(config={"mixed_precision": "bf16"}),
    "around": lambda: sky.plugins.around(process=greeted, task=seeded),
    "cuml": sky.plugins.cuml,
    "huggingface": lambda: sky.plugins.huggingface(token="hf_secret", models=["org/model"]),
    "jax": sky.plugins.jax,
    "joblib": sky.plugins.joblib,
    "keras": lambda: sky.plugins.keras(backend="torch"),
    "mig": lambda: sky.plugins.mig(profile="3g.40gb"),
    "mps": lambda: sky.plugins.mps(active_thread_percentage=50, pinned_memory_limit="0=1G"),
    "sklearn": sky.plugins.sklearn,
    "torch": lambda: sky.plugins.torch(backend="gloo"),
}
"""Makers of the plugins of this distribution."""

WITHOUT_FRAMEWORK = frozenset({"accelerate", "cuml", "huggingface", "jax", "keras", "torch"})
"""Plugins whose contexts need what is not installed here: those of training frameworks are checked in tests/train."""


def test_every_plugin_is_checked() -> None:
    ours = {name for name in plugin_names() if find_plugin(name).__module__.startswith("skyward.")}
    assert ours | {"around"} == BUILT_IN.keys()


@pytest.mark.parametrize("name", BUILT_IN)
def test_plugin_conforms(name: str, machine: Machine, tmp_path: Path) -> None:
    machine.set_gpus({})
    (folder := tmp_path / "checked").mkdir()
    plugin = BUILT_IN[name]()
    gpus = "A100" if plugin.requires().accelerator else None
    spec = sky.Spec(provider="aws", accelerator=gpus, image=sky.Image(pip=["torch"]))
    check_plugin(plugin, folder, spec=spec, search_path=machine.search_path, contexts=name not in WITHOUT_FRAMEWORK)


def test_step_of_huggingface_conforms(machine: Machine, tmp_path: Path) -> None:
    (folder := tmp_path / "checked").mkdir()
    plugin = sky.plugins.huggingface(models=["org/model"], datasets=["data"], cache="~/hub")
    check_plugin(plugin, folder, search_path=machine.search_path)
    assert (folder / "home" / "hub" / "hub" / "data").is_dir()


def test_plugin_that_keeps_all_promises_conforms(tmp_path: Path) -> None:
    check_plugin(Right(), tmp_path)


@pytest.mark.parametrize("promise", BROKEN)
def test_plugin_that_breaks_a_promise_does_not_conform(promise: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_plugin(BROKEN[promise](), tmp_path)


def test_contexts_can_be_left_out(tmp_path: Path) -> None:
    plugin = BROKEN[r"around_process\(\) leaves the thread left"]()
    check_plugin(plugin, tmp_path, contexts=False)
