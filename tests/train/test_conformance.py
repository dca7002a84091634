"""The plugins of training frameworks pass the conformance checks, with their frameworks."""

from collections.abc import Callable
from pathlib import Path

import pytest

import skyward as sky
from skyward.plugins.conformance import check_plugin
from skyward.specs.plugin import Plugin

pytestmark = [pytest.mark.train, pytest.mark.timeout(400)]

MAKERS: dict[str, Callable[[], Plugin]] = {
    "accelerate": lambda: sky.plugins.accelerate(config={"mixed_precision": "no"}),
    "jax": sky.plugins.jax,
    "keras": sky.plugins.keras,
    "torch": lambda: sky.plugins.torch(backend="gloo"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_plugin_conforms(name: str, tmp_path: Path) -> None:
    plugin = MAKERS[name]()
    spec = sky.Spec(provider="aws", plugins=[plugin, sky.plugins.jax()] if name == "keras" else [plugin])
    check_plugin(plugin, tmp_path, spec=spec)
