"""The engine of the tests of this tier, and pools of its containers."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skyward as sky
from tests.containers.engine import IMAGE, Engine, why_not
from tests.required import leave_out_for


@pytest.fixture(scope="session")
def shared_engine() -> Iterator[Engine]:
    """Engine for the whole run. Without one, skip with the reason, or fail if `SKYWARD_CONTAINERS=required`."""
    leave_out_for(why_not(), "SKYWARD_CONTAINERS")
    engine = Engine()
    try:
        yield engine
    finally:
        engine.close()


@pytest.fixture
def engine(shared_engine: Engine) -> Iterator[Engine]:
    """The engine; checks that a test leaves no new container and no new network."""
    before = {*shared_engine.containers(), *shared_engine.networks()}
    yield shared_engine
    left = {*shared_engine.containers(), *shared_engine.networks()} - before
    assert not left, f"left on the engine: {', '.join(sorted(left))}"


def containers(engine: Engine, **settings: Any) -> sky.Container:
    """Return a provider of containers on the engine, with this host's environment mounted."""
    given = {"image": IMAGE, "python": sys.executable, **engine.settings, **settings}
    return sky.Container(**given)


@pytest.fixture(scope="module")
def pool(shared_engine: Engine) -> Iterator[sky.Compute]:
    """Two nodes, each in a container with limits."""
    provider = containers(shared_engine)
    with sky.Compute(name="two", provider=provider, nodes=2, vcpus=1, memory_gb=1.5) as compute:
        yield compute
