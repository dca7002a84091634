"""Pools of the command line: their names, and what is refused and said when they are left."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward as sky
from skyward.cli.pools.up import budget_warning, up
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


def test_budget_that_nobody_watches_is_pointed_out_with_the_price() -> None:
    warning = budget_warning("cheap", 0.5, 28.8)
    assert "budget of $0.50 is watched only while" in warning
    assert "cost $28.80 an hour until their lease ends" in warning
    assert budget_warning("cheap", None, 28.8) == budget_warning("cheap", 0.5, 0.0) == ""
