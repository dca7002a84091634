"""Choice of the node that sends its environment to a new one."""

from skyward.control.decide.machines.environments import AT_ONCE, MOST_FAILURES, EnvironmentServers, TransferOutcome


def servers(*machines: int) -> EnvironmentServers:
    made = EnvironmentServers()
    for machine in machines:
        made.add(machine, "torch", "zone a")
    return made


def chosen(made: EnvironmentServers) -> int | None:
    """Return the machine that is chosen for a transfer, which begins."""
    machine = made.choose("torch", "zone a")
    if machine is not None:
        made.started(machine)
    return machine


def test_node_with_the_same_environment_in_the_same_network_is_chosen() -> None:
    made = servers(1)
    assert made.choose("torch", "zone a") == 1
    assert made.choose("torch", "zone b") is None
    assert made.choose("jax", "zone a") is None


def test_nodes_take_turns_and_send_to_a_few_at_once() -> None:
    made = servers(1, 2)
    assert [chosen(made) for _ in range(2 * AT_ONCE + 1)] == [1, 2] * AT_ONCE + [None]
    assert made.will_be_free("torch", "zone a")
    made.ended(2, "zone a", "sent")
    assert chosen(made) == 2


def test_sixteen_nodes_need_few_rounds() -> None:
    """Each node that has received the environment sends it to others, and none to more than its share."""
    made, ready, rounds = servers(0), 1, 0
    while ready < 16:
        rounds += 1
        served: list[int] = []
        while len(served) < 16 - ready and (machine := chosen(made)) is not None:
            served.append(machine)
        assert max(map(served.count, served)) <= AT_ONCE
        for machine in served:
            made.ended(machine, "zone a", "sent")
            made.add(ready, "torch", "zone a")
            ready += 1
    assert rounds == 2


def test_node_that_fails_is_left_alone_and_others_are_not() -> None:
    made = servers(1, 2)
    for _ in range(MOST_FAILURES):
        made.started(1)
        made.ended(1, "zone a", "broken")
    assert {chosen(made) for _ in range(AT_ONCE)} == {2}


def test_success_takes_failures_back() -> None:
    made = servers(1)
    outcomes: tuple[TransferOutcome, ...] = ("broken", "sent", "refused", "sent", "broken")
    for outcome in outcomes:
        assert chosen(made) == 1
        made.ended(1, "zone a", outcome)
    assert chosen(made) == 1


def test_small_environment_is_not_asked_for_again_by_a_machine_that_makes_it_as_quickly() -> None:
    made = servers(1)
    assert made.choose("torch", "zone a", unless_small=True) == chosen(made) == 1
    made.ended(1, "zone a", "small")
    made.add(2, "jax", "zone a")
    assert made.choose("torch", "zone a", unless_small=True) is None
    assert made.choose("torch", "zone a") == 1
    assert made.choose("jax", "zone a", unless_small=True) == 2


def test_network_in_which_nodes_do_not_reach_each_other_is_given_up() -> None:
    made = servers(1, 2, 3)
    made.add(4, "torch", "zone b")
    for _ in range(MOST_FAILURES):
        machine = chosen(made)
        assert machine is not None
        made.ended(machine, "zone a", "unreached")
    assert chosen(made) is None
    assert not made.will_be_free("torch", "zone a")
    assert made.choose("torch", "zone b") == 4


def test_node_that_is_gone_is_not_chosen() -> None:
    made = servers(1)
    assert chosen(made) == 1
    made.remove(1)
    assert chosen(made) is None
    made.ended(1, "zone a", "broken")
    made.remove(1)
