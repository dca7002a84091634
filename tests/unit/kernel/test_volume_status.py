"""`%sky status` of pools with volumes."""

import re

import pytest

from skyward.events.volumes import VolumeState
from tests.notebook import Notebook
from tests.unit.kernel.conftest import FakePool, node

pytestmark = pytest.mark.unit


def test_status_prints_the_volumes_of_pools_that_have_some(notebook: Notebook, pool: FakePool) -> None:
    assert "volume" not in notebook("%sky status p").out
    results = VolumeState(
        *("/results", "s3://lab/results", "sync", False, "/results", "flushing"), unflushed=3, unflushed_bytes=1 << 20
    )
    pool.changed(nodes=(node(0, volumes=(results,)),))
    (line,) = [each for each in notebook("%sky status p").out.splitlines() if each.startswith("/results")]
    assert re.split(" {2,}", line) == ["/results", "s3://lab/results", "sync", "unsaved", "0", "3 files, 1.0 MiB"]
