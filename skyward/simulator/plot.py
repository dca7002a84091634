"""Plot of a run: demand, desired nodes and active nodes over time."""

from collections.abc import Sequence
from pathlib import Path

from skyward.errors import SpecError
from skyward.formatting import duration_text, money_text
from skyward.simulator.measures import Result

__all__ = ["plot"]

HOUR = 3600.0


def plot(results: Sequence[Result], path: Path) -> None:
    """Write a PNG with a row for each run.

    Raises:
        SpecError: matplotlib is missing, or the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SpecError("A plot needs matplotlib: install it with `pip install matplotlib`.") from error
    figure = Figure(figsize=(11, 1 + 2.6 * len(results)), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(results), 1, sharex=True, squeeze=False)[:, 0]
    for axes, result in zip(rows, results, strict=True):
        hours = [sample.at / HOUR for sample in result.samples]
        demand = [sample.demand for sample in result.samples]
        desired = [sample.desired for sample in result.samples]
        current = [sample.active for sample in result.samples]
        coming = [sample.active + sample.booting for sample in result.samples]
        axes.fill_between(hours, current, coming, step="post", color="tab:orange", alpha=0.35, label="booting")
        axes.step(hours, demand, where="post", color="0.55", linewidth=0.8, label="demand")
        axes.step(hours, desired, where="post", color="tab:red", linewidth=1.0, label="desired")
        axes.step(hours, current, where="post", color="tab:blue", linewidth=1.2, label="current")
        top = max([1, *desired, *coming])
        axes.set_ylim(0, 1.5 * top)  # demand may be far above the pool's maximum
        axes.set_ylabel("nodes")
        axes.set_title(
            f"{result.policy}: {money_text(result.cost)}, wait p99 {duration_text(result.wait_p99)}", fontsize=10
        )
    rows[0].legend(loc="upper right", ncols=4, fontsize=8)
    rows[-1].set_xlabel("hours")
    try:
        figure.savefig(path, format="png", dpi=110)
    except OSError as error:
        raise SpecError(
            f"The plot cannot be written to {str(path)!r} ({error.strerror}); give another path."
        ) from error
