"""Static views of a pool: as text, as HTML, and in a terminal."""

import io
import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

import skyward as sky
from skyward.control.observe.snapshot import KeptView, PoolReport
from skyward.events.metrics import GPUMetrics, NodeMetrics
from skyward.pool.compute import when_closed
from skyward.views import static
from skyward.views.live import watch_here
from tests.terminal import Terminal
from tests.unit.kernel.conftest import decision, node, snapshot

pytestmark = pytest.mark.unit

BAD = "<script>alert('x')</script>"


def report(*, decisions: int = 1, **other: Any) -> PoolReport:
    """Return a report of a pool."""
    return PoolReport(snapshot(**other), tuple(decision(number) for number in range(1, decisions + 1)))


def cells(html: str) -> list[str]:
    """Return the texts of the table cells."""
    return re.findall(r"<td[^>]*>(.*?)</td>", html)


def test_static_view_describes_the_pool() -> None:
    shown = report(per_hour=4.8, spent=1.374, budget=10.0, queued=3, failure="no capacity")
    text, html = static.describe(shown), static.page(shown)
    for expected in ("2 of 1 to 4 nodes", "3 queued", "$4.80/h, $1.37 spent, $8.63 left", "error: no capacity"):
        assert expected in text
        assert expected in html
    assert "2 queued" in text  # why it grew
    assert "1 → 2" in cells(html)


def test_static_view_shows_utilization_and_startup_phases() -> None:
    metrics = NodeMetrics("machine", 1.0, 2.0, 3_000_000_000, gpus=(GPUMetrics("g", 0.5, 1, 2),))
    nodes = (node(0, busy=1, metrics=metrics), node(1, state="waiting", phase="deps"))
    texts = cells(static.page(report(nodes=nodes)))
    assert texts[1:6] == ["busy", "1 of 2", "50%", "50%", "2.8 GiB"]
    assert "deps" in texts


@pytest.mark.parametrize("width", [60, 80])
def test_narrow_terminal_cuts_addresses_kept_values_and_memory_first(width: int) -> None:
    metrics = NodeMetrics("machine", 1.0, 2.0, 3 << 30, memory_total=16 << 30)
    kept = tuple(KeptView(f"k{name}", name, "Model", 0, 1, 0.0, False) for name in ("encoder", "decoder", "optimizer"))
    nodes = (node(0, busy=1, metrics=metrics, kept=kept), node(1, state="waiting", phase="installing packages"))
    shown = report(nodes=nodes)
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(static.drawing(shown))
    lines = out.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    (header,) = [line.split() for line in lines if "state" in line]
    assert header[:4] == ["node", "state", "tasks", "cpu"]
    busy, booting = lines[lines.index(next(line for line in lines if "state" in line)) + 1 :][:2]
    assert re.match(r"\s*0\s+busy\s+1 of 2\s+50%", busy)
    assert "installing packages" in booting
    assert "…" in busy


def test_large_pool_is_truncated_with_a_note() -> None:
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
    assert "private: not open" in bundle["text/plain"]
    assert "s3cret-value" not in str(bundle)


class Watched:
    """A pool that is closed at its third report."""

    def __init__(self) -> None:
        self.reports = 0
        self._at_close: list[Any] = []

    def report(self) -> PoolReport:
        self.reports += 1
        if self.reports == 3:
            for call in self._at_close:
                call()
        return report(queued=5 - self.reports, name="wa\x1btched", state="closed" if self.reports == 3 else "ready")


def frames(out: Terminal) -> list[str]:
    """Return the texts that a terminal showed one after the other, without control sequences that move or erase."""
    return [frame for frame in re.split(r"(?:\r?\x1b\[(?:2K|1A|\?25[lh]))+", out.getvalue()) if frame]


@pytest.mark.parametrize("color", [True, False])
def test_terminal_is_redrawn_until_the_pool_is_closed(color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not color:
        monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    watch_here(Watched(), out, 0.001)  # type: ignore[arg-type]  # a fake pool
    first, second, third = frames(out)[:3]
    assert "4 queued" in first
    assert "3 queued" in second
    assert "wa?tched: closed" in third
    assert ("\x1b[32mready\x1b[0m" in first) is color
    assert color or "\x1b" not in "".join(frames(out))


def test_terminal_without_control_sequences_is_printed_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    watch_here(Watched(), out, 60)  # type: ignore[arg-type]  # a fake pool
    assert out.getvalue().count("queued") == 2  # of the tasks, and the reason of the decision
    assert "\x1b" not in out.getvalue()


def test_interrupt_ends_only_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    out = Terminal()
    watch_here(Watched(), out, 60)  # type: ignore[arg-type]  # a fake pool
    assert "4 queued" in out.getvalue()


def test_watch_without_a_terminal_prints_once(capsys: pytest.CaptureFixture[str]) -> None:
    sky.watch(sky.Compute(name="plain"))
    assert capsys.readouterr().out.startswith("plain: not open")


def test_failing_close_callback_does_not_block_the_others() -> None:
    pool, ended = sky.Compute(), []
    when_closed(pool, lambda: 1 / 0)
    when_closed(pool, lambda: ended.append(1))
    pool.close()
    pool.close()
    assert ended == [1]
