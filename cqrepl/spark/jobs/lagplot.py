"""A plot of round trips over time; needs the extra `plot`."""

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.figure import Figure

from cqrepl.spark.jobs.lag import LagWindow

PANELS_MAX: Final = 8
# told apart by colour-blind people too; of the palette of Okabe and Ito
_LINES: Final = (
    ("p50_ns", "50 %", "#0072B2"),
    ("p90_ns", "90 %", "#009E73"),
    ("p99_ns", "99 %", "#E69F00"),
    ("longest_ns", "longest", "#D55E00"),
)


def points(run: Sequence[LagWindow], name: str) -> tuple[list[float], list[float]]:
    """Times in seconds and round trips in milliseconds; no line where no acknowledgement came."""
    starts = [window.start_s for window in run]
    length = min((later - start for start, later in pairwise(starts)), default=math.inf)
    times, trips = [], []
    for window, later in zip(run, [*starts[1:], math.inf], strict=True):
        times.append(window.start_s)
        trips.append(getattr(window, name) / 1e6)
        if window.start_s + 1.5 * length < later < math.inf:
            times.append(window.start_s + length)
            trips.append(math.nan)
    return times, trips


def draw(windows: Sequence[LagWindow], path: Path) -> None:
    """Writes the plot, as PNG or SVG by the name, and its numbers as CSV beside it.

    Each run of each log has a panel; of very many only the first ones are drawn.
    """
    runs = [
        list(group) for _, group in groupby(windows, key=lambda window: (window.log, window.run))
    ][:PANELS_MAX]
    with matplotlib.rc_context({"svg.hashsalt": "cqrepl", "font.size": 11}):
        figure = Figure(figsize=(8, 1.0 + 3.0 * max(1, len(runs))), layout="constrained")
        panels = figure.subplots(max(1, len(runs)), 1, squeeze=False)
        for (panel,), run in zip(panels, runs, strict=False):
            for name, label, colour in _LINES:
                times, trips = points(run, name)
                panel.step(times, trips, where="post", label=label, color=colour, marker=".")
            panel.set_yscale("log")
            panel.set_title(run[0].log if run[0].run == 0 else f"{run[0].log}, run {run[0].run}")
            panel.set_ylabel("acknowledged after, ms")
            panel.grid(visible=True, which="both", alpha=0.3)
        if runs:
            handles, labels = panels[0][0].get_legend_handles_labels()
            figure.legend(handles, labels, ncols=len(_LINES), loc="outside upper center")
        panels[-1][0].set_xlabel("seconds since the first acknowledgement")
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=120, metadata=metadata)
    with path.with_suffix(".csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, [field.name for field in fields(LagWindow)])
        writer.writeheader()
        writer.writerows(asdict(window) for window in windows)
