"""What `sky.Container` is asked for of Docker, of podman: the tests by which the two could differ."""

from collections.abc import Iterator

import pytest

from tests.containers.engine import Engine, why_not
from tests.containers.podman import OF_PODMAN, Podman
from tests.containers.test_engine import (
    test_a_request_that_is_cut_leaves_no_container,
    test_an_image_that_is_not_there,
    test_machines_are_found_by_their_labels_and_given_back_twice,
    test_what_others_have_on_the_engine_is_left_alone,
)
from tests.containers.test_lease import test_a_container_that_nobody_ever_enters_removes_itself
from tests.containers.test_loss import (
    test_a_frozen_container_is_replaced_after_the_grace,
    test_a_killed_container_is_replaced_and_its_task_runs_again,
    test_a_link_that_breaks_loses_nothing,
)
from tests.containers.test_pool import (
    test_a_closed_pool_leaves_nothing,
    test_collections_between_containers,
    test_containers_have_limits_and_labels_and_no_ports,
    test_functions_run_in_containers,
    test_nodes_know_the_addresses_of_their_peers,
    test_output_comes_home,
)
from tests.required import leave_out_for

__all__ = [
    "test_a_closed_pool_leaves_nothing",
    "test_a_container_that_nobody_ever_enters_removes_itself",
    "test_a_frozen_container_is_replaced_after_the_grace",
    "test_a_killed_container_is_replaced_and_its_task_runs_again",
    "test_a_link_that_breaks_loses_nothing",
    "test_a_request_that_is_cut_leaves_no_container",
    "test_an_image_that_is_not_there",
    "test_collections_between_containers",
    "test_containers_have_limits_and_labels_and_no_ports",
    "test_functions_run_in_containers",
    "test_machines_are_found_by_their_labels_and_given_back_twice",
    "test_nodes_know_the_addresses_of_their_peers",
    "test_output_comes_home",
    "test_what_others_have_on_the_engine_is_left_alone",
]

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[Engine]:
    """podman in the place of the engine that other modules share."""
    leave_out_for(why_not(OF_PODMAN), "SKYWARD_PODMAN")
    engine = Podman()
    try:
        yield engine
    finally:
        engine.close()
