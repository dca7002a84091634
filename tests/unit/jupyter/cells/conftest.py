"""A notebook in this process, whose `%%sky` cells run in their own namespace, as on a node."""

import sys
import traceback
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from skyward.wire.payloads.payload import decode, encode
from skyward_jupyter.cells.capture import Capture, capture
from skyward_jupyter.cells.cell import analyse, transform_cell
from skyward_jupyter.running.results import apply_result, apply_results, stream_items


def travel(value: Any) -> Any:
    """Return `value` after a round trip through pickle."""
    sent = encode(value)
    blobs = {key: bytearray(view) for key, view in sent.blobs.items()}
    return decode(sent.payload, lambda blob: blobs[blob.key])


def _arriving(elements: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
    while True:
        try:
            element = next(elements)
        except StopIteration as end:
            return travel(end.value)
        yield travel(element)


def frames_of_cell(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of a cell and of the notebook's functions in the traceback of `error`."""
    stack = traceback.extract_tb(error.__traceback__)
    return [frame for frame in stack if frame.filename.startswith("<")]


class CellHarness:
    """A notebook: `local` runs a cell in it, `sky` runs one as on a node."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.sent: Capture
        self.notices: list[str] = []
        self.value: Any = None

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def local(self, source: str) -> None:
        """Run `source` in the notebook."""
        exec(compile(source, "<notebook>", "exec"), self.names)

    def take(
        self,
        source: str,
        *,
        limit: int = 1 << 30,
        map_name: str | None = None,
        in_place: bool = True,
        is_next: bool = False,
        **narrow: Any,
    ) -> Capture:
        """Capture a cell without running it."""
        code = analyse(transform_cell(source)).narrow(**narrow)
        self.sent = capture(code, self.names, limit=limit, map_name=map_name, in_place=in_place, is_next=is_next)
        return self.sent

    def sky(self, source: str, *, nodes: int = 0, meanwhile: str = "", **options: Any) -> list[str]:
        """Run `source` as a `%%sky` cell, on `nodes` nodes at once if that is not 0, and return the notices.

        `meanwhile` runs in the notebook before the result is applied.
        """
        sent = self.take(source, in_place=not nodes, **options)
        if options.get("map_name") or nodes:
            calls = sent.pendings if options.get("map_name") else [sent.pending] * nodes
            outcome = apply_results([travel(call.fn(*travel(call.args))) for call in calls], self.names)
            self.value = outcome.value
            return outcome.notices
        call = sent.pending
        result = travel(call.fn(*travel(call.args)))
        self.local(meanwhile)
        outcome = apply_result(result, self.names, sent.originals)
        self.value = outcome.value
        return outcome.notices

    def stream(self, source: str, **options: Any) -> Iterator[Any]:
        """Run `source` as a streaming `%%sky` cell."""
        sent = self.take(source, **options)
        items = _arriving(sent.pending.fn(*travel(sent.pending.args)))
        return stream_items(items, self.names, sent.originals, self.notices.append)


@pytest.fixture
def notebook() -> CellHarness:
    return CellHarness()


@pytest.fixture(autouse=True)
def _same_main_module() -> Iterator[None]:
    """Check that a cell restores the real `__main__`."""
    main = sys.modules["__main__"]
    yield
    assert sys.modules["__main__"] is main
