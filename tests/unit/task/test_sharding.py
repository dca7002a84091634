"""`sky.shard`: the parts make up the whole, stay aligned, and keep the type of the data."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyward import InstanceInfo, NotOnNodeError, SpecError, shard
from skyward.task.instance import current_share, set_instance_info

pytestmark = pytest.mark.unit


@pytest.fixture
def node() -> Iterator[Callable[[int, int], None]]:
    """Return a function that makes this process look like a node."""
    yield lambda rank, total: set_instance_info(InstanceInfo(node=rank, total_nodes=total))
    set_instance_info(None)


def parts(*data: Any, count: int, **options: Any) -> list[Any]:
    return [shard(*data, node=rank, total_nodes=count, **options) for rank in range(count)]


sizes, counts, seeds = st.integers(0, 60), st.integers(1, 9), st.integers(0, 5)


@given(sizes, counts, st.booleans(), seeds)
def test_parts_make_up_the_whole(size: int, count: int, shuffle: bool, seed: int) -> None:
    found = parts(list(range(size)), count=count, shuffle=shuffle, seed=seed)
    assert sorted(item for part in found for item in part) == list(range(size))
    lengths = [len(part) for part in found]
    assert max(lengths) - min(lengths) <= 1


@given(sizes, counts, st.booleans(), seeds)
def test_drop_last_makes_equal_parts(size: int, count: int, shuffle: bool, seed: int) -> None:
    found = parts(list(range(size)), count=count, shuffle=shuffle, seed=seed, drop_last=True)
    assert {len(part) for part in found} == {size // count}
    kept = [item for part in found for item in part]
    assert len(set(kept)) == len(kept)
    if not shuffle:
        assert kept == list(range(size // count * count))


@given(sizes, counts, st.booleans(), st.booleans(), seeds)
def test_inputs_stay_aligned(size: int, count: int, shuffle: bool, drop_last: bool, seed: int) -> None:
    features = list(range(size))
    labels = tuple(-item for item in features)
    for x, y in parts(features, labels, count=count, shuffle=shuffle, drop_last=drop_last, seed=seed):
        assert isinstance(y, tuple)
        assert [-item for item in x] == list(y)


def test_strides_by_default_and_blocks_with_drop_last() -> None:
    assert parts(list(range(7)), count=3) == [[0, 3, 6], [1, 4], [2, 5]]
    assert parts(list(range(7)), count=3, drop_last=True) == [[0, 1], [2, 3], [4, 5]]


def test_seed_decides_the_order() -> None:
    data = list(range(50))
    assert parts(data, count=2, shuffle=True, seed=1) == parts(data, count=2, shuffle=True, seed=1)
    assert parts(data, count=2, shuffle=True, seed=1) != parts(data, count=2, shuffle=True, seed=2)


class Pair(NamedTuple):
    a: int
    b: int


class Squares:
    """A map-style dataset."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, place: int) -> int:
        return place * place


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ([0, 1, 2, 3, 4], [1, 3]),
        ((0, 1, 2, 3, 4), (1, 3)),
        (Pair(1, 2), (2,)),
        (range(5), [1, 3]),
        ("abcde", ["b", "d"]),
        (deque([0, 1, 2, 3, 4]), [1, 3]),
        (Squares(), [1, 9]),
        ([], []),
    ],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_shard_of_a_sequence_has_its_type(data: Any, part: Any, shuffle: bool) -> None:
    found = shard(data, node=1, total_nodes=2, shuffle=shuffle)
    assert type(found) is type(part)
    assert len(found) == len(part)
    if not shuffle:
        assert found == part


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
def test_shard_of_an_array_has_its_rows(shuffle: bool, drop_last: bool) -> None:
    numpy = pytest.importorskip("numpy")
    data = numpy.arange(14).reshape(7, 2)
    options = {"shuffle": shuffle, "drop_last": drop_last, "count": 3}
    for part, rows in zip(parts(data, **options), parts(list(range(7)), **options), strict=True):
        assert type(part) is numpy.ndarray
        assert part.tolist() == [[2 * row, 2 * row + 1] for row in rows]
        assert part.flags.writeable
        assert part.base is None or not numpy.shares_memory(part, data)


@pytest.mark.parametrize("shuffle", [False, True])
def test_shard_of_a_tensor_has_its_rows(shuffle: bool) -> None:
    torch = pytest.importorskip("torch")
    for part, rows in zip(
        parts(torch.arange(7), count=3, shuffle=shuffle),
        parts(list(range(7)), count=3, shuffle=shuffle),
        strict=True,
    ):
        assert type(part) is torch.Tensor
        assert part.tolist() == rows


@pytest.mark.parametrize("shuffle", [False, True])
def test_shard_of_a_data_frame_keeps_its_index(shuffle: bool) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(7)}, index=[f"row {n}" for n in range(7)])
    for part, column, rows in zip(
        parts(frame, count=3, shuffle=shuffle),
        parts(frame["a"], count=3, shuffle=shuffle),
        parts(list(range(7)), count=3, shuffle=shuffle),
        strict=True,
    ):
        assert type(part) is pandas.DataFrame
        assert type(column) is pandas.Series
        assert part["a"].tolist() == column.tolist() == rows
        assert part.index.tolist() == [f"row {row}" for row in rows]


@pytest.mark.parametrize("shuffle", [False, True])
def test_shard_of_a_sparse_matrix_has_its_rows(shuffle: bool) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix([[row] for row in range(7)])
    found = parts(matrix, count=3, shuffle=shuffle)
    assert sorted(item for part in found for item in part.toarray().ravel().tolist()) == list(range(7))


def test_shard_uses_rank_of_the_node(node: Callable[[int, int], None]) -> None:
    node(1, 3)
    assert shard([0, 1, 2, 3, 4]) == [1, 4]
    assert shard([0, 1, 2, 3, 4], node=0) == [0, 3]
    assert shard([0, 1, 2, 3, 4], total_nodes=2) == [1, 3]


def test_shard_in_broadcast_uses_position_at_dispatch(node: Callable[[int, int], None]) -> None:
    node(5, 9)
    token = current_share.set((1, 2))
    try:
        assert shard([0, 1, 2, 3, 4]) == [1, 3]
        assert shard([0, 1, 2], node=0, total_nodes=1) == [0, 1, 2]
    finally:
        current_share.reset(token)


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"drop_last": True}])
def test_late_node_gets_empty_part_of_same_type(options: dict[str, Any]) -> None:
    numpy = pytest.importorskip("numpy")
    token = current_share.set((3, 2))
    try:
        items, pair, array = shard([1, 2], (1, 2), numpy.ones((2, 4)), **options)
    finally:
        current_share.reset(token)
    assert (items, pair, array.shape) == ([], (), (0, 4))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no data": (
        lambda: shard(node=0, total_nodes=1),
        "`sky.shard` needs data: `sky.shard(x)`, or `sky.shard(x, y)` for the same positions of both.",
    ),
    "lengths": (
        lambda: shard([1, 2], [1], node=0, total_nodes=1),
        "`sky.shard` needs inputs of equal length, but their lengths are 2, 1: shard them one by one, "
        "or make them equal.",
    ),
    "negative": (
        lambda: shard([1], node=-1, total_nodes=2),
        "node must be a whole number of at least 0, but got -1.",
    ),
    "too large": (
        lambda: shard([1], node=2, total_nodes=2),
        "node must be less than total_nodes (2), counted from 0, but got 2.",
    ),
    "no nodes": (
        lambda: shard([1], node=0, total_nodes=0),
        "total_nodes must be a whole number of at least 1, but got 0.",
    ),
    "fraction": (
        lambda: shard([1], node=0.5, total_nodes=2),  # type: ignore[call-overload]
        "node must be a whole number of at least 0, but got 0.5.",
    ),
    "mapping": (
        lambda: shard({"a": 1}, node=0, total_nodes=2),
        "`sky.shard` needs data with an order, but got a dict: convert it to a list.",
    ),
    "set": (
        lambda: shard({1, 2}, node=0, total_nodes=2),
        "`sky.shard` needs data with an order, but got a set: convert it to a list.",
    ),
    "generator": (
        lambda: shard((n for n in [1]), node=0, total_nodes=2),
        "`sky.shard` needs data with a length, but got a generator: pass a list or an array.",
    ),
    "number": (
        lambda: shard(3, node=0, total_nodes=2),
        "`sky.shard` needs data with a length, but got a int: pass a list or an array.",
    ),
    "seed": (
        lambda: shard([1, 2], shuffle=True, seed=None, node=0, total_nodes=2),  # type: ignore[call-overload]
        "`sky.shard(shuffle=True)` needs a seed that all nodes share, but got None: leave it at 0.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_shard_arguments_are_refused(case: str) -> None:
    act, expected = REFUSED[case]
    with pytest.raises(SpecError, match=f"^{re.escape(expected)}$"):
        act()


@pytest.mark.parametrize("given_options", [{}, {"node": 0}, {"total_nodes": 2}])
def test_shard_off_node_raises(given_options: dict[str, Any]) -> None:
    expected = (
        "`sky.shard` needs the rank of the node it runs on: call it inside a `@sky.function` that was sent to a pool, "
        "or give both `node=` and `total_nodes=`."
    )
    with pytest.raises(NotOnNodeError, match=f"^{re.escape(expected)}$"):
        shard([1, 2], **given_options)
