"""A pool on the provider that docs/extend/providers.md shows."""

from pathlib import Path

import pytest

import skyward as sky
from tests.documented_provider import documented_provider
from tests.local import tasks

pytestmark = pytest.mark.local


def test_pool_runs_on_the_documented_provider_and_leaves_nothing(tmp_path: Path) -> None:
    with sky.Compute(provider=documented_provider(str(tmp_path)), nodes=2) as pool:
        assert tasks.add(1, 2) @ pool == [3, 3]
        assert {node.kind for node in pool.snapshot().nodes}
    assert not list(tmp_path.iterdir())
