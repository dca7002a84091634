"""PyTorch on nodes: process groups of real processes."""

import socket
from collections.abc import Iterator

import pytest

from skyward.task.on_node import Meeting, TaskInfo
from tests.train.member import Half
from tests.train.members import Member, begin, collective, members
from tests.train.tasks import env, exchange, is_grouped, kill_itself, raise_in, train

pytestmark = [pytest.mark.train, pytest.mark.timeout(400)]

TORCH: Half = ("skyward.plugins.nodes.torch_node:TorchNode", {})
VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR",
)  # fmt: skip  # one name a line would be no clearer


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Member]]:
    with members(TORCH) as both:
        yield both


def test_members_of_a_collective_are_a_process_group(pair: list[Member]) -> None:
    for member, answer in enumerate(collective(pair, exchange)):
        assert not answer.error
        assert not answer.changed
        backend, rank, ranks, addresses = answer.value
        assert (backend, rank, ranks) == ("gloo", member, [0, 1])
        assert addresses == ["127.0.0.1"], "the store listens where the members meet, and nowhere else"


def test_members_have_the_variables_of_torchrun(pair: list[Member]) -> None:
    names = [*VARIABLES, "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TORCHELASTIC_RUN_ID"]
    first, second = (list(each.value.values()) for each in collective(pair, env, names))
    assert first == ["0", "2", "0", "1", "0", "2", "default", "0", "2", "127.0.0.1", "lo", "lo", None]
    assert second == ["1", "2", "0", "1", "1", "2", "default", "1", "2", "127.0.0.1", "lo", "lo", None]
    _, of_one_node = (list(each.value.values()) for each in collective(pair, env, VARIABLES, local_count=2))
    assert of_one_node == ["1", "2", "1", "2", "0", "1", "default", "1", "2", "127.0.0.1"]


def test_task_outside_of_a_collective_has_no_group(pair: list[Member]) -> None:
    assert collective(pair, is_grouped)[0].value is True
    assert [each.run(is_grouped).value for each in pair] == [False, False]
    assert {*pair[0].run(env, VARIABLES).value.values()} == {None}


def test_trained_weights_are_equal(pair: list[Member]) -> None:
    (before, after), (other_before, other_after) = (each.value for each in collective(pair, train))
    assert before != other_before, "each member begins with weights of its own"
    assert after == other_after
    assert after not in (before, other_before)


def test_processes_form_one_group_after_another(pair: list[Member]) -> None:
    for group in (pair, pair[::-1], pair):
        assert [each.value[1:3] for each in collective(group, exchange)] == [(0, [0, 1]), (1, [0, 1])]


def test_missing_member_is_named(pair: list[Member]) -> None:
    begin(pair[:1], exchange, count=3, within=2)
    answer = pair[0].read()
    assert answer.error.startswith("DistStoreError: Members 1, 2 of 0 to 2 did not come to 127.0.0.1:")
    assert answer.error.endswith("within 2 s.")
    assert answer.follows_loss
    assert not answer.changed
    assert [each.value[1] for each in collective(pair, exchange)] == [0, 1], "the process can be used again"


def test_first_member_that_does_not_come_is_named(pair: list[Member]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        meeting = Meeting(*bound.getsockname())
        task = TaskInfo(task=0, position=1, count=2, meeting=meeting, generation="tests/0/0", within=2)
        pair[1].begin(exchange, (), task)
        answer = pair[1].read()
    place = f"127.0.0.1:{meeting.port}"
    assert answer.error == f"DistNetworkError: Member 0 of 0 to 1 does not listen at {place} after 2 s."
    assert answer.follows_loss
    assert not answer.changed


def test_member_that_raises_fails_those_that_wait_for_it(pair: list[Member]) -> None:
    waiting, raising = collective(pair, raise_in, 1)
    assert (raising.error, raising.follows_loss) == ("ValueError: raised by 1", False)
    assert waiting.error.startswith("RuntimeError: ")
    assert waiting.follows_loss, waiting.error
    assert not waiting.changed
    assert [each.value[1] for each in collective(pair, exchange)] == [0, 1], "the processes can be used again"


@pytest.mark.parametrize("killed", [0, 1])
def test_killed_member_fails_those_that_wait_for_it(killed: int) -> None:
    with members(TORCH) as both:
        begin(both, kill_itself, killed)
        answer = both[1 - killed].read()
    assert answer.error
    assert answer.follows_loss, answer.error


def test_error_of_the_user_does_not_follow_a_loss() -> None:
    from skyward.plugins.nodes.torch_node import is_loss_of_peer

    assert not is_loss_of_peer(RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"))
    assert not is_loss_of_peer(ConnectionResetError("Connection reset by peer"))
