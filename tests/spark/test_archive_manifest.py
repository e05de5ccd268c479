"""The manifest of an archive, made anew of its parts: gaps are named, contradictions refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cqrepl.queue import Queue
from cqrepl.queue.format.index import Cycle
from cqrepl.spark.jobs.archive import archive as job
from cqrepl.spark.jobs.restore import restore
from tests.spark.queues import CYCLE, DAY_MS, excerpts, make_queue, note_closed
from tests.spark.test_archive_store import alter, parts_of, run, spoil

COUNTS = (50, 40, 30, 20, 5)
BLOCK = 65_536


@pytest.fixture
def queue(spark: SparkSession, tmp_path: Path) -> Path:
    assert spark
    return make_queue(tmp_path / "queue", COUNTS)


@pytest.fixture
def out(queue: Path, tmp_path: Path) -> Path:
    """Its archive, of the closed cycles."""
    assert run(queue, tmp_path / "out").exit_code == 0
    return tmp_path / "out"


def manifest_of(out: Path) -> Any:
    """A manifest without what no part tells: the states of store files, and the identity."""
    found = json.loads((out / "_manifest.json").read_text())
    for cycle in found["cycles"]:
        cycle["state"] = None
    found["identity"] = None  # of parts alone it is not known: the next run binds the archive
    return found


def files_of(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name != "_lock"
    }


def test_a_lost_manifest_is_made_anew(queue: Path, out: Path, tmp_path: Path) -> None:
    before = manifest_of(out)
    (out / "_manifest.json").unlink()
    lost = run(queue, out)
    assert lost.exit_code == 4
    assert "make it anew of them (cqrepl spark archive rebuild-manifest)" in lost.stderr
    held = files_of(out)
    told = run("rebuild-manifest", out, "--queue", queue)
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines()[-1] == (
        "4 cycles, nothing was changed: --apply writes it; 140 excerpts"
    )
    assert files_of(out) == held
    done = run("rebuild-manifest", out, "--queue", queue, "--apply")
    assert done.exit_code == 0, done.output
    assert "4 cycles, the manifest is made anew; 140 excerpts\n" in done.stdout
    assert manifest_of(out) == before
    assert run("verify", out).exit_code == 0
    assert "0 of them new" in run(queue, out).stdout
    assert parts_of(out) == sorted(out / name for name in held if name.endswith("parquet"))


def test_a_manifest_that_is_there_is_not_overwritten(queue: Path, out: Path) -> None:
    for damaged in (None, b"{"):
        if damaged is not None:
            (out / "_manifest.json").write_bytes(damaged)
        held = files_of(out)
        for words in ((), ("--apply",)):
            refused = run("rebuild-manifest", out, "--queue", queue, *words)
            assert refused.exit_code == 2, refused.output
            assert "_manifest.json: expected none, as --replace was not given" in refused.stderr
        assert run("rebuild-manifest", out, "--queue", queue, "--replace").exit_code == 0
        assert files_of(out) == held
    assert run("rebuild-manifest", out, "--queue", queue, "--replace", "--apply").exit_code == 0
    assert run("verify", out).exit_code == 0


def test_without_a_queue_a_roll_cycle_says_enough(
    spark: SparkSession, out: Path, tmp_path: Path, queue: Path
) -> None:
    """It is not known of the last cycle alone whether it has ended."""
    before = manifest_of(out)
    (out / "_manifest.json").unlink()
    for words, code, told in (
        ((), 2, "expected the queue that was archived, or else its roll cycle"),
        (("--queue", queue, "--roll-cycle", "DAILY"), 2, "or else its roll cycle"),
        (("--roll-cycle", "DALY"), 2, "DALY"),
        (("--roll-cycle", "FAST_HOURLY"), 5, "expected it in day=1972-03-30/cycle=19675 by FAST_"),
    ):
        refused = run("rebuild-manifest", out, *words)
        assert refused.exit_code == code, refused.output
        assert told in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    done = run("rebuild-manifest", out, "--roll-cycle", "FAST_DAILY", "--apply")
    assert done.exit_code == 0, done.output
    before["cycles"][-1]["is_closed"] = False
    assert manifest_of(out) == before

    restore(spark, out, tmp_path / "back")
    assert excerpts(tmp_path / "back") == excerpts(queue)[:140]


def test_cycles_that_are_not_there_are_named(queue: Path, out: Path) -> None:
    """The command names missing cycles that the queue has had, and those it knows nothing of."""
    for nth in range(4):
        note_closed(queue, Cycle(CYCLE + nth))
    (out / "_manifest.json").unlink()
    for number in (0, 2):
        shutil.rmtree(parts_of(out)[number - (number > 0)].parents[1])
    alone = run("rebuild-manifest", out, "--roll-cycle", "FAST_DAILY", "--apply")
    assert alone.exit_code == 1, alone.output
    assert alone.stdout.splitlines()[0] == (
        "20231116F.cq4  no part of it: nothing was in it, or its parts have gone"
    )
    sorted(queue.glob("*.cq4"))[0].unlink()
    found = run("rebuild-manifest", out, "--queue", queue, "--replace", "--json")
    assert found.exit_code == 1, found.output
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert [row for row in rows if "doubt" in row] == [
        {"v": 1, "doubt": "no part of it, and 50 excerpts are known to the queue",
         "files": ["20231114F.cq4"], "cycles": 1},
        {"v": 1, "doubt": "no part of it: the queue holds it, and the next run archives it",
         "files": ["20231116F.cq4"], "cycles": 1},
    ]  # fmt: skip


def test_a_cycle_that_has_had_more(spark: SparkSession, tmp_path: Path) -> None:
    """Its last part has gone: the queue knows that; without it, it can only be feared."""
    long = make_queue(tmp_path / "long", (BLOCK + 10, 5))
    archive = tmp_path / "of long"

    job(spark, long, archive, task_bytes=1)
    (archive / "_manifest.json").unlink()
    _, last = parts_of(archive)
    last.rename(tmp_path / "aside")
    for words, told in (
        (("--queue", long), f"{BLOCK} excerpts, and {BLOCK + 10} are known to the queue"),
        (("--roll-cycle", "FAST_DAILY"), "it ends where a part may end: another one may have"),
    ):
        found = run("rebuild-manifest", archive, *words)
        assert found.exit_code == 1, found.output
        assert told in found.stdout.splitlines()[0]
        assert found.stdout.startswith("20231114F.cq4  ")
        assert "  open\n" in found.stdout  # retention waits for it
    (tmp_path / "aside").rename(last)
    assert run("rebuild-manifest", archive, "--queue", long).exit_code == 0
    first, _ = parts_of(archive)
    first.unlink()
    gap = run("rebuild-manifest", archive, "--queue", long, "--apply")
    assert gap.exit_code == 4
    assert f"{last}: expected parts of cycle {CYCLE} from {CYCLE << 32:#x} on, found none of" in (
        gap.stderr
    )
    assert not (archive / "_manifest.json").exists()


def longer(part: Path) -> Path:
    """Another part that holds some of the same."""
    return Path(shutil.copy(part, part.with_name(part.name.replace("-50-", "-51-"))))


def unnamed(part: Path) -> Path:
    return Path(shutil.copy(part, part.with_name("part-0.parquet")))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (alter, "expected a part named part-"),
        (spoil, "expected a part of an archive"),
        (longer, "move the one away that is not to be in the archive"),
        (unnamed, "expected a part named by its first index"),
    ],
)
def test_parts_that_contradict_each_other_or_their_names(
    queue: Path, out: Path, change: Callable[[Path], Any], told: str
) -> None:
    (out / "_manifest.json").unlink()
    part = parts_of(out)[0]
    changed = change(part) or part
    held = files_of(out)
    refused = run("rebuild-manifest", out, "--queue", queue, "--apply")
    assert refused.exit_code == 4, refused.output
    assert told in refused.stderr
    assert str(changed) in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert files_of(out) == held


def test_what_is_no_archive(queue: Path, tmp_path: Path) -> None:
    for path in (queue, tmp_path / "none"):
        refused = run("rebuild-manifest", path, "--queue", queue, "--apply")
        assert refused.exit_code == 2
        assert f"{path}: expected parts of an archive, found none" in refused.stderr
    assert not (tmp_path / "none").exists()
    assert not (queue / "_lock").exists()


def test_an_open_cycle_is_archived_on_when_its_manifest_is_back(queue: Path, out: Path) -> None:
    assert run(queue, out, "--with-open").exit_code == 0
    (out / "_manifest.json").unlink()
    with Queue.open(queue) as growing:
        growing.append(b"more", now_ms=(CYCLE + 4) * DAY_MS)
        growing.append(b"next", now_ms=(CYCLE + 5) * DAY_MS)
    for words in (("--queue", queue), ("--roll-cycle", "FAST_DAILY")):
        (out / "_manifest.json").unlink(missing_ok=True)
        done = run("rebuild-manifest", out, *words, "--apply")
        assert done.exit_code == (1 if "--queue" in words else 0), done.output
    more = run(queue, out)
    assert more.exit_code == 0, more.output
    assert [cycle["is_closed"] for cycle in manifest_of(out)["cycles"]] == [True] * 5
    assert "146 excerpts" in more.stdout
