"""Notebooks as people write them leave the same state under `%%sky` as in the notebook."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from skyward.commands.table.pool_options import POOL_LABELS
from skyward_kernel.pools import DEFAULT_POOL, PoolManager
from tests.corpus.compare import compare
from tests.corpus.harness import findings, run
from tests.corpus.scenario import Scenario
from tests.corpus.scenarios import SCENARIOS

pytestmark = pytest.mark.local


@pytest.fixture(scope="module")
def pools() -> Iterator[PoolManager]:
    """Provide the pools of one kernel, shared by all scenarios."""
    pools = PoolManager(labels=POOL_LABELS)
    pools.get_or_open(DEFAULT_POOL, {})
    yield pools
    assert pools.close_all()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_same_state_as_in_the_notebook(scenario: Scenario, pools: PoolManager, tmp_path: Path) -> None:
    here = run(scenario, None, str(tmp_path))
    assert [output.error[0] for output in here.outputs if output and output.error] == [*scenario.raises], (
        "in the notebook"
    )
    there = run(scenario, pools, str(tmp_path))
    failed = next((i for i, output in enumerate(there.outputs) if output and output.error), None)
    before = here if failed is None else run(scenario, None, str(tmp_path), without=failed)
    differences = compare(there.names, here.names)
    found = findings(scenario, here.outputs, there.outputs, differences, compare(there.names, before.names))
    if found:
        pytest.fail("\n  ".join([scenario.name, *found]), pytrace=False)
