"""`sky.Container` with podman: those of the tests with Docker in which the two could differ."""

from collections.abc import Iterator

import pytest

from tests.containers.engine import Engine, why_not
from tests.containers.podman import OF_PODMAN, Podman
from tests.containers.test_engine import (
    test_cancelled_request_leaves_no_container,
    test_foreign_containers_and_networks_are_left_alone,
    test_machines_are_found_by_label_and_termination_is_idempotent,
    test_missing_image_is_named,
)
from tests.containers.test_images import (
    clean,
    options,
    test_pool_uses_the_image_that_was_built_with_its_environment,
    test_provider_passes_the_conformance_suite,
)
from tests.containers.test_lease import test_container_that_is_never_used_is_removed
from tests.containers.test_loss import (
    test_broken_connection_loses_nothing,
    test_frozen_container_is_replaced_after_the_grace,
    test_killed_container_is_replaced_and_its_task_is_retried,
)
from tests.containers.test_pool import (
    test_closed_pool_leaves_nothing_on_the_engine,
    test_collections_are_shared_between_containers,
    test_containers_have_limits_and_labels_and_no_ports,
    test_containers_know_the_addresses_of_their_peers,
    test_functions_run_in_containers,
    test_output_of_containers_is_shown_by_the_client,
)
from tests.required import leave_out_for

__all__ = [
    "clean",
    "options",
    "test_broken_connection_loses_nothing",
    "test_cancelled_request_leaves_no_container",
    "test_closed_pool_leaves_nothing_on_the_engine",
    "test_collections_are_shared_between_containers",
    "test_container_that_is_never_used_is_removed",
    "test_containers_have_limits_and_labels_and_no_ports",
    "test_containers_know_the_addresses_of_their_peers",
    "test_foreign_containers_and_networks_are_left_alone",
    "test_frozen_container_is_replaced_after_the_grace",
    "test_functions_run_in_containers",
    "test_killed_container_is_replaced_and_its_task_is_retried",
    "test_machines_are_found_by_label_and_termination_is_idempotent",
    "test_missing_image_is_named",
    "test_output_of_containers_is_shown_by_the_client",
    "test_pool_uses_the_image_that_was_built_with_its_environment",
    "test_provider_passes_the_conformance_suite",
]

pytestmark = [pytest.mark.containers, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[Engine]:
    """podman, in place of the engine that other modules share."""
    leave_out_for(why_not(OF_PODMAN), "SKYWARD_PODMAN")
    engine = Podman()
    try:
        yield engine
    finally:
        engine.close()
