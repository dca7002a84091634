"""Memory that may change while a task waits to be sent is copied; what cannot change is not."""

import gc
import mmap
from pathlib import Path

import pytest

from skyward.errors import TooLargeError
from skyward.wire.payloads import copies
from skyward.wire.payloads.copies import unchanging
from skyward.wire.payloads.digest import content_address

np = pytest.importorskip("numpy")

pytestmark = pytest.mark.unit

SIZE = 9 * 1024 * 1024  # more than is copied at once


def flat(value: object) -> memoryview:
    return memoryview(value).cast("B")  # type: ignore[arg-type]  # arrays export their memory


def test_memory_that_can_be_written_to_is_copied_under_the_address_of_its_content() -> None:
    array = np.arange(SIZE, dtype=np.uint8)
    expected = array.tobytes()
    key, still = unchanging(flat(array))
    array[:] = 0
    assert still == expected
    assert key == content_address(memoryview(expected))


def test_one_content_is_copied_once_while_a_task_has_it() -> None:
    array = np.full(SIZE, 7, dtype=np.uint8)
    _, first = unchanging(flat(array))
    _, second = unchanging(flat(array.copy()))
    assert second is first
    key = content_address(first)
    del first, second
    gc.collect()
    assert key not in copies._copies


@pytest.mark.parametrize("kind", ["array", "view", "bytearray", "frozen"])
def test_what_looks_read_only_and_is_not_is_copied(kind: str) -> None:
    array = np.ones(SIZE, dtype=np.uint8)
    view: object = array
    match kind:
        case "view":
            view = array[:]
            view.flags.writeable = False  # type: ignore[attr-defined]  # of an array
        case "bytearray":
            data = bytearray(SIZE)
            view, array = memoryview(data).toreadonly(), np.frombuffer(data, dtype=np.uint8)
        case "frozen":
            array.flags.writeable = False
    expected = bytes(memoryview(view))  # type: ignore[arg-type]  # it exports its memory
    _, still = unchanging(flat(view))
    array.flags.writeable = True
    array[:] = 5
    assert still == expected


def test_what_nobody_can_write_to_is_not_copied(tmp_path: Path) -> None:
    data = bytes(SIZE)
    over_bytes = np.frombuffer(data, dtype=np.uint8)
    (tmp_path / "data").write_bytes(data)
    with (tmp_path / "data").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for each in (data, over_bytes, over_bytes[10:], np.frombuffer(mapped, dtype=np.uint8)):
            view = flat(each)
            assert unchanging(view)[1] is view
            view.release()
        del each
        gc.collect()


def test_a_copy_that_there_is_no_memory_for_is_refused_with_the_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: int) -> memoryview:
        raise MemoryError

    monkeypatch.setattr(copies, "room", none)
    with pytest.raises(TooLargeError, match=r"no memory here for a copy of 9.0 MiB.*`f\(x\) >> pool`"):
        unchanging(flat(np.ones(SIZE, dtype=np.uint8)))
