"""Puts the cases of a benchmark together, runs them and gives out what was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cqrepl.bench import plots
from cqrepl.bench.catchup import catch_up_round, prepared
from cqrepl.bench.fanout import SINKS_MAX, queues_round, sinks_round
from cqrepl.bench.latency import SIZE_MIN, latency_round
from cqrepl.bench.local import append_round, tail_round
from cqrepl.bench.report import BenchRun, Case, run_rounds, scratch, write_run
from cqrepl.bench.sample import Sample
from cqrepl.commands import outcome
from cqrepl.console import exitcodes
from cqrepl.console.endings import ended_as_by_ctrl_c
from cqrepl.console.exitcodes import BadArguments

Plot = Callable[[BenchRun, Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a measurement.

    Args:
        options: what the user chose, for the output.
        cases: given a folder that lasts as long as the run, the cases of each round.
        plots: what draws the results.
    """

    what: str
    options: dict[str, object]
    cases: Callable[[Path], Sequence[Case]]
    plots: Sequence[Plot] = field(default_factory=tuple)


def append_plan(sizes: Sequence[int], count: int, batch: int) -> Plan:
    """Appending; one case for each size."""
    return Plan(
        what="append",
        options={"sizes": sizes, "count": count, "batch": batch},
        cases=lambda _: [
            partial(append_round, size=size, count=count, batch=batch) for size in sizes
        ],
        plots=(plots.plot_rates,),
    )


def tail_plan(sizes: Sequence[int], count: int) -> Plan:
    """Reading; each size has a queue, which is read in every round."""

    def case(sources: Path, size: int, _folder: Path) -> list[Sample]:
        return tail_round(prepared(sources, size, count).queue, size, count)

    return Plan(
        what="tail",
        options={"sizes": sizes, "count": count},
        cases=lambda sources: [partial(case, sources, size) for size in sizes],
        plots=(plots.plot_rates,),
    )


def replicate_plan(
    sizes: Sequence[int],
    count: int,
    *,
    touched: bool,
    pauser: str | None,
    runs: Sequence[bool | None] = (None,),
) -> Plan:
    """Catching up; one case for each size, with runs, with frames alone, or as both sides do by
    themselves (None)."""

    def case(sources: Path, size: int, with_runs: bool | None, folder: Path) -> list[Sample]:
        work = prepared(sources, size, count)
        return [catch_up_round(folder, work, touched=touched, pauser=pauser, runs=with_runs)]

    return Plan(
        what="replicate",
        options={"sizes": sizes, "count": count, "touched": touched, "pauser": pauser},
        cases=lambda sources: [
            partial(case, sources, size, with_runs) for size in sizes for with_runs in runs
        ],
        plots=(plots.plot_rates, plots.plot_catch_up),
    )


def count_within(seconds: float, interval_ns: int, batch: int) -> int:
    """The number of excerpts within a time, with a batch at each interval; at least one batch."""
    return max(1, int(seconds * 1e9 / interval_ns)) * batch


def latency_plan(
    sizes: Sequence[int], count: int, interval_ns: int, *, batch: int, pauser: str | None
) -> Plan:
    """One-way delays; one case for each size.

    Raises:
        BadArguments: an excerpt has no room for the times that it carries.
    """
    if min(sizes) < SIZE_MIN:
        raise BadArguments(f"--size: at least {SIZE_MIN} bytes expected, {min(sizes)} came")

    def case(size: int, folder: Path) -> list[Sample]:
        return [
            latency_round(
                folder,
                size=size,
                batches=max(1, count // batch),
                interval_ns=interval_ns,
                batch=batch,
                pauser=pauser,
            )
        ]

    options = {"sizes": sizes, "count": count, "interval_ns": interval_ns, "batch": batch}
    return Plan(
        what="latency",
        options=options | {"pauser": pauser},
        cases=lambda _: [partial(case, size) for size in sizes],
        plots=(plots.plot_latency,),
    )


def fan_out_plans(
    sizes: Sequence[int],
    count: int,
    sinks: Sequence[int],
    queues: Sequence[int],
    pauser: str | None,
) -> list[Plan]:
    """First several sinks, then several queues: what is found has different columns.

    Raises:
        BadArguments: more sinks than there are host ids, or more queues than excerpts.
    """
    if max(sinks) > SINKS_MAX:
        raise BadArguments(f"--sinks: at most {SINKS_MAX} expected, {max(sinks)} came")
    if max(queues) > count:
        raise BadArguments(f"--queues: at most --count ({count}) expected, {max(queues)} came")

    def sinks_cases(sources: Path) -> list[Case]:
        def case(size: int, number: int, folder: Path) -> list[Sample]:
            return [sinks_round(folder, prepared(sources, size, count), number, pauser)]

        return [partial(case, size, number) for size in sizes for number in sinks]

    def queues_cases(sources: Path) -> list[Case]:
        def case(size: int, number: int, folder: Path) -> list[Sample]:
            return [queues_round(folder, sources, size, count, number, pauser)]

        return [partial(case, size, number) for size in sizes for number in queues]

    options: dict[str, object] = {"sizes": sizes, "count": count, "pauser": pauser}
    return [
        Plan(what="sinks", options=options | {"sinks": sinks}, cases=sinks_cases),
        Plan(what="queues", options=options | {"queues": queues}, cases=queues_cases),
    ]


def run_plans(
    make: Callable[[], Sequence[Plan]], rounds: int, *, as_json: bool, plot_folder: Path | None
) -> int:
    """Runs one plan after the other and prints what was found; the exit code.

    SIGTERM and SIGHUP end it as Ctrl-C does: with all processes and folders gone.
    """

    def work() -> int:
        plans = make()
        if plot_folder is not None:
            plots.require_plots()
            plot_folder.mkdir(parents=True, exist_ok=True)
        for plan in plans:
            with scratch() as sources:
                run = run_rounds(plan.what, plan.cases(sources), rounds)
            write_run(run, plan.options | {"rounds": rounds}, as_json=as_json)
            if plot_folder is not None:
                for plot in plan.plots:
                    plot(run, plot_folder)
        return exitcodes.OK

    with ended_as_by_ctrl_c():
        return outcome.guarded("cqrepl bench", work)
