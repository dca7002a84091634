"""Elements of a stream: a bounded number of them is kept, and can be read again."""

import sys
import threading

import pytest

from skyward_jupyter.display.elements import Elements, weight
from skyward_jupyter.running import run as running
from skyward_jupyter.running.readahead import StreamHandle
from tests.unit.jupyter.conftest import FakeCompute, Notebook

pytestmark = pytest.mark.unit

type Pools = type[FakeCompute]


@pytest.fixture
def gate(notebook: Notebook) -> threading.Event:
    """An event that cells of a test wait for; they get it from `sys`."""
    sys.gate_of_the_test = gate = threading.Event()  # type: ignore[attr-defined]
    return gate


WAIT = "import sys\nyield 1\nyield 2\nsys.gate_of_the_test.wait()\nyield 3\nlast = 'home'"


def start(notebook: Notebook, cell: str, options: str = "--noblock") -> StreamHandle:
    handle = notebook(f"%%sky {options}\n{cell}").result
    assert isinstance(handle, StreamHandle)
    return handle


def test_loop_gets_the_elements_as_they_arrive(notebook: Notebook, gate: threading.Event) -> None:
    handle = start(notebook, WAIT)
    loop = iter(handle)
    assert [next(loop), next(loop)] == [1, 2]
    assert (handle.done(), handle.status) == (False, "running")
    with pytest.raises(TimeoutError):
        handle.result(0.01)
    assert notebook("%sky status").out.splitlines()[-1].split("  ")[1:] == [
        " 1",
        "running, 2 elements",
        "default",
        "import sys",
    ]
    gate.set()
    assert list(loop) == [3]
    assert notebook["last"] == "home", "the end of the loop binds variables, like result()"
    assert list(handle) == handle.result() == [1, 2, 3]
    assert handle.status == "done"
    assert repr(handle) == "<StreamHandle: %%sky in the background on pool 'default': done, 3 elements>"


def test_variables_are_bound_by_result(notebook: Notebook) -> None:
    handle = start(notebook, "yield 1\nx = 5")
    assert handle._sent.wait()
    assert "x" not in notebook.shell.user_ns
    assert handle.result() == [1]
    assert notebook["x"] == 5


def test_async_loop_does_not_block_the_event_loop_of_the_notebook(notebook: Notebook, gate: threading.Event) -> None:
    notebook.shell.user_ns.update(handle=start(notebook, WAIT), gate=gate)
    cell = """
import asyncio
seen = []
async def follow():
    async for element in handle:
        seen.append(element)
async def release():
    while len(seen) < 2:
        await asyncio.sleep(0)
    gate.set()
"""
    assert notebook(cell).error is None
    assert notebook("_ = await asyncio.gather(follow(), release())").error is None
    assert notebook["seen"] == [1, 2, 3]
    assert notebook["last"] == "home"


def test_error_is_raised_after_the_elements(notebook: Notebook) -> None:
    handle = start(notebook, "x = 1\nyield 1\nx = 2\n1 / 0")
    seen = []
    with pytest.raises(ZeroDivisionError):
        for element in handle:
            seen.append(element)
    assert seen == [1]
    assert notebook["x"] == 2
    assert handle.status == "failed"
    with pytest.raises(ZeroDivisionError):
        handle.result()
    notebook.shell.user_ns["handle"] = handle
    shown = notebook("for each in handle: pass").shown_error
    assert "----> 5 1 / 0" in shown, "the line of the cell is shown"
    assert "readahead.py" not in shown


def test_interrupt_ends_only_the_wait(
    notebook: Notebook, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = start(notebook, WAIT)
    notebook.shell.user_ns["handle"] = handle
    real = Elements.wait

    def interrupted(elements: Elements, position: int) -> object:
        if position == 2 and not gate.is_set():
            raise KeyboardInterrupt
        return real(elements, position)

    monkeypatch.setattr(Elements, "wait", interrupted)
    shown = notebook("for each in handle: pass").shown_error
    assert shown == "Interrupted: the cell keeps running in the background; .cancel() stops it."
    gate.set()
    assert handle.result() == [1, 2, 3]


def test_oldest_elements_are_dropped() -> None:
    drops: list[int] = []
    elements = Elements(lambda: drops.append(1), most=3)
    for number in range(3):
        elements.add(number, 0)
    assert (drops, elements.kept()) == ([], [0, 1, 2])
    for number in range(3, 10_000):
        elements.add(number, 0)
    elements.finish()
    assert drops == [1]
    assert elements.kept() == [9997, 9998, 9999]
    assert (elements.count, elements.dropped) == (10_000, 9997)
    assert elements.wait(0) == (9997, 9997)
    assert elements.wait(9999) == (9999, 9999)
    assert elements.wait(10_000) is None
    assert len(elements._kept) < 2100, "what was dropped is freed"


def test_large_elements_are_dropped_sooner_but_never_the_last() -> None:
    elements = Elements(heaviest=100)
    elements.add("a", 60)
    elements.add("b", 40)
    assert elements.kept() == ["a", "b"]
    elements.add("c", 1)
    assert elements.kept() == ["b", "c"]
    elements.add("d", 1000)
    assert elements.kept() == ["d"]


@pytest.mark.parametrize(("value", "bytes_"), [(1, 0), ("abc", 3), ({"a": b"12", "b": [b"3"]}, 2), ((b"1", "23"), 3)])
def test_weight_of_an_element_is_its_number_of_bytes(value: object, bytes_: int) -> None:
    assert weight(value) == bytes_


def test_long_stream_warns_once_that_elements_are_dropped(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "Elements", lambda on_drop: Elements(on_drop, most=2))
    ran = notebook("%%sky\nfor i in range(5):\n    yield i")
    assert notebook["_"] == [3, 4]
    assert ran.err == (
        "The cell has yielded more than the 100,000 elements or 1 GiB that are kept: only the last ones stay in `_`.\n"
    )
    handle = notebook.shell.user_ns["handle"] = start(notebook, "for i in range(5):\n    yield i")
    assert handle.result() == [3, 4]
    ran = notebook("seen = list(handle)")
    assert notebook["seen"] == [3, 4]
    assert ran.err == "Cell 1: the first 3 elements were not kept; the loop continues after them.\n"


def test_loop_warns_if_elements_were_dropped_before_it_read_them(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "Elements", lambda on_drop: Elements(on_drop, most=2))
    handle = notebook.shell.user_ns["handle"] = start(notebook, "for i in range(5):\n    yield i")
    handle.result()
    overtake = "handle._elements.add(5, 0)\nhandle._elements.add(6, 0)"
    ran = notebook(f"loop = iter(handle)\nfirst = next(loop)\n{overtake}\nrest = list(loop)")
    assert (notebook["first"], notebook["rest"]) == (3, [5, 6])
    assert ran.err.splitlines()[-1] == (
        "Cell 1: 1 element after the first 4 were not kept; the loop continues after them."
    )
