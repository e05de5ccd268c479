"""The fuzzing campaign finds nothing; and it does find defects, which are planted for it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.campaign import ROOT, Outcome, run_target
from tests.fuzz.families import NAMES, PLANTED, load, targets
from tests.fuzz.target import SEPARATOR, framed, pieces, unframed
from tests.support.requirements import require

SECONDS = float(os.environ.get("CQREPL_FUZZ_SECONDS", "1"))  # for each target
EVERY = 5 if SECONDS <= 1 else 1  # seed; each one is run without the engine anyway
SEED = 1  # a change is judged by the same inputs as the one before; `make fuzz` takes new ones
EXECUTIONS_MIN = 30  # the slowest target makes 100 in a second on a busy machine
PLANTED_SECONDS = 300  # at most: it ends with what it finds, which takes some seconds


@pytest.fixture
def engine() -> None:
    """Skips the tests that start the engine where it is not installed."""
    if find_spec("atheris") is None:
        require("atheris", "fuzzing needs atheris: pip install atheris")


@pytest.mark.timeout(200 * SECONDS + 600)
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found(name: str) -> None:
    for seconds in (SECONDS, 10 * SECONDS, 100 * SECONDS):  # a busy machine needs more of them
        outcome = run_target(name, seconds, seed=SEED, every=EVERY)
        assert outcome.finding is None, told(outcome)
        if outcome.executions > EXECUTIONS_MIN:
            break
    assert outcome.executions > EXECUTIONS_MIN, outcome.line()
    assert outcome.corpus > 5, outcome.line()
    assert outcome.features > outcome.corpus, outcome.line()
    print(outcome.line())


def told(outcome: Outcome) -> str:
    assert outcome.finding is not None
    return f"{outcome.line()}\n{outcome.finding.saved}\n{outcome.finding.told}"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("planted-error", "ValueError: planted"),
        ("planted-output", "printed 'planted"),
        ("planted-hang", "timeout"),
        ("planted-memory", "out-of-memory"),
    ],
)
def test_a_planted_defect_is_found(name: str, reason: str, tmp_path: Path) -> None:
    outcome = run_target(name, PLANTED_SECONDS, seed=SEED, saved=tmp_path, input_seconds=2)
    assert outcome.finding is not None, outcome.line()
    assert reason in outcome.finding.told, told(outcome)
    assert outcome.executions > len(list(load(name).seeds())), "found by a seed, not by fuzzing"
    saved = outcome.finding.saved
    assert saved is not None
    assert saved.parent == tmp_path
    if name == "planted-error":
        with pytest.raises(ValueError, match="planted"):
            load(name).run(saved.read_bytes())


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.fuzz", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.mark.usefixtures("engine")
def test_the_command_names_the_input_and_replays_it() -> None:
    found = command("--seconds", str(PLANTED_SECONDS), "--target", "planted-error")
    assert found.returncode == 1, found.stderr
    assert "FINDING" in found.stdout
    again = found.stderr.splitlines()[-1].partition("python -m tests.fuzz ")[2].split()
    replayed = command(*again)
    assert replayed.returncode == 1
    assert "ValueError: planted" in replayed.stderr
    Path(again[-1]).unlink()


@pytest.mark.usefixtures("engine")
def test_a_target_that_cannot_start_is_a_finding(tmp_path: Path) -> None:
    outcome = run_target("no-such-target", 1, saved=tmp_path)
    assert outcome.finding is not None
    assert outcome.executions == 0


def test_wrong_calls_are_told() -> None:
    assert command("--target", "no-such-target").returncode == 2
    assert command("--replay", "x").returncode == 2


def test_every_target_of_every_module_has_a_name() -> None:
    modules = Path(__file__).parent.glob("*_targets.py")
    found = [name for module in modules for name in targets(module.stem.removesuffix("_targets"))]
    assert sorted(found) == sorted([*NAMES, *PLANTED])


@pytest.mark.parametrize("name", [*NAMES, *PLANTED])
def test_seeds_are_many_and_each_passes(name: str) -> None:
    """A target's seeds are no findings, but for those planted. They are run without the engine."""
    target = load(name)
    seeds = list(target.seeds())
    assert len(seeds) >= 2
    assert len(set(seeds)) > 0.9 * len(seeds)
    for seed in seeds[:: max(1, len(seeds) // 10)]:
        target.run(seed)


def test_corpus_covers_every_folder_of_vectors() -> None:
    for seeds, least in (
        (corpus.documents, 2000),
        (corpus.texts, 2000),
        (corpus.sessions, 30),
        (corpus.stores, 100),
        (corpus.acceptor_cases, 40),
    ):
        assert len(list(seeds())) >= least, seeds


def test_spread_takes_from_everywhere() -> None:
    seeds = corpus.spread(lambda: (bytes([at]) for at in range(100)), 10)
    assert [seed[0] for seed in seeds()] == list(range(0, 100, 10))
    long = corpus.spread(lambda: [b"ab", b"a", b"a"], 10, length_max=1)
    assert list(long()) == [b"a"]


def test_documents_are_framed_and_back() -> None:
    stream = b"\x02\0\0\0ab\x01\0\0\x40c"
    assert unframed(stream) == b"\0ab" + SEPARATOR + b"\1c"
    assert framed(unframed(stream)) == stream
    assert framed(b"") == b""


@pytest.mark.parametrize("cuts", [b"", b"\0", b"\1", b"\3\0\7"])
def test_pieces_are_the_whole(cuts: bytes) -> None:
    data = bytes(range(200))
    assert b"".join(pieces(data, cuts)) == data
