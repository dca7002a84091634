"""Values and exceptions between a program and its tasks, and the state that a call sees."""

import asyncio
import concurrent.futures
import dataclasses
import enum
import functools
import importlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import skyward as sky

pytestmark = pytest.mark.local


# Classes and functions of this file are sent by value, as in a script.


class Slotted:
    __slots__ = ("__hidden", "__weakref__", "a")

    def __init__(self, a: object) -> None:
        self.a, self.__hidden = a, "hidden"

    def hidden(self) -> str:
        return self.__hidden


class SlottedChild(Slotted):
    __slots__ = ("b",)


class OpenChild(Slotted):
    pass


class KeepsState:
    __slots__ = ("a",)

    def __init__(self, a: int) -> None:
        self.a = a

    def __getstate__(self) -> int:
        return self.a

    def __setstate__(self, state: int) -> None:
        self.a = state


@dataclasses.dataclass(slots=True, weakref_slot=True)
class Record:
    a: int
    parts: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: int


class Color(enum.Enum):
    RED = 1


class Row(NamedTuple):
    a: int


class Box[T]:
    def __init__(self, a: T) -> None:
        self.a = a


class DetailError(Exception):
    def __init__(self, code: int, *, detail: object) -> None:
        super().__init__(f"error {code}")
        self.code, self.detail = code, detail


@functools.cache
def doubled(x: int) -> int:
    return 2 * x


class Cached:
    @functools.lru_cache(maxsize=3)  # noqa: B019  # intended
    def plus(self, x: int) -> int:
        return x + 1

    @functools.cached_property
    def slow(self) -> int:
        return 3


@functools.singledispatch
def kind_of(x: object) -> str:
    return "object"


@kind_of.register
def _(x: int) -> str:
    return "int"


@sky.function
def same(x: Any) -> Any:
    return x


@sky.function
def each(xs: list[Any]) -> Iterator[Any]:
    yield from xs


@sky.function
def call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


@sky.function
def raise_(error: BaseException) -> None:
    raise error


@sky.function
def yield_then_raise(error: BaseException) -> Iterator[int]:
    yield 1
    raise error


def filled(kind: type[Any], **values: object) -> Any:
    made = kind(1)
    for name, value in values.items():
        setattr(made, name, value)
    return made


VALUES = [
    filled(Slotted),
    filled(SlottedChild, b=2),
    filled(OpenChild, c=3),
    KeepsState(1),
    Record(1, [2]),
    Frozen(1),
    Box[int](1),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_objects_with_slots_can_be_sent_and_returned(slots: sky.Compute, value: Any) -> None:
    for found in (same(value) >> slots, *(each([value]) >> slots), *(same(value) @ slots)):
        assert type(found) is type(value)
        assert found.a == 1
        for name in ("b", "c", "parts"):
            assert getattr(found, name, None) == getattr(value, name, None)
        if isinstance(found, Slotted):
            assert found.hidden() == "hidden"
        if not isinstance(value, (OpenChild, Box)):
            assert not hasattr(found, "__dict__")


def test_enum_members_and_named_tuples_keep_their_identity(slots: sky.Compute) -> None:
    assert same([Color.RED, Row(1)]) >> slots == [Color.RED, Row(1)]
    assert same(Color.RED) >> slots is Color.RED
    assert same(Color) >> slots is Color


def test_cached_functions_can_be_sent_and_returned(slots: sky.Compute) -> None:
    @sky.function
    def use() -> tuple[int, int]:
        return doubled(4), Cached().plus(1)

    assert use() >> slots == (8, 2)
    assert call(doubled, 3) >> slots == 6
    assert call(functools.partial(doubled, 5)) >> slots == 10
    assert call(Cached().plus, 3) >> slots == 4
    assert sky.function(doubled)(6) >> slots == 12
    assert (same(doubled) >> slots)(7) == 14
    assert (same(Cached()) >> slots).slow == 3
    assert [call(kind_of, 3) >> slots, call(kind_of, "x") >> slots] == ["int", "object"]


def test_value_in_an_exception_keeps_its_class(slots: sky.Compute) -> None:
    with pytest.raises(DetailError, match="^error 3$") as caught:
        raise_(DetailError(3, detail=filled(Slotted))) >> slots
    assert caught.value.code == 3
    assert isinstance(caught.value.detail, Slotted)
    assert isinstance(caught.value.__cause__, sky.RemoteTraceback)


def test_special_values_can_be_results(slots: sky.Compute) -> None:
    values = [None, ..., NotImplemented, DetailError, ValueError(1), same]
    found = list(each(values) >> slots)
    assert found[:4] == values[:4]
    assert isinstance(found[4], ValueError)
    assert found[5](3) >> slots == 3
    assert (same(NotImplemented) > slots).result(20) is NotImplemented
    with pytest.raises(
        sky.OperatorError, match=r"^`same\(\.\.\.\)` returned NotImplemented, which an operator cannot return"
    ):
        same(NotImplemented) >> slots


# Exceptions of a task that the client would misinterpret.

ALIKE = [
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (GeneratorExit("x"), "GeneratorExit"),
    (StopAsyncIteration(), "StopAsyncIteration"),
    (asyncio.CancelledError("mine"), "CancelledError"),
    (concurrent.futures.CancelledError("mine"), "CancelledError"),
    (sky.TaskCancelledError("mine"), "TaskCancelledError"),
    (sky.TaskTimeoutError("mine"), "TaskTimeoutError"),
    (sky.NodeLostError("mine"), "NodeLostError"),
]


@pytest.mark.parametrize(("error", "name"), ALIKE, ids=[name for _, name in ALIKE])
def test_exceptions_reserved_for_the_pool_become_remote_errors(
    slots: sky.Compute, error: BaseException, name: str
) -> None:
    for send in (
        lambda: raise_(error) >> slots,
        lambda: (raise_(error) > slots).result(20),
        lambda: raise_(error) @ slots,
        lambda: sky.gather(raise_(error), same(1)) >> slots,
        lambda: list(sky.gather(raise_(error), same(1), stream=True) >> slots),
        lambda: list(yield_then_raise(error) >> slots),
    ):
        with pytest.raises(
            sky.RemoteError, match=rf"\(\) raised {name}(: \w+)? on node 0, which would be mistaken for"
        ) as caught:
            send()
        assert caught.value.type_name == name
        assert type(error).__name__ in str(caught.value.__cause__)
    assert same(1) >> slots == 1


def test_stop_iteration_in_a_task_does_not_end_a_loop_of_the_client(slots: sky.Compute) -> None:
    with pytest.raises(sky.RemoteError, match="raised StopIteration: 3 on node 0"):
        list(sky.gather(same(1), raise_(StopIteration(3)), same(2), stream=True) >> slots)


def test_timeout_error_raised_by_the_task_keeps_its_type(slots: sky.Compute) -> None:
    with pytest.raises(TimeoutError, match="^mine$") as caught:
        raise_(TimeoutError("mine")) >> slots
    assert not isinstance(caught.value, sky.TaskTimeoutError)


@pytest.mark.parametrize(("status", "shown"), [(0, "0"), (None, ""), ("bye", "'bye'")])
def test_sys_exit_ends_only_its_task(slots: sky.Compute, status: Any, shown: str) -> None:
    @sky.function
    def leave() -> None:
        sys.exit(status)

    @sky.function
    def leave_later() -> Iterator[int]:
        yield 1
        sys.exit(status)

    for send in (
        lambda: leave() >> slots,
        lambda: leave() @ slots,
        lambda: (leave() > slots).result(20),
        lambda: sky.gather(leave(), same(1)) >> slots,
        lambda: list(leave_later() >> slots),
    ):
        with pytest.raises(sky.TaskExitError) as caught:
            send()
        assert f"called sys.exit({shown}) on node 0, which ended the task without a result" in str(caught.value)
        assert caught.value.status == status
        assert isinstance(caught.value, Exception)
    assert same(1) >> slots == 1


def test_group_of_reserved_exceptions_becomes_a_group_of_ordinary_ones(slots: sky.Compute) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        raise_(BaseExceptionGroup("both", [SystemExit(3), DetailError(1, detail=None)])) >> slots
    assert [type(error) for error in caught.value.exceptions] == [sky.TaskExitError, DetailError]


def test_process_that_a_task_ends_counts_as_lost() -> None:
    @sky.function
    def vanish() -> None:
        os._exit(3)

    worker = sky.Worker(executor="process")
    with sky.Compute(nodes=1, worker=worker, retry_on_interruption=1) as pool:
        with pytest.raises(sky.NodeLostError, match=r"^vanish\(\) did not finish: .* the last of 2 attempts"):
            vanish() >> pool
        assert same(1) >> pool == 1


def test_script_whose_task_exits_fails_with_the_task(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            import skyward as sky

            class MyError(Exception):
                def __init__(self, code, detail):
                    super().__init__(f"{code}: {detail}")
                    self.code, self.detail = code, detail

            @sky.function
            def fail():
                raise MyError(3, "d")

            @sky.function
            def leave():
                sys.exit(0)

            if __name__ == "__main__":
                with sky.Compute(nodes=1) as pool:
                    try:
                        fail() >> pool
                    except MyError as error:
                        print(error.code, error.detail)
                    leave() >> pool
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "3 d\n"
    assert done.returncode == 1
    assert "TaskExitError: leave() called sys.exit(0) on node 0" in done.stderr


# Values that cannot be sent.


def test_unreturnable_value_is_refused_with_the_alternative(slots: sky.Compute) -> None:
    @sky.function
    def give(what: str) -> Any:
        async def coroutine() -> None: ...

        if what == "coroutine":
            made = coroutine()
            made.close()
            return [made]
        others: dict[str, Callable[[], Any]] = {
            "lock": lambda: {"a": [threading.Lock()]},
            "generator": lambda: (i for i in range(3)),
            "future": concurrent.futures.Future,
            "file": lambda: open("/dev/null"),  # noqa: SIM115  # intended
        }
        return others[what]()

    for what, said in {
        "lock": r"the result of give\(\)\['a'\]\[0\] is of type _thread.lock, which cannot be pickled \(.*\)\. Return",
        "generator": r"it is of type generator, which cannot be pickled\. Return a list, or use `yield` in",
        "future": r"it is of type concurrent.futures._base.Future, which cannot be pickled\. Return its result",
        "file": r"it is of type _io.TextIOWrapper, which cannot be pickled\. Return its path or its content\.$",
        "coroutine": r"the result of give\(\)\[0\] is of type coroutine, which cannot be pickled\. Run it in the task",
    }.items():
        with pytest.raises(
            sky.NotPicklableError, match=rf"^the result of give\(\) cannot be sent back from the node: {said}"
        ):
            give(what) >> slots


def test_stream_ends_with_an_unpicklable_element(slots: sky.Compute) -> None:
    @sky.function
    def give() -> Iterator[object]:
        yield 1
        yield threading.Lock()
        yield 2

    found: list[object] = []
    with pytest.raises(sky.NotPicklableError, match=r"^an element of give\(\) cannot be sent back from the node: "):
        found.extend(give() >> slots)
    with suppress(sky.NotPicklableError):
        for element in give() >> slots:
            found.append(element)  # elements before the error are delivered
    assert found[-1] == 1
    assert same(1) >> slots == 1


def test_client_objects_are_refused_by_name(slots: sky.Compute) -> None:
    future = same(1) > slots
    pool = slots

    @sky.function
    def nested() -> Any:
        return same(1) >> pool

    with open("/dev/null") as file, each([1]) >> slots as stream:
        for value, said in [
            (
                slots,
                "it is of type skyward.pool.compute.Compute, which cannot be pickled. A pool stays with the client",
            ),
            (
                {future},
                "argument 1 of same()[0] is of type skyward.control.act.tasks.future.TaskFuture, which cannot be "
                "pickled. Pass",
            ),
            (
                stream,
                "it is of type skyward.control.act.tasks.streams.RemoteIterator, which cannot be pickled. Annotate the",
            ),
            ((i for i in range(3)), "it is of type generator, which cannot be pickled. Annotate the parameter as Iter"),
            (file, "it is of type _io.TextIOWrapper, which cannot be pickled. Pass its path or its content"),
            (threading.current_thread(), "which cannot be pickled. Start it in the task."),
        ]:
            with pytest.raises(sky.NotPicklableError) as caught:
                same(value) >> slots
            assert str(caught.value).startswith("argument 1 of same() cannot be sent to a node: ")
            assert said in str(caught.value)
        list(stream)
    with pytest.raises(
        sky.NotPicklableError, match=r"\(closure variable pool\) is of type skyward\.pool\.compute\.Compute"
    ):
        nested() >> slots
    assert future.result(20) == 1


# Each call sees the state that was sent with it.

LEVEL = 0
TABLE: dict[str, int] = {}


class Counter:
    made = 0
    names: list[str] = []  # noqa: RUF012  # intended

    def __init__(self) -> None:
        Counter.made += 1
        Counter.names.append("x")


class Plain:
    rate = 1


def helper() -> int:
    helper.calls = getattr(helper, "calls", 0) + 1  # type: ignore[attr-defined]
    return helper.calls  # type: ignore[attr-defined,no-any-return]


@sky.function
def with_default(into: list[int] = []) -> int:  # noqa: B006  # intended
    into.append(1)
    return len(into)


@sky.function
def with_keyword_default(*, into: dict[int, int] = {}) -> int:  # noqa: B006  # intended
    into[len(into)] = 1
    return len(into)


@sky.function
def with_global() -> int:
    global LEVEL
    LEVEL += 1
    return LEVEL


@sky.function
def with_table() -> int:
    TABLE[str(len(TABLE))] = 1
    return len(TABLE)


@sky.function
def with_attribute() -> int:
    return helper()


@sky.function
def with_class() -> int:
    Counter()
    return Counter.made + len(Counter.names) - 1


@sky.function
def with_class_of_argument(thing: Any) -> int:
    kind = type(thing)
    kind.rate += 1
    return int(kind.rate) - 1


@sky.function
def with_yield() -> Iterator[int]:
    TABLE[str(len(TABLE))] = 1
    yield len(TABLE)


def closure() -> Any:
    count = 0

    @sky.function
    def with_closure() -> int:
        nonlocal count
        count += 1
        return count

    return with_closure


STATEFUL: dict[str, Callable[[], Any]] = {
    "default": with_default,
    "keyword default": with_keyword_default,
    "global": with_global,
    "table": with_table,
    "attribute": with_attribute,
    "class": with_class,
    "class of an argument": lambda: with_class_of_argument(Plain()),
    "closure": closure(),
}


@pytest.mark.parametrize("make", STATEFUL.values(), ids=STATEFUL.keys())
def test_call_does_not_see_changes_of_another(slots: sky.Compute, make: Callable[[], Any]) -> None:
    assert [make() >> slots for _ in range(4)] == [1] * 4
    assert sky.gather(*(make() for _ in range(12))) >> slots == (1,) * 12
    assert make() @ slots == [1]


def test_call_sees_a_local_module_as_it_was_sent(
    slots: sky.Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "module_with_state.py").write_text("count = 0\nseen = []\n")
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("module_with_state")

    @sky.function
    def count() -> int:
        module.seen.append(1)
        module.count += len(module.seen)
        return int(module.count)

    try:
        assert [count() >> slots for _ in range(3)] == [1] * 3
        module.count = 7
        assert count() >> slots == 8
    finally:
        del sys.modules["module_with_state"]


def test_stream_does_not_see_changes_of_another_call(slots: sky.Compute) -> None:
    assert [list(with_yield() >> slots) for _ in range(3)] == [[1]] * 3


def test_concurrent_tasks_have_separate_state(slots: sky.Compute, tmp_path: Path) -> None:
    held: list[int] = []

    @sky.function
    def meet(me: int) -> tuple[list[int], int]:
        """Change the state, wait until the other task has too, and return the state."""
        held.append(me)
        Counter.made += 1
        (tmp_path / str(me)).touch()
        wait = threading.Event()
        for _ in range(2000):
            if (tmp_path / str(1 - me)).exists():
                break
            wait.wait(0.01)
        return held, Counter.made

    assert sky.gather(meet(0), meet(1)) >> slots == (([0], 1), ([1], 1))
    assert held == []


def on_thread(work: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(30)
    return found.pop()


def on_subclass(work: Callable[[], Any]) -> Any:
    class Worker(threading.Thread):
        def run(self) -> None:
            self.found = work()

    thread = Worker()
    thread.start()
    thread.join(30)
    return thread.found


def on_low_level_thread(work: Callable[[], Any]) -> Any:
    import _thread
    import queue

    found: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _thread.start_new_thread(lambda: found.put(work()), ())
    return found.get(timeout=30)


def on_executor(work: Callable[[], Any]) -> Any:
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result(30)


def on_shared_executor(work: Callable[[], Any]) -> Any:
    """Run `work` on a thread that serves all tasks of the process, as that of a library may."""
    executor = threading.__dict__.setdefault("skyward_test_executor", concurrent.futures.ThreadPoolExecutor(1))
    return executor.submit(work).result(30)


def on_thread_of_thread(work: Callable[[], Any]) -> Any:
    return on_thread(lambda: on_executor(work))


def on_event_loop(work: Callable[[], Any]) -> Any:
    async def run() -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    return asyncio.run(run())


@pytest.mark.parametrize(
    "run",
    [
        *(on_thread, on_subclass, on_low_level_thread, on_executor, on_shared_executor),
        *(on_thread_of_thread, on_event_loop),
    ],
)
def test_objects_unpickled_on_threads_of_a_task_have_its_classes(
    slots: sky.Compute, tmp_path: Path, run: Callable[[Callable[[], Any]], Any]
) -> None:
    meeting = tmp_path

    @sky.function
    def check(me: int) -> list[bool]:
        """Unpickle objects in the task and on a thread, while another call with its own class does too."""
        import pickle

        import cloudpickle

        shared = sky.dict("objects")
        shared[f"{meeting}{me}"] = Counter()
        blob = cloudpickle.dumps(Counter())
        wait = threading.Event()
        for step in range(2):
            (meeting / f"{me}.{step}").touch()
            for _ in range(2000):
                if (meeting / f"{1 - me}.{step}").exists():
                    break
                wait.wait(0.01)
            found = [
                place(read)
                for place in (lambda work: work(), run)
                for read in (lambda: shared[f"{meeting}{me}"], lambda: pickle.loads(blob))
            ]
        return [isinstance(each, Counter) for each in found]

    assert sky.gather(check(0), check(1)) >> slots == ([True] * 4,) * 2


def one() -> int:
    return 1


@sky.function
def with_setting_methods() -> int:
    one.__setattr__("calls", getattr(one, "calls", 0) + 1)
    object.__setattr__(one, "more", getattr(one, "more", 0) + 1)
    return one.calls + one.more  # type: ignore[attr-defined,no-any-return]


def test_attributes_set_by_dunder_methods_end_with_the_call(slots: sky.Compute) -> None:
    assert [with_setting_methods() >> slots for _ in range(6)] == [2] * 6


def test_call_sees_changes_of_the_client(slots: sky.Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    @sky.function
    def rate() -> tuple[int, int]:
        return Plain.rate, Plain().rate

    assert rate() >> slots == (1, 1)
    monkeypatch.setattr(Plain, "rate", 5)
    assert rate() >> slots == (5, 5)
    assert with_class_of_argument(Plain()) >> slots == 5
    monkeypatch.undo()
    assert rate() >> slots == (1, 1)


def test_result_does_not_change_the_class_at_the_client(slots: sky.Compute) -> None:
    @sky.function
    def change() -> Plain:
        Plain.rate = 100
        return Plain()

    found = change() >> slots
    assert type(found) is Plain
    assert Plain.rate == 1


def test_default_value_set_after_the_first_call_is_sent(slots: sky.Compute) -> None:
    def plain(x: int = 1) -> int:
        return x

    plain.__defaults__ = None
    assert call(plain, 3) >> slots == 3
    sent = sky.function(plain)
    assert sent(3) >> slots == 3
    plain.__defaults__ = (7,)
    assert sent() >> slots == 7


def test_classes_are_the_same_for_function_arguments_and_streams(slots: sky.Compute) -> None:
    @sky.function
    def check(things: Iterator[Any], plain: Any, counter: Any) -> list[bool]:
        known = [isinstance(plain, Plain), isinstance(counter, Counter)]
        return known + [isinstance(thing, (Plain, Counter)) for thing in things]

    for _ in range(3):
        made = object.__new__(Counter)
        assert check(iter([Plain(), made]), Plain(), made) >> slots == [True] * 4


# State that is kept on purpose.


@functools.cache
def started() -> tuple[int, str]:
    import os
    import uuid

    return os.getpid(), uuid.uuid4().hex


@functools.cache
def started_by_level() -> int:
    TABLE["calls"] = TABLE.get("calls", 0) + 1
    return TABLE["calls"]


@sky.function
def warm() -> tuple[int, str]:
    return started()


@sky.function
def use(x: int) -> tuple[int, str]:
    return started()


def test_cache_of_a_function_is_kept_for_the_life_of_a_worker_process(slots: sky.Compute) -> None:
    warmed = warm() @ slots
    found = {*warmed, *(sky.gather(*(use(number) for number in range(20))) >> slots)}
    found.add(call(started) >> slots)
    assert len(found) == len({process for process, _ in found})
    assert started.cache_info().currsize == 0


def test_cached_function_that_uses_mutable_state_has_a_cache_per_call(slots: sky.Compute) -> None:
    @sky.function
    def ask() -> tuple[int, int, int]:
        return started_by_level(), started_by_level(), TABLE["calls"]

    assert [ask() >> slots for _ in range(3)] == [(1, 1, 1)] * 3
