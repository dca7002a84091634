"""Payloads: contents, number of transfers, and their life on the node."""

import builtins
import gc
import secrets
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import skyward as sky
from tests.local import tasks
from tests.waiting import wait_for

pytestmark = pytest.mark.local

type Array = npt.NDArray[np.float64]


@sky.function
def mean(array: Array) -> float:
    return float(array.mean())


@sky.function
def overwrite(array: Array) -> float:
    array[:] = 7.0
    return float(array.mean())


@sky.function
def make(size: int) -> Array:
    return np.arange(size, dtype=np.float64)


@sky.function
def text(size: int) -> str:
    return "x" * size


@sky.function
def make_and_keep(size: int) -> Array:
    array = np.arange(size, dtype=np.float64)
    builtins.kept = array  # type: ignore[attr-defined]  # for the life of the process
    return array


@sky.function
def blobs_held() -> int:
    from skyward.worker.blobs.store import BlobStore

    stores = [each for each in gc.get_objects() if isinstance(each, BlobStore)]
    return sum(len(store._blobs) + len(store._owned) for store in stores)


@sky.function
def count_copies() -> None:
    from skyward.worker.blobs.store import BlobStore

    copy = BlobStore.keep
    builtins.copies = 0  # type: ignore[attr-defined]

    def keep(store: BlobStore, view: memoryview) -> bytes:
        builtins.copies += 1  # type: ignore[attr-defined]
        return copy(store, view)

    BlobStore.keep = keep  # type: ignore[assignment, method-assign]  # counted for the life of the node


@sky.function
def copies() -> int:
    return builtins.copies  # type: ignore[attr-defined,no-any-return]


@sky.function
def length(*parts: bytes) -> int:
    return sum(map(len, parts))


def sent(pool: sky.Compute) -> int:
    """Return the bytes of blobs sent to the nodes of `pool` so far."""
    return sum(node.received for node in pool.snapshot().nodes)


def test_large_arguments_and_results_arrive_unchanged(each_executor: sky.Compute) -> None:
    array = np.arange(1_000_000, dtype=np.float64)
    assert mean(array) >> each_executor == array.mean()
    np.testing.assert_array_equal(make(1_000_000) >> each_executor, array)


def test_argument_is_writable_and_sent_again_for_the_next_call(each_executor: sky.Compute) -> None:
    array = np.zeros(100_000)
    for _ in range(3):
        assert overwrite(array) >> each_executor == 7.0
        assert array.sum() == 0
        assert mean(array) >> each_executor == 0.0


def test_result_is_writable(pool: sky.Compute) -> None:
    array = make(100_000) >> pool
    array[0] = 5.0
    assert array[0] == 5.0


def test_argument_is_sent_once_to_each_node(pool: sky.Compute) -> None:
    array = np.random.default_rng(1).random(500_000)
    before = sent(pool)
    sky.gather(*(mean(array) for _ in range(8))) >> pool
    mean(array) @ pool
    assert sent(pool) - before == 2 * array.nbytes


def test_changed_array_is_sent_again(pool: sky.Compute) -> None:
    array = np.zeros(100_000)
    mean(array) @ pool
    array[0] = 100_000.0
    assert mean(array) @ pool == [1.0, 1.0]


def test_equal_data_is_sent_once_under_any_name(pool: sky.Compute) -> None:
    data = np.random.default_rng(2).random(100_000)
    mean(data) @ pool
    before = sent(pool)
    assert mean(data.copy()) @ pool == [data.mean()] * 2
    assert sent(pool) == before


def test_many_medium_sized_arguments_arrive_unchanged(each_executor: sky.Compute) -> None:
    parts = [secrets.token_bytes(50_000) for _ in range(40)]
    assert length(*parts) >> each_executor == 2_000_000


def test_gather_returns_large_results_in_order(each_executor: sky.Compute) -> None:
    results = sky.gather(*(make(20_000 + i) for i in range(30))) >> each_executor
    assert [len(result) for result in results] == [20_000 + i for i in range(30)]


@pytest.mark.parametrize("result", [make, make_and_keep])
def test_node_drops_results_that_the_client_has(
    pool: sky.Compute, result: Callable[[int], sky.PendingFunction[Array]]
) -> None:
    """Results are kept on the node only until the client has them."""
    before = pool.start(blobs_held(), on=0).future.result(10)
    for _ in range(5):
        pool.start(result(100_000), on=0).future.result(10)
    wait_for(lambda: pool.start(blobs_held(), on=0).future.result(10) == before, "the results to be dropped")


def test_unshared_result_is_not_copied() -> None:
    with sky.Compute(nodes=1) as pool:
        count_copies() >> pool
        np.testing.assert_array_equal(make(100_000) >> pool, np.arange(100_000, dtype=np.float64))
        assert len(text(100_000) >> pool) == 100_000
        assert copies() >> pool == 0
        for _ in range(2):
            kept = make_and_keep(100_000) >> pool
            np.testing.assert_array_equal(kept, np.arange(100_000, dtype=np.float64))
        assert copies() >> pool == 2


def test_replaced_node_is_sent_what_it_needs_again() -> None:
    array = np.random.default_rng(3).random(200_000)
    with sky.Compute(nodes=1, retry_on_interruption=0) as pool:
        assert mean(array) >> pool == array.mean()
        with pytest.raises(sky.NodeLostError):
            tasks.die() >> pool
        assert mean(array) >> pool == array.mean()


def test_small_tasks_overtake_a_large_argument(pool: sky.Compute) -> None:
    """The bulk path blocks no message: a small task ends while a large argument is in transfer."""
    large = np.zeros(60_000_000)
    future = mean(large) > pool
    assert [tasks.add(i, 1) >> pool for i in range(4)] == [1, 2, 3, 4]
    assert future.result(60) == 0.0


class Counted:
    """A callable that counts how often it is pickled."""

    pickled = 0

    def __call__(self, number: int) -> int:
        return number + 1

    def __reduce__(self) -> tuple[type["Counted"], tuple[()]]:
        Counted.pickled += 1
        return Counted, ()


def test_function_of_a_gather_is_pickled_once(pool: sky.Compute) -> None:
    function = sky.function(Counted())
    Counted.pickled = 0
    assert sky.gather(*(function(number) for number in range(50))) >> pool == tuple(range(1, 51))
    assert Counted.pickled == 1


def test_function_is_sent_again_when_its_references_have_changed(pool: sky.Compute) -> None:
    namespace: dict[str, object] = {"__name__": "__main__", "factor": 2}
    exec("def scaled(number): return number * factor", namespace)
    scaled = sky.function(namespace["scaled"])  # type: ignore[call-overload]  # from a dict of objects
    assert scaled(21) >> pool == 42
    namespace["factor"] = 3
    assert scaled(21) >> pool == 63


def test_blobs_stay_within_the_budget_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used are evicted, and sent again when needed."""
    monkeypatch.setattr("skyward.control.act.nodes.node.BLOB_BUDGET", 2_500_000)
    arrays = [np.full(125_000, float(index)) for index in range(4)]  # 1 MB each; two fit
    with sky.Compute(nodes=1) as pool:
        for _ in range(2):
            assert [mean(array) >> pool for array in arrays] == [0.0, 1.0, 2.0, 3.0]
        assert sent(pool) == 8_000_000
        assert mean(arrays[3]) >> pool == 3.0
        assert sent(pool) == 8_000_000
