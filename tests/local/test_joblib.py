"""Joblib's calls on real pools: `joblib.parallel_config("skyward")`."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import TimeoutError as JoblibTimeoutError
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib
import numpy as np
import pytest
from joblib import Parallel, delayed
from joblib.parallel import AutoBatchingMixin, BatchedCalls, SequentialBackend

import skyward as sky
from skyward.pool.joblib_backend import backend_class, keep_known_warnings
from skyward.pool.joblib_batches import BatchSender, JoblibBatch
from tests.local import tasks
from tests.local.pools import blob_bytes_sent, wait_until_idle
from tests.local.test_stopping import stands_still
from tests.waiting import interrupt_when, wait_for

pytestmark = pytest.mark.local

beat_for_ever = partial(tasks.heartbeat.fn, seconds=600)


@pytest.fixture(scope="module")
def pool() -> Iterator[sky.Compute]:
    """Two nodes with one slot each."""
    with sky.Compute(provider="local", nodes=2, name="joblib") as pool:
        yield pool


@pytest.fixture
def on_pool(pool: sky.Compute) -> Iterator[sky.Compute]:
    """The pool, as the backend of this thread."""
    with joblib.parallel_config("skyward", pool=pool):
        yield pool


def square(number: int) -> int:
    return number * number


def square_or_fail(number: int, bad: int) -> int:
    if number == bad:
        raise ValueError(f"cannot square {number}")
    return number * number


def rank() -> int:
    return sky.instance_info().node


def numbers_until(most: int, error: BaseException) -> Iterator[int]:
    yield from range(most)
    raise error


offset = 0
offsets = [0]


def plus_offset(number: int) -> int:
    return number + offset


def plus_first_offset(number: int) -> int:
    return number + offsets[0]


def batch_of(*numbers: int) -> JoblibBatch:
    calls: list[Any] = [(square, (number,), {}) for number in numbers]
    return JoblibBatch(BatchedCalls(calls, (SequentialBackend(nesting_level=1), None)), lambda _: None)


# Results, and the order in which they arrive.


def test_results_are_in_order_and_tiny_calls_travel_in_batches(on_pool: sky.Compute) -> None:
    before = on_pool.snapshot().done
    assert Parallel()(delayed(square)(number) for number in range(1000)) == [n * n for n in range(1000)]
    assert on_pool.snapshot().done - before < 200


def test_tasks_have_the_name_of_the_function(on_pool: sky.Compute) -> None:
    Parallel(batch_size=1)(delayed(square)(number) for number in range(4))
    assert on_pool.report().tasks[-1].name == "square"


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_calls_run_in_every_slot_of_each_executor(executor: Any) -> None:
    worker = sky.Worker(concurrency=2, executor=executor)
    with sky.Compute(provider="local", worker=worker) as pool, joblib.parallel_config("skyward"):
        assert joblib.effective_n_jobs() == 2
        assert Parallel()(delayed(square)(number) for number in range(50)) == [n * n for n in range(50)]
        assert pool.is_open


def test_generator_yields_in_order_and_in_time(on_pool: sky.Compute, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waiting = [tmp_path, gate]  # the first file exists
    results = Parallel(return_as="generator", batch_size=1)(
        delayed(tasks.wait_for_file.fn)(str(path)) for path in waiting
    )
    assert next(results) is None
    gate.touch()
    assert list(results) == [None]


def test_unordered_generator_yields_what_has_ended(on_pool: sky.Compute, tmp_path: Path) -> None:
    def after(path: str, number: int) -> int:
        while not Path(path).exists():
            time.sleep(0.01)
        return number

    gate = tmp_path / "gate"
    results = Parallel(return_as="generator_unordered", batch_size=1)(
        delayed(after)(str(gate if number == 0 else tmp_path), number) for number in range(6)
    )
    assert sorted(next(results) for _ in range(5)) == [1, 2, 3, 4, 5]
    gate.touch()
    assert list(results) == [0]


def test_abandoned_generator_stops_its_work(on_pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    results = Parallel(return_as="generator", batch_size=1)(delayed(beat_for_ever)(str(beat)) for _ in range(4))
    wait_for(beat.exists, "the call to run")
    with pytest.warns(UserWarning, match="have been cancelled"):
        results.close()
    wait_for(lambda: stands_still(beat), "the calls to stop")


def test_two_generators_of_one_setting_run_at_the_same_time(on_pool: sky.Compute) -> None:
    first = Parallel(return_as="generator", batch_size=1)(delayed(square)(number) for number in range(40))
    assert next(first) == 0
    second = Parallel(return_as="generator", batch_size=1)(delayed(square)(number) for number in range(40, 80))
    assert next(second) == 1600
    assert Parallel()(delayed(square)(number) for number in range(10)) == [n * n for n in range(10)]
    assert list(first) == [n * n for n in range(1, 40)]
    assert list(second) == [n * n for n in range(41, 80)]


def test_parallel_object_is_used_again(on_pool: sky.Compute) -> None:
    with Parallel() as parallel:
        for _ in range(2):
            assert parallel(delayed(square)(number) for number in range(5)) == [0, 1, 4, 9, 16]
        with pytest.raises(ValueError, match="cannot square 3"):
            parallel(delayed(square_or_fail)(number, 3) for number in range(5))
        assert parallel(delayed(square)(number) for number in range(5)) == [0, 1, 4, 9, 16]


def test_batches_of_one_task_get_their_results_while_functions_become_known(pool: sky.Compute) -> None:
    """The functions become too many between two steps of a thread."""
    sender = BatchSender(pool, 0, 1, None, lambda _: None, merges=True)
    batches = [batch_of(1, 2), batch_of(3, 4)]
    for batch in batches:
        sender.submit(batch)
    sender._seconds = 1e-6
    sender._most = None
    task = sender._next(hurry=True)
    assert task is not None
    assert task.batches == batches
    sender._runners = {-number: batches[0].runner for number in range(16)}
    sender._send(task)
    assert [batch.results() for batch in batches] == [[1, 4], [9, 16]]
    sender.end()


def test_run_time_that_becomes_known_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks set it on their thread while the first batches are sent."""
    monkeypatch.setattr(AutoBatchingMixin, "compute_batch_size", lambda _: 2)
    assert backend_class()().compute_batch_size() == 2


def test_missing_results_are_an_error(pool: sky.Compute) -> None:
    sender = BatchSender(pool, 0, 1, None, lambda _: None, merges=True)
    batch = batch_of(1, 2)
    sender.submit(batch)
    sender._most = None
    task = sender._next(hurry=False)
    assert task is not None
    task.future.set_result([1])
    batch.sent(task, 0)
    with pytest.raises(RuntimeError, match="A task of 2 calls of joblib returned 1 results"):
        batch.results()
    sender.end()


# Errors, timeouts and interrupts.


def test_first_error_is_raised_and_stops_the_other_calls(on_pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"

    def fail_beside(path: str) -> None:
        while not Path(path).exists():
            time.sleep(0.01)
        raise ValueError("as intended")

    calls = [delayed(beat_for_ever)(str(beat)), delayed(fail_beside)(str(beat)), delayed(beat_for_ever)(str(beat))]
    with pytest.raises(ValueError, match="as intended") as caught:
        Parallel(batch_size=1)(calls)
    assert isinstance(caught.value.__cause__, sky.errors.RemoteTraceback)
    wait_for(lambda: stands_still(beat), "the other calls to stop")
    assert Parallel()(delayed(square)(number) for number in range(5)) == [0, 1, 4, 9, 16]


def test_error_of_the_iterable_is_raised(on_pool: sky.Compute) -> None:
    for most in (0, 3, 100):
        with pytest.raises(LookupError, match="no more"):
            Parallel()(delayed(square)(number) for number in numbers_until(most, LookupError("no more")))


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("stop")])
@pytest.mark.parametrize("return_as", ["list", "generator", "generator_unordered"])
def test_exit_of_the_iterable_is_raised(pool: sky.Compute, error: BaseException, return_as: str) -> None:
    raised: list[BaseException] = []

    def use() -> None:
        for most in (0, 3, 100):
            with pytest.raises(type(error)) as caught, joblib.parallel_config("skyward", pool=pool):
                list(Parallel(return_as=return_as)(delayed(square)(number) for number in numbers_until(most, error)))
            raised.append(caught.value)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    wait_for(lambda: not thread.is_alive(), "the calls to fail")
    assert raised == [error] * 3


@pytest.mark.parametrize("position", [0, 30])
def test_call_that_cannot_be_pickled_is_an_error(on_pool: sky.Compute, position: int) -> None:
    """The thread of the callbacks sends the later ones."""
    given: list[Any] = [*range(position), threading.Lock(), *range(10)]
    with pytest.raises(sky.NotPicklableError):
        Parallel(batch_size=1)(delayed(square)(number) for number in given)


def test_timeout_raises_and_stops_the_calls(on_pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with pytest.raises(JoblibTimeoutError):
        Parallel(timeout=1)(delayed(beat_for_ever)(str(beat)) for _ in range(4))
    wait_until_idle(on_pool)
    assert not beat.exists() or stands_still(beat), "a call may not have begun in time"


@pytest.mark.parametrize("return_as", ["generator", "generator_unordered"])
def test_timeout_of_a_generator_raises(on_pool: sky.Compute, return_as: str) -> None:
    with pytest.raises(JoblibTimeoutError):
        list(Parallel(timeout=0.2, return_as=return_as)(delayed(time.sleep)(60) for _ in range(4)))


def test_limit_of_the_pool_is_per_call_and_its_error_names_the_option() -> None:
    with (
        sky.Compute(provider="local", default_compute_timeout=0.5),
        joblib.parallel_config("skyward"),
        pytest.raises(sky.TaskTimeoutError, match="past its timeout of 1 s") as caught,
    ):
        Parallel(batch_size=2, pre_dispatch="all")(delayed(time.sleep)(60) for _ in range(4))
    assert "default_compute_timeout" in caught.value.__notes__[-1]


def test_interrupt_stops_the_calls(on_pool: sky.Compute, tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with pytest.raises(KeyboardInterrupt), interrupt_when(beat.exists, "the call to run"):
        Parallel()(delayed(beat_for_ever)(str(beat)) for _ in range(4))
    wait_for(lambda: stands_still(beat), "the calls to stop")
    assert Parallel()(delayed(square)(number) for number in range(5)) == [0, 1, 4, 9, 16]


def test_calls_of_a_killed_node_run_again(on_pool: sky.Compute, tmp_path: Path) -> None:
    died = tmp_path / "died"
    calls = [delayed(square)(2), delayed(tasks.die_once.fn)(str(died)), delayed(square)(3)]
    assert Parallel(batch_size=1)(calls) == [4, "alive", 9]


# Which calls run where, and how many.


def test_nested_calls_stay_on_their_slot(on_pool: sky.Compute) -> None:
    def nested() -> tuple[int, set[int]]:
        return os.getpid(), set(Parallel(n_jobs=2)(delayed(os.getpid)() for _ in range(4)))

    for outer, inner in Parallel(batch_size=1)(delayed(nested)() for _ in range(4)):
        assert outer != os.getpid()
        assert inner == {outer}


def test_calls_that_prefer_threads_run_on_the_pool(on_pool: sky.Compute) -> None:
    assert os.getpid() not in Parallel(n_jobs=-1, prefer="threads")(delayed(os.getpid)() for _ in range(4))


def test_calls_that_require_shared_memory_run_here(on_pool: sky.Compute) -> None:
    found: list[int] = []
    Parallel(n_jobs=2, require="sharedmem")(delayed(found.append)(number) for number in range(4))
    assert sorted(found) == [0, 1, 2, 3]


def test_single_job_runs_here(on_pool: sky.Compute) -> None:
    assert Parallel(n_jobs=1)(delayed(os.getpid)() for _ in range(2)) == [os.getpid()] * 2


@pytest.mark.parametrize(("threads", "expected"), [(1, {1}), (2, {2})])
def test_inner_threads_are_limited(pool: sky.Compute, threads: int, expected: set[int]) -> None:
    def limits() -> set[int]:
        import threadpoolctl

        return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}

    Parallel(backend="skyward")(delayed(np.linalg.norm)([1]) for _ in range(2))  # nodes load BLAS
    with joblib.parallel_config("skyward", pool=pool, inner_max_num_threads=threads):
        assert Parallel()(delayed(limits)() for _ in range(2)) == [expected] * 2


def test_number_of_jobs_counts_slots(on_pool: sky.Compute) -> None:
    assert joblib.effective_n_jobs() == joblib.effective_n_jobs(-1) == joblib.effective_n_jobs(None) == 2
    assert joblib.effective_n_jobs(-2) == 1
    assert joblib.effective_n_jobs(7) == 7
    with pytest.raises(ValueError, match="n_jobs == 0"):
        joblib.effective_n_jobs(0)


def test_pool_of_one_slot_still_gets_the_calls() -> None:
    with sky.Compute(provider="local"), joblib.parallel_config("skyward"):
        assert joblib.effective_n_jobs() == 2
        assert os.getpid() not in Parallel()(delayed(os.getpid)() for _ in range(4))


def test_fewer_jobs_than_slots_leave_slots_free(tmp_path: Path) -> None:
    def peak(folder: str, number: int) -> int:
        own = Path(folder, str(number))
        own.touch()
        time.sleep(0.02)
        running = len(list(Path(folder).iterdir()))
        own.unlink()
        return running

    worker = sky.Worker(concurrency=4, executor="thread")
    with sky.Compute(provider="local", worker=worker), joblib.parallel_config("skyward"):
        peaks = Parallel(n_jobs=2, batch_size=1)(delayed(peak)(str(tmp_path), number) for number in range(12))
    assert max(peaks) <= 2


def test_elastic_pool_grows_for_its_calls(tmp_path: Path) -> None:
    """Each call waits until calls run on three nodes."""

    def meet(folder: str) -> None:
        Path(folder, str(rank())).touch()
        while len(list(Path(folder).iterdir())) < 3:
            time.sleep(0.01)

    with sky.Compute(provider="local", nodes=(1, 3), autoscale_cooldown=0.1), joblib.parallel_config("skyward"):
        assert joblib.effective_n_jobs() == 3
        Parallel(batch_size=1)(delayed(meet)(str(tmp_path)) for _ in range(6))


# What is sent.


def test_array_that_calls_share_is_sent_once(on_pool: sky.Compute) -> None:
    array = np.random.default_rng(0).random(2_000_000)
    before = blob_bytes_sent(on_pool)
    sums = Parallel(batch_size=1)(delayed(np.sum)(array) for _ in range(20))
    assert sums == [array.sum()] * 20
    assert array.nbytes <= blob_bytes_sent(on_pool) - before < 2.5 * array.nbytes


def test_filters_with_categories_that_nodes_lack_are_not_sent(
    on_pool: sky.Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings

    from sklearn.utils.parallel import Parallel as SklearnParallel
    from sklearn.utils.parallel import delayed as sklearn_delayed

    only_here = ModuleType("onlyhere")
    exec("class OnlyHereWarning(UserWarning): pass", only_here.__dict__)
    monkeypatch.setitem(sys.modules, "onlyhere", only_here)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", only_here.OnlyHereWarning)
        before = list(warnings.filters)
        assert SklearnParallel()(sklearn_delayed(square)(number) for number in range(5)) == [0, 1, 4, 9, 16]
        assert list(warnings.filters) == before


def test_other_filters_are_sent_as_one_list() -> None:
    class Wrapper:
        def __init__(self, filters: list[Any]) -> None:
            self.warning_filters = filters

    class OnlyHereWarning(UserWarning):
        pass

    known, unknown = ("error", None, np.exceptions.ComplexWarning, None, 0), ("ignore", None, OnlyHereWarning, None, 0)
    either = ("ignore", None, (UserWarning, OnlyHereWarning), None, 0)
    shared, dropped = [known, unknown, either], [unknown]
    wrappers = [Wrapper(shared), Wrapper(shared), Wrapper(dropped)]
    keep_known_warnings([(each, (), {}) for each in (*wrappers, square)])
    assert wrappers[0].warning_filters == [known]
    assert wrappers[0].warning_filters is wrappers[1].warning_filters
    assert wrappers[2].warning_filters == [("default", None, Warning, None, 0)], "scikit-learn warns of an empty list"
    assert shared == [known, unknown, either]


@pytest.mark.parametrize("function", [plus_offset, plus_first_offset])
def test_calls_see_globals_as_they_are_when_their_batch_is_sent(on_pool: sky.Compute, function: Any) -> None:
    """Joblib reads ahead as many items as there are slots, so pairs of calls see the same."""

    def calls() -> Iterator[Any]:
        global offset
        for number in range(40):
            offset = offsets[0] = number // 2 * 1000
            yield delayed(function)(number)

    results = Parallel(batch_size=1)(calls())
    assert results == [number + number // 2 * 1000 for number in range(40)]


@pytest.mark.parametrize("position", [0, 30])
def test_decorated_function_runs_unless_it_has_settings(on_pool: sky.Compute, position: int) -> None:
    """The thread of the callbacks sends the later ones."""
    decorated = sky.function(square)
    calls = [delayed(decorated)(number) for number in range(position)]
    assert Parallel(batch_size=1)(calls) == [number * number for number in range(position)]
    for limited in (
        sky.function(timeout=60)(square),
        sky.function(retries=1)(square),
        sky.function(capabilities=["gpu"])(square),
    ):
        with pytest.raises(sky.UsageError, match=r"cannot keep .* of `square`.*`pool\.map\(square, items\)`"):
            Parallel(batch_size=1)([*calls, delayed(limited)(1)])


def test_decorated_method_runs_with_its_object(on_pool: sky.Compute) -> None:
    class Line:
        slope = 3

        @sky.function
        def at(self, x: int) -> int:
            return self.slope * x

    line = Line()
    assert Parallel()(delayed(line.at)(x) for x in range(3)) == [0, 3, 6]


# Which pool.


def test_pool_in_scope_is_used(pool: sky.Compute) -> None:
    with sky.Compute(provider="local"), joblib.parallel_config("skyward"):
        assert joblib.effective_n_jobs() == 2
        assert set(Parallel()(delayed(rank)() for _ in range(4))) == {0}


def test_two_pools_work_at_once(pool: sky.Compute) -> None:
    with sky.Compute(provider="local") as other:
        running = []
        for each in (pool, other):
            with joblib.parallel_config("skyward", pool=each):
                running.append(Parallel(return_as="generator", batch_size=1)(delayed(os.getpid)() for _ in range(20)))
        first, second = map(set, running)
        assert not first & second
        with joblib.parallel_config("skyward", pool=pool):
            outer = set(Parallel()(delayed(os.getpid)() for _ in range(20)))
            with joblib.parallel_config("skyward", pool=other):
                inner = set(Parallel()(delayed(os.getpid)() for _ in range(20)))
        assert inner == second
        assert not outer & inner


def test_another_thread_finds_the_only_open_pool(pool: sky.Compute) -> None:
    found: list[int] = []

    def use() -> None:
        with joblib.parallel_config("skyward"):
            found.extend(Parallel()(delayed(square)(number) for number in range(5)))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [0, 1, 4, 9, 16]


def test_several_open_pools_outside_a_block_are_ambiguous() -> None:
    with pytest.raises(sky.NoPoolError, match=r'or name it: `joblib\.parallel_config\("skyward", pool=pool\)`'):
        _in_thread_with_two_pools()


def _in_thread_with_two_pools() -> None:
    raised: list[BaseException] = []

    def use() -> None:
        with joblib.parallel_config("skyward"):
            try:
                Parallel()(delayed(square)(number) for number in range(5))
            except BaseException as error:
                raised.append(error)

    with sky.Compute(provider="local"), sky.Compute(provider="local"):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    (error,) = raised
    raise error


def test_pool_that_is_not_one_is_refused() -> None:
    with pytest.raises(sky.UsageError, match="takes a pool, but got 3"):
        joblib.parallel_config("skyward", pool=3)


def test_closed_pool_is_an_error(pool: sky.Compute) -> None:
    with sky.Compute(provider="local") as closed:
        pass
    with joblib.parallel_config("skyward", pool=closed), pytest.raises(sky.PoolClosedError):
        Parallel()(delayed(square)(number) for number in range(5))


def test_pool_that_closes_meanwhile_is_an_error(tmp_path: Path) -> None:
    beat = tmp_path / "beat"
    with sky.Compute(provider="local") as pool, joblib.parallel_config("skyward"):
        results = Parallel(return_as="generator")(delayed(beat_for_ever)(str(beat)) for _ in range(10))
        wait_for(beat.exists, "the call to run")
        pool.close()
        with pytest.raises(sky.PoolClosedError):
            list(results)


# Registration, and the plugin.


def test_backend_is_known_however_late_joblib_is_imported() -> None:
    code = (
        "import sys, skyward as sky\n"
        "pool = sky.Compute(provider='local')\n"
        "assert 'joblib' not in sys.modules\n"
        "import joblib\n"
        "assert 'skyward.pool.joblib_backend' not in sys.modules\n"
        "try:\n"
        "    with joblib.parallel_config('skyward'):\n"
        "        joblib.Parallel()(joblib.delayed(abs)(n) for n in range(3))\n"
        "except sky.NoPoolError as error:\n"
        "    print(error)\n"
        "with pool, joblib.parallel_config('skyward'):\n"
        "    print(joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)))\n"
        "    print(joblib.Parallel(backend='skyward')(joblib.delayed(abs)(-n) for n in range(3)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.splitlines() == [
        "No pool is in scope: open one with `with sky.Compute(...) as pool:`, or name it: "
        '`joblib.parallel_config("skyward", pool=pool)`.',
        "[0, 1, 2]",
        "[0, 1, 2]",
    ]


def test_extension_makes_the_backend_known() -> None:
    """Its cells have the kernel's pool in scope."""
    code = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "for cell in sys.argv[1:]:\n"
        "    shell.run_cell(cell).raise_error()\n"
    )
    cells = [
        "%load_ext skyward",
        "import sys; assert 'joblib' not in sys.modules; assert 'skyward.pool.compute' not in sys.modules",
        "import joblib; assert 'skyward' in joblib.parallel.BACKENDS",
        "%sky up --nodes 2",
        "with joblib.parallel_config('skyward'):\n"
        "    print(joblib.effective_n_jobs(), joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)))",
        "%unload_ext skyward",
    ]
    done = subprocess.run([sys.executable, "-c", code, *cells], capture_output=True, text=True, check=True, timeout=100)
    assert "2 [0, 1, 2]" in done.stdout.splitlines()


def test_plugin_makes_a_block_the_default_of_its_thread() -> None:
    elsewhere: list[int] = []
    with sky.Compute(provider="local", plugins=[sky.plugins.joblib()]) as pool:
        assert os.getpid() not in Parallel(n_jobs=-1)(delayed(os.getpid)() for _ in range(4))
        with pool:
            assert os.getpid() not in Parallel(n_jobs=-1)(delayed(os.getpid)() for _ in range(4))
        thread = threading.Thread(target=lambda: elsewhere.append(joblib.parallel.get_active_backend()[1]))
        thread.start()
        thread.join()
    assert elsewhere == [None]
    assert type(joblib.parallel.get_active_backend()[0]).__name__ == "LokyBackend"


def test_plugin_changes_nothing_without_a_block() -> None:
    pool = sky.Compute(provider="local", plugins=[sky.plugins.joblib()])
    pool.open()
    try:
        with pool:
            assert os.getpid() not in Parallel(n_jobs=-1)(delayed(os.getpid)() for _ in range(4))
        pool.open()
        assert type(joblib.parallel.get_active_backend()[0]).__name__ == "LokyBackend"
        with joblib.parallel_config("skyward", pool=pool):
            assert os.getpid() not in Parallel()(delayed(os.getpid)() for _ in range(4))
    finally:
        pool.close()


def test_plugin_leaves_its_thread_though_another_one_has_closed_the_pool() -> None:
    with sky.Compute(provider="local", plugins=[sky.plugins.joblib()]) as pool:
        thread = threading.Thread(target=pool.close)
        thread.start()
        thread.join()
        with pytest.raises(sky.PoolClosedError):
            Parallel(n_jobs=-1)(delayed(square)(number) for number in range(4))
    assert type(joblib.parallel.get_active_backend()[0]).__name__ == "LokyBackend"


def test_coroutines_name_the_backend_on_the_thread_that_uses_it() -> None:
    """Joblib's setting is of a thread, which all coroutines share."""
    import asyncio

    def fit() -> list[int]:
        with joblib.parallel_config("skyward"):
            return list(Parallel()(delayed(square)(number) for number in range(5)))

    async def use() -> list[int]:
        async with sky.Compute(provider="local", plugins=[sky.plugins.joblib()]):
            assert type(joblib.parallel.get_active_backend()[0]).__name__ == "LokyBackend"
            return await asyncio.to_thread(fit)

    assert asyncio.run(use()) == [0, 1, 4, 9, 16]
