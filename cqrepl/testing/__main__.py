"""`python -m cqrepl.testing`: runs seeds, and tells the shortest story of one that fails."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from cqrepl.testing.experiment import NOTHING, Experiment, read_experiment
from cqrepl.testing.known import LEFT_OUT
from cqrepl.testing.laboratory import Outcome, run_experiment
from cqrepl.testing.plan import Kind, RunPlan
from cqrepl.testing.safewaits import NOT_COVERED
from cqrepl.testing.shortener import shortened
from cqrepl.testing.transcript import record, told, transcript

SECONDS = 60.0
FOR_ONE = {"story": "--story", "capture": "--record", "whole": "--whole"}
FOR_MANY = {"jobs": "--jobs", "results": "--results"}
ONE_WAY, BOTH_WAYS, PASSED_ON, CHANGING = "one-way", "both-ways", "passed-on", "changing"
CHANGING_CUT, ELECTED = "changing-cut", "elected"
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


class SeedRange(click.ParamType[range]):
    """`A..B`, both included."""

    name = "A..B"

    def convert(self, value: Any, param: Any, ctx: Any) -> range:
        found = _RANGE.fullmatch(str(value))
        if found is None or int(found[1]) > int(found[2]):
            self.fail(f"two numbers A..B expected, {value!r} came", param, ctx)
        return range(int(found[1]), int(found[2]) + 1)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=click.IntRange(0), help="Run this seed, and tell what happened.")
@click.option("--seeds", type=SeedRange(), help="Run all of these, one line each.")
@click.option("--seconds", type=click.FloatRange(1), default=SECONDS, show_default=True)
@click.option("--hosts", type=click.IntRange(2, 9), help="So many; drawn if not given.")
@click.option(
    "--roles",
    type=click.Choice([ONE_WAY, BOTH_WAYS, PASSED_ON, CHANGING, CHANGING_CUT, ELECTED]),
    help="A source and its sinks, or hosts that are both (drawn if not given); hosts that are both "
    "and pass copies on; or hosts of one queue that operators pause and promote; or that elect.",
)
@click.option(
    "--groups",
    type=click.IntRange(1, 9),
    help="So many queues whose leaders change; drawn if not given.",
)
@click.option(
    "--runs/--frames",
    "runs",
    default=None,
    help="All hosts send and take runs, or none; drawn for each if not given.",
)
@click.option(
    "--rare/--usual",
    "rare",
    default=None,
    help="Hosts make choices that are legal and rare, or none; drawn if not given.",
)
@click.option(
    "--without",
    "left_out",
    type=click.Choice([kind.value for kind in Kind]),
    multiple=True,
    help="Leave out faults of this kind; several times.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Leave out nothing, not even what is known to fail."
)
@click.option(
    "--waits",
    is_flag=True,
    help="Programs wait as policies say, and what they called safe is looked for; without faults "
    "that no policy covers.",
)
@click.option(
    "--program",
    "module",
    help="Put the programs, workload, services, checks and faults of this module into each run.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Append each result to this file, and go on where it ends.",
)
@click.option("--story", is_flag=True, help="With every document that went over a link.")
@click.option(
    "--record",
    "capture",
    type=click.File("wb"),
    help="Write a capture of all links, for wire-dump.",
)
@click.option("--whole", is_flag=True, help="Do not make a failing run shorter.")
def main(**options: Any) -> None:
    """Runs whole hosts, their network, disks and clocks in one thread, from a seed.

    Exit codes: 0 nothing failed, 1 something did, 2 wrong use.
    """
    seed, seeds = options["seed"], options["seeds"]
    if (seed is None) == (seeds is None):
        raise click.UsageError("one of --seed and --seeds is needed")
    _check_use(*(("--seeds", FOR_MANY) if seeds is None else ("--seed", FOR_ONE)))
    options["experiment"] = _experiment(options["module"])
    left_out = {Kind(name) for name in options["left_out"]}
    if not options["everything"]:
        left_out |= LEFT_OUT
    if options["waits"]:
        left_out |= NOT_COVERED
    if seed is not None:
        sys.exit(_one(_plan(seed, left_out, options), options))
    if options["jobs"] > 1:
        sys.exit(_spread(seeds, options))
    sys.exit(_many(seeds, left_out, options))


def _check_use(needed: str, names: Mapping[str, str]) -> None:
    """Options that would do nothing are refused."""
    context = click.get_current_context()
    for name, option in names.items():
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{option} goes with {needed}")


def _experiment(module: str | None) -> Experiment:
    if module is None:
        return NOTHING
    try:
        return read_experiment(module)
    except (ImportError, ValueError) as error:
        raise click.UsageError(f"--program {module}: {error}") from error


def _plan(seed: int, left_out: Iterable[Kind], options: dict[str, Any]) -> RunPlan:
    drawn = _drawn(seed, left_out, options)
    experiment = options["experiment"]
    plan = drawn.with_parts(len(experiment.services), experiment.faults)
    return plan.only(each for each in plan.faults if each.kind not in left_out)


def _drawn(seed: int, left_out: Iterable[Kind], options: dict[str, Any]) -> RunPlan:
    roles, seconds, hosts = options["roles"], options["seconds"], options["hosts"]
    runs = options["runs"]
    if roles == ELECTED:
        return RunPlan.elected(
            seed, seconds, hosts, left_out, runs=runs, groups=options["groups"],
            rare=options["rare"],
        )  # fmt: skip
    if roles in (CHANGING, CHANGING_CUT):
        is_cut = roles == CHANGING_CUT
        return RunPlan.of(
            seed, seconds, hosts, left_out, changing=True, cut_inside=is_cut, runs=runs,
            groups=options["groups"], rare=options["rare"],
        )  # fmt: skip
    both_ways = None if roles is None else roles != ONE_WAY
    passed_on = True if roles == PASSED_ON else None
    return RunPlan.of(
        seed, seconds, hosts, left_out, both_ways=both_ways, passed_on=passed_on, runs=runs,
        rare=options["rare"],
    )  # fmt: skip


def _one(plan: RunPlan, options: dict[str, Any]) -> int:
    outcome = run_experiment(plan, options["experiment"], waits=options["waits"])
    if outcome.broken is not None and not options["whole"]:
        click.echo(f"{plan}: {outcome.broken}")
        click.echo("looking for a shorter run that fails so, until Ctrl-C ...", err=True)
        outcome = shortened(outcome, shows=lambda best: click.echo(_line(best), err=True))
    for line in transcript(outcome) if options["story"] else told(outcome):
        click.echo(line)
    if options["capture"] is not None:
        record(outcome, options["capture"])
    click.echo(_line(outcome))
    return 0 if outcome.broken is None else 1


def _many(seeds: Iterable[int], left_out: Iterable[Kind], options: dict[str, Any]) -> int:
    results, done = options["results"], _done(options["results"])
    failed = 0
    injected: Counter[str] = Counter()
    for seed in seeds:
        plan = _plan(seed, left_out, options)
        key = _key(plan, options)
        if key in done:
            failed += done[key]
            continue
        outcome = run_experiment(plan, options["experiment"], waits=options["waits"])
        failed += outcome.broken is not None
        injected.update(outcome.injected)
        click.echo(_line(outcome))
        if results is not None:
            with results.open("a") as file:
                file.write(json.dumps(_result(outcome, key)) + "\n")
    click.echo(f"{failed} failed; faults: {_counts(injected)}")
    return 1 if failed else 0


def _spread(seeds: range, options: dict[str, Any]) -> int:
    """Each process takes a part of the seeds."""
    jobs = options["jobs"]
    words = [sys.executable, "-m", "cqrepl.testing", "--seconds", str(options["seconds"])]
    for name in options["left_out"]:
        words += ["--without", name]
    words += ["--all"] if options["everything"] else []
    words += [] if options["module"] is None else ["--program", options["module"]]
    words += ["--waits"] if options["waits"] else []
    words += [] if options["hosts"] is None else ["--hosts", str(options["hosts"])]
    words += [] if options["roles"] is None else ["--roles", options["roles"]]
    words += [] if options["groups"] is None else ["--groups", str(options["groups"])]
    words += [] if options["rare"] is None else ["--rare" if options["rare"] else "--usual"]
    words += [] if options["runs"] is None else ["--runs" if options["runs"] else "--frames"]
    size = -(-len(seeds) // jobs)
    running = []
    for start in range(0, len(seeds), size):
        part = seeds[start : start + size]
        own = [*words, "--seeds", f"{part[0]}..{part[-1]}"]
        if options["results"] is not None:
            own += ["--results", str(options["results"])]
        running.append(subprocess.Popen(own))
    try:
        return max(process.wait() for process in running)
    finally:
        for process in running:
            process.terminate()  # nothing for one that has ended


def _done(results: Path | None) -> dict[str, bool]:
    """The plans that a file of results has, by key, and whether they failed."""
    if results is None or not results.exists():
        return {}
    done = {}
    try:
        for line in results.read_text().splitlines():
            if line.startswith("{") and not line.endswith("}"):
                continue  # a kill has cut it off
            result = json.loads(line)
            done[result["plan"]] = result["broken"] is not None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise click.UsageError(f"{results} is no file of results: {error}") from error
    with results.open("rb+") as file:
        if file.seek(0, os.SEEK_END) and not results.read_bytes().endswith(b"\n"):
            file.write(b"\n")
    return done


def _key(plan: RunPlan, options: dict[str, Any]) -> str:
    module = options["module"]
    waits = "+waits" if options["waits"] else ""
    return plan.key + waits + ("" if module is None else f"+{module}")


def _result(outcome: Outcome, key: str) -> dict[str, Any]:
    return {
        "seed": outcome.plan.seed,
        "plan": key,
        "seconds": outcome.plan.seconds,
        "broken": outcome.broken,
        "digest": outcome.digest,
        "injected": outcome.injected,
        "appended": outcome.appended,
        "called_safe": dict(outcome.called_safe),
        "timed_out": outcome.timed_out,
        "admitted": outcome.admitted,
        "real_seconds": round(outcome.real_seconds, 3),
    }


def _line(outcome: Outcome) -> str:
    speed = outcome.plan.seconds / outcome.real_seconds
    verdict = outcome.broken or "ok"
    if outcome.waits and outcome.broken is None:
        counts = ", ".join(f"{name} {n}" for name, n in sorted(outcome.called_safe.items()))
        verdict = f"ok, safe: {counts or 'nothing'}, timed out: {outcome.timed_out}"
    return f"{outcome.plan}, {speed:.0f} x real time, trace {outcome.digest[:12]}: {verdict}"


def _counts(injected: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(injected.items())) or "none"


if __name__ == "__main__":
    # the disks of the run go with it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    main()
