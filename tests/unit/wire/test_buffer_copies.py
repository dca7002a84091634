"""Memory that may change while a task waits to be sent is copied; immutable memory is not."""

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

SIZE = 9 * 1024 * 1024  # more than one chunk of a copy


def flat(value: object) -> memoryview:
    return memoryview(value).cast("B")  # type: ignore[arg-type]  # arrays export their memory


def test_writable_memory_is_copied_under_its_content_address() -> None:
    array = np.arange(SIZE, dtype=np.uint8)
    expected = array.tobytes()
    key, still = unchanging(flat(array))
    array[:] = 0
    assert still == expected
    assert key == content_address(memoryview(expected))


def test_equal_content_shares_one_copy_while_in_use() -> None:
    array = np.full(SIZE, 7, dtype=np.uint8)
    _, first = unchanging(flat(array))
    _, second = unchanging(flat(array.copy()))
    assert second is first
    key = content_address(first)
    del first, second
    gc.collect()
    assert key not in copies._copies


@pytest.mark.parametrize("kind", ["array", "view", "bytearray", "frozen"])
def test_read_only_view_of_writable_memory_is_copied(kind: str) -> None:
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


def test_immutable_memory_is_not_copied(tmp_path: Path) -> None:
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


def test_copy_without_free_memory_raises_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: int) -> memoryview:
        raise MemoryError

    monkeypatch.setattr(copies, "allocate", none)
    with pytest.raises(TooLargeError, match=r"Not enough memory here for a copy of 9.0 MiB.*`f\(x\) >> pool`"):
        unchanging(flat(np.ones(SIZE, dtype=np.uint8)))
