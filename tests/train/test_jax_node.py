"""JAX and Keras on nodes: distributed systems of real processes."""

import socket

import pytest

from skyward.plugins.nodes.collective_variables import address_towards
from skyward.plugins.nodes.jax_node import JaxNode, held
from tests.train.member import Half
from tests.train.members import begin, collective, members
from tests.train.tasks import allgather, compute, fit, fit_parts, is_distributed, sum_forever

pytestmark = [pytest.mark.train, pytest.mark.timeout(400)]

JAX: Half = ("skyward.plugins.nodes.jax_node:JaxNode", {})
KERAS: Half = ("skyward.plugins.nodes.keras_node:KerasNode", {"backend": "jax"})


def _own_address() -> str:
    """Return an address of this machine other than that of loopback, if it has one; nothing is sent."""
    return address_towards("192.0.2.1") or "127.0.0.1"


def test_members_of_a_collective_are_a_distributed_system() -> None:
    address = _own_address()
    with members(JAX) as both:
        assert [each.run(compute).value for each in both] == [3.0, 3.0]
        begin(both, allgather, address=address)
        answers = [each.read() for each in both]
    for answer in answers:
        assert not answer.error
        assert not answer.changed
        devices, gathered, addresses = answer.value
        assert (devices, gathered) == (2, [[0], [10]])
        assert addresses == [address], "all listen where they meet, although a task has used JAX before"


def test_port_that_cannot_be_shared_is_given_up_before_jax_takes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, held(listener):
        assert listener.fileno() == -1
    with socket.socket() as shared:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with held(shared):
            assert shared.fileno() != -1
        assert shared.fileno() == -1


@pytest.mark.parametrize("how", ["kill", "raise"])
def test_lost_member_fails_those_that_wait_for_it(how: str) -> None:
    with members(JAX) as both:
        begin(both, sum_forever, 1, how)
        if how == "raise":
            raising = both[1].read()
            assert (raising.error, raising.follows_loss) == ("ValueError: raised by 1", False)
            both[1].end()  # as a node does: a process that was in a collective is in no other one
        answer = both[0].read()
    assert answer.error
    assert answer.follows_loss, answer.error


def test_error_of_the_user_does_not_follow_a_loss() -> None:
    half = JaxNode()
    assert not half.follows_loss(ValueError("Connection reset by peer"))
    assert not half.follows_loss(RuntimeError("INTERNAL: Failed to compile"))
    assert not half.follows_loss(KeyError("UNKNOWN: Gloo all-reduce failed: Connection reset by peer"))


def test_keras_replicates_models_in_a_collective_of_jax() -> None:
    with members(JAX, KERAS) as both:
        alone = both[0].run(fit)
        assert not alone.error
        assert both[0].run(is_distributed).value is False
        first, second = collective(both, fit)
        assert not first.error
        assert not first.changed
        assert first.value == second.value
        assert len({*first.value[0]}) == 3, "each epoch has a loss of its own"
        assert first.value != alone.value
        assert [each.run(is_distributed).value for each in both] == [False, False]


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict", "train_on_batch", "validation", "epochs"])
def test_unequal_parts_are_refused(method: str) -> None:
    """Unequal batches would train wrong weights, and a member with more batches would wait forever."""
    with members(JAX, KERAS) as both:
        for answer in collective(both, fit_parts, method, [6, 5]):
            assert answer.error.startswith("ValueError: ")
            assert "in all members of a collective, but" in answer.error
            what = "epochs" if method == "epochs" else "x" if method != "validation" else "validation_data"
            assert f"{what} is 5 in rank 1 and 6 in rank 0" in answer.error
        assert both[0].run(fit_parts, "fit", [5, 5]).value == 5, "a task outside of a collective compares nothing"


def test_parts_with_a_last_batch_of_equal_size_are_accepted() -> None:
    with members(JAX, KERAS) as both:
        assert [each.value for each in collective(both, fit_parts, "fit", [5, 5])] == [5, 5]
