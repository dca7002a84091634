"""Names of the pools of scripts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import skyward as sky
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
