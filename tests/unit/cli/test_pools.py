"""Pools of the command line: their names, and what is refused and said when they are left."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward as sky
from skyward.cli.pools.leases import left_sentence
from skyward.cli.pools.signals import of_attached, of_own
from skyward.cli.pools.up import up
from skyward.cli.scripts.run import pool_name


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("train.py", "run-train"),
        ("folder/my script.py", "run-my-script"),
        ("caf\u00e9.py", "run-cafe"),
        ("train(1).py", "run-train-1"),
        ("\u8a13\u7df4.py", "run"),
        (f"{'x' * 70}.py", f"run-{'x' * 59}"),
    ],
)
def test_pool_is_named_like_the_file_of_its_script(script: str, name: str) -> None:
    assert pool_name(script) == name


@given(st.text(min_size=1))
def test_every_file_name_gives_a_name_that_pools_may_have(script: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", pool_name(script))


def test_pool_that_may_have_no_nodes_is_not_left_to_its_lease() -> None:
    with pytest.raises(sky.SpecError, match=r"give it at least one with --detach, such as `--nodes 1:4`"):
        up(pool="empty", detach=True, options={"nodes": sky.Nodes(0, 3), "provider": "local"})


def test_lease_that_the_budget_shortens_is_pointed_out() -> None:
    shortened = "Pool 'cheap' is left for 47 s: the rest of its budget of $0.50 covers no more."
    assert left_sentence("cheap", 47.0, 600.0, 0.5) == shortened
    for budget in (None, 50.0):
        plain = "Pool 'cheap' is left to its lease for 10 min 0 s."
        assert left_sentence("cheap", 600.0, 600.0, budget) == plain


def test_signals_are_described_by_what_becomes_of_the_nodes() -> None:
    here = of_own(sky.Compute(name="here", provider=sky.Local()))
    assert here.again == "ends this command and the nodes at once"
    assert here.left == "the nodes of pool 'here' are on this computer, and end with this process."
    lasting = of_own(sky.Compute(name="lasting", provider=sky.Local(outlives=True), ttl=120))
    assert lasting.again == "leaves them to their lease"
    assert "are left to their lease for 2 min 0 s, and cost money meanwhile: `skyward reap lasting`" in lasting.left
    stays = of_attached("kept")
    assert "giving" not in stays.stopping + stays.closing
    assert stays.left.startswith(
        "pool 'kept' is left to its lease, and what this command runs there is being stopped: "
    )
