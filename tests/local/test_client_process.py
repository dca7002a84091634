"""The client's side of a pool: forked processes, nested and concurrent blocks, `map`."""

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import skyward as sky
from skyward.functions.target import current_pool
from tests.local import tasks

pytestmark = pytest.mark.local

REFUSED = "Pools do not work in a process that was forked from one that uses them"


@pytest.fixture
def _forks_with_threads() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of a fork in a process with threads
        yield


def refusals(attempts: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Return the outcome of each attempt, cut at the start of the advice."""
    outcomes: dict[str, str] = {}
    for name, attempt in attempts.items():
        try:
            outcomes[name] = f"gave {attempt()!r}"
        except sky.UsageError as error:
            outcomes[name] = str(error).partition(":")[0]
    return outcomes


def in_a_fork(pool: sky.Compute, work: Callable[[], dict[str, str]]) -> dict[str, str]:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=lambda: answers.put(work()))
    process.start()
    process.join(20)
    assert process.exitcode == 0
    outcomes: dict[str, str] = answers.get()
    return outcomes


@pytest.mark.usefixtures("_forks_with_threads")
def test_every_use_of_a_pool_in_a_forked_child_is_refused_and_the_parent_continues() -> None:
    with sky.Compute(nodes=1, worker=sky.Worker(concurrency=3)) as pool:
        cache = pool.dict("cache")
        cache["a"] = 1
        stream = tasks.count(10_000) >> pool
        first = next(stream)
        late = tasks.sleep(1.0) > pool
        attempts: dict[str, Callable[[], object]] = {
            ">>": lambda: tasks.add(1, 2) >> pool,
            ">": lambda: tasks.add(1, 2) > pool,
            "@": lambda: tasks.add(1, 2) @ pool,
            "a future of the parent": late.result,
            "a stream of the parent": lambda: next(stream),
            "a collection": lambda: cache["a"],
            "looking": pool.snapshot,
            "closing": pool.close,
            "another pool": lambda: sky.Compute(nodes=1).open(),
        }
        assert in_a_fork(pool, lambda: refusals(attempts)) == dict.fromkeys(attempts, REFUSED)
        assert tasks.add(1, 2) >> pool == 3
        assert first + sum(stream) == sum(range(10_000))
        assert (late.result(), cache["a"]) == ("slept", 1)


@pytest.mark.usefixtures("_forks_with_threads")
def test_forked_child_that_leaves_the_block_closes_nothing() -> None:
    with sky.Compute(nodes=1) as pool:
        child = os.fork()
        if not child:
            status = 1
            try:
                pool.__exit__(None, None, None)
                from skyward.pool import hooks as opened

                opened._close_all()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert tasks.add(1, 2) >> pool == 3


def test_last_of_nested_blocks_closes_the_pool() -> None:
    before = current_pool.get()
    with sky.Compute(nodes=1) as pool:
        with pool as same:
            assert same is pool
        assert tasks.add(1, 2) >> pool == 3
        assert current_pool.get() is pool
        with pytest.raises(sky.SpecError), pool:
            raise sky.SpecError
        assert pool.is_open
        assert pool.open() is pool
    assert not pool.is_open
    assert current_pool.get() is before
    with pool:
        assert tasks.add(1, 2) >> pool == 3
    with pytest.raises(sky.PoolClosedError, match="is not open; use it inside"):
        tasks.add(1, 2) >> pool


def test_pool_opened_from_several_threads_is_one_and_closes_with_the_last_block() -> None:
    pool = sky.Compute(nodes=1)
    both, answers = threading.Barrier(2), list[int]()

    def use(rounds: int) -> None:
        both.wait(20)
        with pool:
            for _ in range(rounds):
                answers.append(tasks.pid() >> pool)

    threads = [threading.Thread(target=use, args=(rounds,)) for rounds in (1, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert len(answers) == 21
    assert len(set(answers)) == 1, "the blocks used different nodes"
    assert not pool.is_open


def test_map_keeps_the_order_of_items_and_takes_plain_functions(pool: sky.Compute) -> None:
    @sky.function
    def twice(number: int) -> int:
        return 2 * number

    assert pool.map(lambda number: number * number, range(20)) == [number * number for number in range(20)]
    assert pool.map(twice, iter([3, 1, 2])) == [6, 2, 4]
    assert pool.map(twice, []) == []
    with pytest.raises(ZeroDivisionError):
        pool.map(lambda number: 1 // number, [1, 0])
    with pytest.raises(sky.OperatorError, match=r"`count` yields: stream each call with `count\(item\) >> pool`"):
        pool.map(tasks.count, [1])


def test_names_of_the_published_library_name_their_replacement(pool: sky.Compute) -> None:
    with pytest.raises(AttributeError, match="^A pool has no 'run_async': `task.x. > pool` returns a future"):
        _ = pool.run_async  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="^A pool has no 'nothing'.$"):
        _ = pool.nothing  # type: ignore[attr-defined]
    assert not hasattr(pool, "current_nodes")


@pytest.mark.skipif(sys.platform != "linux", reason="on_exit is of the GNU C library")
def test_process_does_not_crash_after_the_interpreter_has_ended(tmp_path: Path) -> None:
    """Regression: the loop's thread took the interpreter's lock when a timer was due after the interpreter's end."""
    script = tmp_path / "script.py"
    script.write_text(
        "import ctypes, sys\n"
        "import skyward as sky\n"
        "with sky.Compute(nodes=1):\n"
        "    pass\n"
        "library = ctypes.CDLL(None)\n"
        "library.on_exit(library.sleep, None)  # with the status: the process lives for a second more\n"
        "sys.exit(1)\n"
    )
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1, f"ended with {ended.returncode}: {ended.stderr}"
