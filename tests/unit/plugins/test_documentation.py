"""docs/use/plugins.md: its examples have settings that the plugins take, and no plugin is left out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward.plugins.registry import find_plugin, plugin_names
from skyward.specs.plugin import Plugin

pytestmark = pytest.mark.unit

PAGE = (Path(__file__).parents[3] / "docs" / "use" / "plugins.md").read_text()
NAMES = {
    "sky": sky,
    "os": type("os", (), {"environ": {"HF_TOKEN": "hf_abc"}}),
    "sharded": {"mixed_precision": "bf16", "fsdp": {"version": 2, "reshard_after_forward": True}},
}
"""Names that the examples use."""


def plugins_in_examples() -> Iterator[str]:
    """Yield the source of each plugin that the page makes."""
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sky.plugins."):
                yield ast.unparse(node)


@pytest.mark.parametrize("source", sorted(set(plugins_in_examples())))
def test_settings_of_examples_are_accepted(source: str) -> None:
    assert isinstance(eval(source, dict(NAMES)), Plugin)


def test_every_plugin_of_ours_is_described() -> None:
    ours = {name for name in plugin_names() if find_plugin(name).__module__.startswith("skyward.")}
    described = set(re.findall(r"\w+", " ".join(re.findall(r"^## (.+)$", PAGE, re.M))))
    assert ours <= described
