"""Pictures of a run, as PNG and SVG, each with its numbers as CSV beside it.

The colours can be told apart by colour-blind people too (the set of Okabe and Ito).
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cqrepl.bench.report import BenchRun
from cqrepl.bench.sample import Sample, summaries
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.units import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_INCHES: Final = (8.0, 4.5)
_DOTS_PER_INCH: Final = 120
_NINES: Final = (50.0, 90.0, 99.0, 99.9, 99.99)
_LAST_PERCENT: Final = 99.995  # where the greatest value is drawn: 100 % has no place on the axis


def require_plots() -> None:
    """Does nothing when pictures can be made.

    Raises:
        BadArguments: with how to install what is missing.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise BadArguments(
            "--plot needs matplotlib, which is not installed: pip install 'cqrepl[plot]'"
        ) from error
    matplotlib.use("agg")  # draws into files, also on a machine without a screen


def plot_rates(run: BenchRun, folder: Path) -> None:
    """Rate against the size of an excerpt: medians, on two logarithmic axes."""
    found = summaries(run.samples)
    rows = [[each.case, each.size, each.medians["excerpts_per_s"]] for each in found]
    _write_csv(folder / f"{run.what}-rate.csv", ["case", "size", "excerpts_per_s"], rows)

    def draw(axes: "Axes") -> None:
        for colour, case in zip(_COLOURS, dict.fromkeys(each.case for each in found), strict=False):
            of = [each for each in found if each.case == case]
            rates = [each.medians["excerpts_per_s"] for each in of]
            axes.plot([each.size for each in of], rates, "o-", color=colour, label=case)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        sizes = sorted({each.size for each in found})
        axes.set_xticks(sizes, [format_size(size) for size in sizes])
        axes.set_xlabel("size of an excerpt")
        axes.set_ylabel("excerpts a second")

    _save(folder / f"{run.what}-rate", draw)


def plot_catch_up(run: BenchRun, folder: Path) -> None:
    """Plot the excerpts that are still missing at the sink over time, in the last round."""
    last = _last_round(run)
    rows = [[each.case, each.size, *point] for each in last for point in each.points]
    _write_csv(folder / "catch-up.csv", ["case", "size", "seconds", "missing"], rows)

    def draw(axes: "Axes") -> None:
        for colour, each in zip(_COLOURS * len(last), last, strict=False):
            xs, ys = zip(*each.points, strict=True)
            line = "--" if each.case != last[0].case else "-"
            label = f"{format_size(each.size)}, {each.case}"
            axes.plot(xs, ys, line, color=colour, label=label)
        axes.set_xlabel("seconds since the first excerpt was sent")
        axes.set_ylabel("excerpts missing at the sink")

    _save(folder / "catch-up", draw)


def plot_latency(run: BenchRun, folder: Path) -> None:
    """Delay against percentile, in the last round; each further nine takes as much room."""
    last = _last_round(run)
    rows = [[each.case, each.size, *point] for each in last for point in each.points]
    _write_csv(folder / "latency.csv", ["case", "size", "percent", "us"], rows)

    def draw(axes: "Axes") -> None:
        for colour, each in zip(_COLOURS, last, strict=False):
            xs = [100 / (100 - min(percent, _LAST_PERCENT)) for percent, _ in each.points]
            label = f"{format_size(each.size)}, {each.case}"
            axes.plot(xs, [delay for _, delay in each.points], color=colour, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([100 / (100 - each) for each in _NINES], [f"{each:g} %" for each in _NINES])
        axes.minorticks_off()
        axes.set_xlabel("percentile")
        axes.set_ylabel("microseconds from due to readable")

    _save(folder / "latency", draw)


def _last_round(run: BenchRun) -> list[Sample]:
    number = max(each.number for each in run.rounds)
    return [each.sample for each in run.rounds if each.number == number]


def _save(path: Path, draw: "Callable[[Axes], None]") -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.add_subplot()
    draw(axes)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=_DOTS_PER_INCH)


def _write_csv(path: Path, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(heads)
        writer.writerows(rows)
