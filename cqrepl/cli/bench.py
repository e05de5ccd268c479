"""`cqrepl bench`: how fast is it here?"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from cqrepl.cli.options import COUNT_MAX, Command, Converted, Number, parse_excerpt_size
from cqrepl.console.units import parse_short_time_ns

if TYPE_CHECKING:
    from cqrepl.commands.bench import Plan

_SIZES_MAX: Final = 16
_ROUNDS_MAX: Final = 1000
_BATCH_MAX: Final = 1_000_000
_PAUSERS: Final = ("busy", "balanced", "sleepy")


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(parse_excerpt_size(each) for each in text.split(","))
    if len(sizes) > _SIZES_MAX or len(set(sizes)) < len(sizes):
        raise ValueError(f"at most {_SIZES_MAX} different sizes expected, {text!r} came")
    return sizes


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [int(each) for each in text.split(",") if each.isdecimal() and len(each) < 5]
    if len(numbers) != len(text.split(",")) or 0 in numbers:
        raise ValueError(f"numbers such as 1,4,16 expected, {text!r} came")
    return tuple(numbers)


_SIZES: Final = Converted("sizes", _sizes)
_NUMBERS: Final = Converted("numbers", _numbers)
_SHORT_TIME: Final = Converted("time", parse_short_time_ns)


def _shared(size: str, count: int, *, plots: bool = True) -> Callable[[Command], Command]:
    """The options that all benchmarks have in common."""
    options = [
        click.option(
            "--size", "sizes", type=_SIZES, default=size, show_default=True,
            metavar="SIZE[,SIZE...]", help="Bytes of an excerpt.",
        ),
        click.option(
            "--count", type=click.IntRange(1, COUNT_MAX), default=count, show_default=True,
            help="Excerpts in a round.",
        ),
        click.option(
            "--rounds", type=click.IntRange(1, _ROUNDS_MAX), default=3, show_default=True,
            help="How often each case is measured; in turn.",
        ),
        click.option(
            "--json", "as_json", is_flag=True,
            help="Print one line of JSON: the machine, all rounds, medians.",
        ),
    ]  # fmt: skip
    if plots:
        options.append(
            click.option(
                "--plot", "plot_folder", type=click.Path(path_type=Path, file_okay=False),
                metavar="DIR", help="Draw into DIR: PNG, SVG, and the numbers as CSV.",
            )
        )  # fmt: skip

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_pauser = click.option(
    "--pauser",
    type=click.Choice(_PAUSERS),
    help="How the source waits while nothing comes; by default as it does by itself.",
)


@click.group()
def bench() -> None:
    """Measure how fast it is on this machine.

    Everything is real: queues in the folder for temporary files (TMPDIR), processes, connections on
    loopback. Nothing is left behind. What else runs on the machine changes the numbers.
    """


@bench.command()
@_shared("64", 1_000_000)
@click.option(
    "--batch", type=click.IntRange(1, _BATCH_MAX), default=100, show_default=True,
    help="Excerpts in a batch.",
)  # fmt: skip
def append(
    sizes: tuple[int, ...], batch: int, count: int, rounds: int, as_json: bool,
    plot_folder: Path | None,
) -> None:  # fmt: skip
    """Append to a queue, in batches and one by one.

    One by one, only a tenth of the excerpts.
    """
    from cqrepl.commands import bench as benching

    _run(lambda: [benching.append_plan(sizes, count, batch)], rounds, as_json, plot_folder)


@bench.command()
@_shared("64", 1_000_000)
def tail(
    sizes: tuple[int, ...], count: int, rounds: int, as_json: bool, plot_folder: Path | None
) -> None:
    """Read a queue, as columns, in batches and one by one."""
    from cqrepl.commands import bench as benching

    _run(lambda: [benching.tail_plan(sizes, count)], rounds, as_json, plot_folder)


@bench.command()
@_shared("256", 1_000_000)
@click.option(
    "--touched", is_flag=True, help="The sink finds a file whose pages are in memory already."
)
@click.option(
    "--frames", "with_frames", is_flag=True,
    help="With runs, and in turn with frames alone, as to a peer that takes no runs.",
)  # fmt: skip
@_pauser
def replicate(
    sizes: tuple[int, ...], touched: bool, with_frames: bool, pauser: str | None, count: int,
    rounds: int, as_json: bool, plot_folder: Path | None,
) -> None:  # fmt: skip
    """Let a sink catch up with a source.

    From the first excerpt sent to the last one acknowledged, into a fresh directory.
    """
    from cqrepl.commands import bench as benching

    def make() -> "list[Plan]":
        kinds = (True, False) if with_frames else (None,)
        plan = benching.replicate_plan(sizes, count, touched=touched, pauser=pauser, runs=kinds)
        return [plan]

    _run(make, rounds, as_json, plot_folder)


@bench.command()
@_shared("256", 10_000)
@click.option(
    "--interval", "interval_ns", type=_SHORT_TIME, default="500us", show_default=True,
    help="Time from one append to the next.",
)  # fmt: skip
@click.option(
    "--seconds", type=Number(0, 3600, min_open=True), metavar="N",
    help="So long, instead of --count.",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(1, _BATCH_MAX), default=1, show_default=True,
    help="Excerpts in each append; the first of them is timed.",
)  # fmt: skip
@_pauser
def latency(
    sizes: tuple[int, ...], interval_ns: int, seconds: float | None, batch: int,
    pauser: str | None, count: int, rounds: int, as_json: bool, plot_folder: Path | None,
) -> None:  # fmt: skip
    """Time excerpts from their append to where the sink's readers see them.

    A process of its own appends at fixed times. An excerpt that goes out late is timed from when it
    was due. The first quarter is left out.
    """
    from cqrepl.commands import bench as benching

    if interval_ns == 0:
        raise click.UsageError("an interval above 0 expected, 0 came")

    def make() -> "list[Plan]":
        within = seconds and benching.count_within(seconds, interval_ns, batch)
        return [
            benching.latency_plan(sizes, within or count, interval_ns, batch=batch, pauser=pauser)
        ]

    _run(make, rounds, as_json, plot_folder)


@bench.command(name="fan-out")
@_shared("1KiB", 200_000, plots=False)
@click.option(
    "--sinks", type=_NUMBERS, default="1,4,16", show_default=True, metavar="N[,N...]",
    help="Sinks of one source.",
)  # fmt: skip
@click.option(
    "--queues", type=_NUMBERS, default="1,10,100", show_default=True, metavar="N[,N...]",
    help="Queues on one connection, which have the excerpts together.",
)  # fmt: skip
@_pauser
def fan_out(
    sizes: tuple[int, ...], sinks: tuple[int, ...], queues: tuple[int, ...], pauser: str | None,
    count: int, rounds: int, as_json: bool,
) -> None:  # fmt: skip
    """Several sinks of one source, then several queues on one connection."""
    from cqrepl.commands import bench as benching

    def make() -> "list[Plan]":
        return benching.fan_out_plans(sizes, count, sinks, queues, pauser)

    _run(make, rounds, as_json, None)


def _run(
    make: "Callable[[], Sequence[Plan]]", rounds: int, as_json: bool, plot_folder: Path | None
) -> None:
    from cqrepl.commands.bench import run_plans

    sys.exit(run_plans(make, rounds, as_json=as_json, plot_folder=plot_folder))
