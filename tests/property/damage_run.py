"""Damages queues, one after the next, in a process of its own: `damage_run FOLDER COUNT SEED`.

Prints one line of JSON: how many of each area and kind, and how many of them a reader notices. A
crash of the process leaves the last mutation in `FOLDER/last`, and Python's own trace on standard
error; a question that is not answered in time ends the process with a trace as well.
"""

import faulthandler
import json
import random
import resource
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cqrepl.queue.inspection.findings import FindingKind
from tests.support.damage import AREAS, KINDS, Mutation, Sample, samples
from tests.support.damagechecks import Case, Result, is_seen, last_index, lay, looked, read

PATIENCE_S = 60  # for one question; a second is promised, on a machine that does nothing else


class Tally:
    """Counts over one run."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.unseen: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def add(self, mutation: Mutation, *, is_noticed: bool, error: str) -> None:
        (self.seen if is_noticed else self.unseen)[f"{mutation.area}: {mutation.kind}"] += 1
        self.errors[error] += 1


def mutations() -> st.SearchStrategy[Mutation]:
    """A mutation of any kind, the area drawn first."""
    return st.sampled_from(AREAS).flatmap(
        lambda area: st.builds(
            Mutation,
            area=st.just(area),
            kind=st.sampled_from(KINDS[area]),
            seed=st.integers(0, (1 << 32) - 1),
        )
    )


def check(folder: Path, sample: Sample, before: Result, mutation: Mutation, tally: Tally) -> None:
    """Everything that is asked of one damaged queue."""
    (folder / "last").write_text(f"{sample.name} {mutation}")
    case = Case(folder, sample, mutation)
    signal.alarm(PATIENCE_S)
    whole = read(case.path)
    case.check_given(whole, before)
    middle = case.middle(before)
    before_part = Result([each for each in before.given if each.index >= middle])
    part = read(case.path, middle)
    case.check_given(part, before_part)
    last = last_index(case.path)
    info = looked(case.path, deep=True)
    looked(case.path, deep=False)
    case.check_dump()
    case.check_untouched()
    if isinstance(whole.error, Exception) and info is not None:
        assert info.findings, f"a reader gets {whole.error!r}, an inspection finds nothing"
    if mutation.area == "index" and info is not None:
        kinds = {each.kind for each in info.findings}
        assert whole.error is None or FindingKind.DAMAGE in kinds
    signal.alarm(PATIENCE_S)
    case.check_append()
    signal.alarm(PATIENCE_S)
    case.check_repair(before)
    signal.alarm(0)
    is_noticed = (
        is_seen(whole, before)
        or is_seen(part, before_part)
        or last.number != before.given[-1].index
    )
    error = whole.error or part.error or last.error
    name = "no error" if error is None else type(error).__name__
    tally.add(mutation, is_noticed=is_noticed, error=name)


def run(folder: Path, count: int, number: int) -> Tally:
    """Tries so many damaged queues. The first wrong one is shrunk, and raised."""
    tally = Tally()
    with tempfile.TemporaryDirectory(dir=folder) as made:
        undamaged = samples(Path(made))
    by_name = {sample.name: sample for sample in undamaged}
    befores = {}
    for sample in undamaged:
        lay(folder / "damaged", sample.files)
        befores[sample.name] = read(folder / "damaged")

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(name=st.sampled_from(sorted(befores)), mutation=mutations())
    def each(name: str, mutation: Mutation) -> None:
        check(folder, by_name[name], befores[name], mutation, tally)

    each()
    return tally


def _too_late(_signal: int, _frame: FrameType | None) -> None:
    faulthandler.dump_traceback()
    raise SystemExit(f"no answer within {PATIENCE_S} s")


def _resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Runs, and prints the counts."""
    faulthandler.enable()
    signal.signal(signal.SIGALRM, _too_late)
    folder, count, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    random.seed(number)
    run(folder, min(20, count), number)  # imports, buffers
    resident = _resident_kib()
    tally = run(folder, count, number + 1)
    print(
        json.dumps(
            {
                "seen": tally.seen,
                "unseen": tally.unseen,
                "errors": tally.errors,
                "grown_kib": _resident_kib() - resident,
            }
        )
    )


if __name__ == "__main__":
    main()
