"""A pool as text and as HTML, and in a terminal."""

import io
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

import skyward as sky
from skyward.control.observe.snapshot import PoolReport
from skyward.events.metrics import GPUMetrics, NodeMetrics
from skyward.pool.shown import Shown
from skyward.views import static
from skyward.views.terminal import watch_here
from tests.unit.panel.conftest import decision, node, snapshot

pytestmark = pytest.mark.unit

BAD = "<script>alert('x')</script>"


def report(*, decisions: int = 1, **other: Any) -> PoolReport:
    """Of a pool."""
    return PoolReport(snapshot(**other), tuple(decision(number) for number in range(1, decisions + 1)))


def cells(html: str) -> list[str]:
    """What the cells of the tables say."""
    return re.findall(r"<td[^>]*>(.*?)</td>", html)


def test_what_is_said_of_a_pool() -> None:
    shown = report(per_hour=4.8, spent=1.374, budget=10.0, queued=3, failure="no capacity")
    text, html = static.describe(shown), static.page(shown)
    for said in ("2 of 1 to 4 nodes", "3 queued", "$4.80/h, $1.37 spent, $8.63 left", "trouble: no capacity"):
        assert said in text
        assert said in html
    assert "2 queued" in text  # why it grew
    assert "1 → 2" in cells(html)


def test_what_nodes_use_and_how_they_boot() -> None:
    metrics = NodeMetrics("machine", 1.0, 2.0, 3_000_000_000, gpus=(GPUMetrics("g", 0.5, 1, 2),))
    nodes = (node(0, busy=1, metrics=metrics), node(1, state="waiting", phase="deps"))
    said = cells(static.page(report(nodes=nodes)))
    assert said[1:6] == ["busy", "1 of 2", "50%", "50%", "3.0 GB"]
    assert "deps" in said


def test_a_large_pool_is_cut_and_says_so() -> None:
    nodes = tuple(node(rank) for rank in range(1000))
    shown = report(nodes=nodes, decisions=50, desired=1000)
    text, html = static.describe(shown), static.page(shown)
    assert f"and {1000 - static.NODES} more" in text
    assert f"and {1000 - static.NODES} more" in html
    assert len(html) < 20_000


def test_text_is_escaped() -> None:
    odd = replace(decision(1), reason=BAD, held_back=BAD)
    shown = PoolReport(
        snapshot(name=BAD, provider=BAD, failure=BAD, nodes=(node(0, kind=BAD), node(1, state="waiting", phase=BAD))),
        (odd,),
    )
    html = static.page(shown)
    assert html.count("&lt;script&gt;") == 7
    assert "<script" not in html


def test_secrets_are_not_shown() -> None:
    pool = sky.Compute(image=sky.Image(env={"TOKEN": "s3cret-value"}), name="private")
    bundle = pool._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert "private: idle" in bundle["text/plain"]
    assert "s3cret-value" not in str(bundle)


class Watched(Shown):
    """A pool that is closed at its third look."""

    def __init__(self) -> None:
        self.looks = 0

    def report(self) -> PoolReport:
        self.looks += 1
        if self.looks == 3:
            self._was_closed()
        return report(queued=5 - self.looks, name="wa\x1btched", state="closed" if self.looks == 3 else "ready")


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_is_drawn_over_until_the_pool_is_closed() -> None:
    out = Terminal()
    watch_here(Watched(), out, 0.001)  # type: ignore[arg-type]  # like one
    first, second, third = re.split(r"\x1b\[\d+F\x1b\[J", out.getvalue())
    assert "4 queued" in first
    assert "3 queued" in second
    assert "wa?tched: closed" in third


def test_an_interrupt_ends_the_watching_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    out = Terminal()
    watch_here(Watched(), out, 60)  # type: ignore[arg-type]  # like one
    assert "4 queued" in out.getvalue()


def test_where_there_is_no_terminal_it_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    sky.watch(sky.Compute(name="plain"))
    assert capsys.readouterr().out.startswith("plain: idle")


def test_a_view_that_cannot_be_ended_keeps_nothing_from_ending() -> None:
    pool, ended = Watched(), []
    pool.when_closed(lambda: 1 / 0)
    pool.when_closed(lambda: ended.append(1))
    pool._was_closed()
    pool._was_closed()
    assert ended == [1]
