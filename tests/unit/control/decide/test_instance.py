"""The lifecycle of a machine: transitions, observations of its worker, and the launch rate."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward.control.decide.machines.instance import (
    INSTANCE,
    InstanceState,
    Observed,
    after_request_timeout,
    can_run,
    launch_now,
    observe,
    reachable,
)

pytestmark = pytest.mark.unit

STATES: tuple[InstanceState, ...] = get_args(InstanceState.__value__)
SEEN: tuple[Observed, ...] = get_args(Observed.__value__)
FINAL = {"UNKNOWN", "TERMINATED", "ALLOCATION_FAILED"}


def test_every_state_has_transitions() -> None:
    assert set(INSTANCE) == set(STATES)
    assert set().union(*INSTANCE.values()) <= set(STATES)
    assert {state for state in STATES if not INSTANCE[state]} == FINAL


def test_every_state_can_end() -> None:
    assert all(reachable(state) & FINAL for state in STATES if state not in FINAL)


def test_machine_can_run_until_its_stop_is_observed() -> None:
    assert {state for state in STATES if can_run(state)} == {
        "QUEUED",
        "REQUESTED",
        "ALLOCATED",
        "INSTALLING",
        "RUNNING",
        "STOP_REQUESTED",
    }


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("seen", SEEN)
def test_observations_make_legal_transitions_only(state: InstanceState, seen: Observed) -> None:
    after = observe(state, seen)
    assert after == state or after in INSTANCE[state]


@given(st.sampled_from(STATES), st.lists(st.sampled_from(SEEN)))
def test_observations_never_move_backwards(state: InstanceState, looks: list[Observed]) -> None:
    """A requested drain may be refused, but no observation reports that."""
    seen = {state}
    for look in looks:
        after = observe(state, look)
        assert after == state or after not in seen
        seen.add(state := after)


def test_worker_that_drains_before_it_was_seen_running_counts_as_running() -> None:
    assert observe("INSTALLING", "DRAINING") == "RUNNING"
    assert observe("RUNNING", "DRAINING") == "STOPPING"


@pytest.mark.parametrize("state", ["QUEUED", "REQUESTED", "INSTALL_FAILED", "ALLOCATION_FAILED", "UNKNOWN"])
@pytest.mark.parametrize("seen", SEEN)
def test_observation_of_a_machine_without_a_worker_changes_nothing(state: InstanceState, seen: Observed) -> None:
    assert observe(state, seen) == state


counts = st.dictionaries(st.sampled_from("abc"), st.integers(0, 50))


@given(counts, counts, counts, st.floats(0, 100), st.integers(0, 40))
def test_launches_never_exceed_the_rate_or_the_limit(
    queued: dict[str, int], requested: dict[str, int], running: dict[str, int], speed: float, most: int
) -> None:
    launched = launch_now(queued, requested, running, speed, most)
    assert all(0 < count <= queued[name] for name, count in launched.items())
    assert not launched or sum(launched.values()) + sum(requested.values()) <= most
    assert all(count <= max(1, speed * max(running.get(name, 0), 1) + 1) for name, count in launched.items())
    if any(queued.values()) and sum(requested.values()) < most:
        assert launched


def test_request_without_a_time_does_not_time_out() -> None:
    assert after_request_timeout(100, 5, 1, []) is None


@given(st.lists(st.floats(0, 100), min_size=1), st.floats(0, 50), st.integers(0, 5), st.floats(0, 200))
def test_request_gets_its_timeout_and_retries(times: list[float], timeout: float, retries: int, now: float) -> None:
    match after_request_timeout(now, timeout, retries, times):
        case None:
            assert now - max(times) <= timeout
        case "QUEUED":
            assert now - max(times) > timeout
            assert len(times) <= retries
        case "ALLOCATION_FAILED":
            assert len(times) > retries
