"""An archive is looked after: its parts are read back, what is left over goes, retention waits."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.queue import Queue
from cqrepl.spark.jobs import archive as job
from tests.spark.conftest import spark_missing
from tests.spark.queues import CYCLE, DAY_MS, make_queue
from tests.support.requirements import require


def run(*words: object) -> Result:
    reason = spark_missing()
    if reason is not None:
        require("spark", reason)
    return CliRunner().invoke(cli, ["spark", "archive", *map(str, words)])


def parts_of(archive: Path) -> list[Path]:
    return sorted(archive.rglob("*.parquet"))


def alter(part: Path) -> None:
    """Writes the part anew, with another byte in one excerpt."""
    table = pq.read_table(part)
    payloads = [data.as_py() for data in table.column("payload")]
    payloads[3] = payloads[3][:-1] + b"X"
    columns = {"index": table["index"], "payload": payloads}
    pq.write_table(pa.table(columns, schema=table.schema), part)


def spoil(part: Path) -> None:
    data = bytearray(part.read_bytes())
    data[len(data) // 2 :: 7] = b"\xff" * len(data[len(data) // 2 :: 7])
    part.write_bytes(data)


def exchange(part: Path) -> None:
    """Puts another part in its place: itself whole, and of the same number of excerpts."""
    part.write_bytes(parts_of(part.parents[2])[1].read_bytes())


@pytest.fixture
def queue(spark: SparkSession, tmp_path: Path) -> Path:
    assert spark
    return make_queue(tmp_path / "queue", (50, 50, 50, 5))


@pytest.mark.parametrize("damage", [alter, spoil, exchange, Path.unlink])
def test_verify_names_each_part_that_is_damaged(
    queue: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    assert run(queue, out).exit_code == 0
    whole = run("verify", out)
    assert (whole.exit_code, whole.stdout) == (
        0, "3 of 3 parts read, 150 excerpts: all as archived\n"
    )  # fmt: skip
    first, _, last = parts_of(out)
    for part in (first, last):
        damage(part)
    found = run("verify", out)
    assert found.exit_code == 4, found.output
    *lines, summary = found.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [str(first), str(last)]
    assert summary == "3 of 3 parts read, 150 excerpts: 2 damaged"
    again = run(queue, out, "--verify")
    assert again.exit_code == 4
    assert again.stderr.startswith(f"cqrepl spark archive: {first}: ")
    assert again.stderr.endswith("; and 1 more part\n")


def test_a_name_that_is_not_that_of_its_digests(queue: Path, tmp_path: Path) -> None:
    """`verify` tells of a part beside a manifest of another run."""
    out = tmp_path / "out"
    assert run(queue, out).exit_code == 0
    part = parts_of(out)[0]
    other = part.with_name(part.name[:-24] + "0" * 16 + ".parquet")
    part.rename(other)
    manifest = out / "_manifest.json"
    manifest.write_text(manifest.read_text().replace(part.name, other.name))
    found = run("verify", out)
    assert found.exit_code == 4
    assert f"{other}: expected a part named {part.name} by its digests" in found.stdout


def test_a_sample_reads_some_parts(queue: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(queue, out).exit_code == 0
    found = run("verify", out, "--sample", "40", "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout) == {
        "v": 1, "parts": 3, "read": 1, "excerpts": 50, "damaged": 0,
    }  # fmt: skip
    for part in parts_of(out):
        part.unlink()
    assert run("verify", out, "--sample", "1").exit_code == 4


def test_what_no_manifest_names_goes(queue: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(queue, out).exit_code == 0
    parts = parts_of(out)
    left = [
        parts[0].with_name(".part-0000000000000000.abc"),
        parts[0].with_name("part-0000000000000000-1-00.parquet"),
        out / "._manifest.json.abc",
        out / "day=1999-01-01" / "cycle=1" / "part.parquet",
    ]
    left[-1].parent.mkdir(parents=True)
    for path in left:
        path.write_bytes(b"12345")
    told = run("gc", out)
    assert (told.exit_code, told.stdout.count("may go\n")) == (0, 4)
    assert "4 files, 20 B may go, nothing was changed: --apply deletes" in told.stdout
    assert all(path.exists() for path in left)
    done = run("gc", out, "--apply")
    assert (done.exit_code, done.stdout.count("deleted\n")) == (0, 5)
    assert not any(path.exists() for path in left)
    assert not (out / "day=1999-01-01").exists()
    assert parts_of(out) == parts
    assert run("verify", out).exit_code == 0
    assert run("gc", queue).exit_code == 2


def gc_lines(queue: Path, *words: str) -> dict[int, str]:
    done = CliRunner().invoke(cli, ["gc", str(queue), *words, "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {row["cycle"] - CYCLE: "; ".join(row["reasons"]) for row in rows}


def test_retention_waits_for_the_archive_that_a_queue_names(queue: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert gc_lines(queue)[0] == ""
    assert run(queue, out, "--hold").exit_code == 0
    assert [gc_lines(queue)[nth] for nth in range(3)] == ["", "", ""]
    with Queue.open(queue) as growing:
        growing.append(b"next", now_ms=(CYCLE + 4) * DAY_MS)
    held = gc_lines(queue)
    assert f"reader archive {out} is at {(CYCLE + 3) << 32:#x}" in held[3]
    assert held[2] == ""
    assert run(queue, out).exit_code == 0
    assert gc_lines(queue)[3] == ""
    parts_of(out)[0].parents[2].rename(tmp_path / "gone")
    assert run(queue, out, "--with-open", "--replace").exit_code == 0  # begun anew, it has all
    assert gc_lines(queue)[3] == ""
    assert run(queue, out, "--release").exit_code == 0
    with Queue.open(queue) as growing:
        growing.append(b"next", now_ms=(CYCLE + 5) * DAY_MS)
    assert gc_lines(queue)[4] == ""


def test_a_part_that_has_gone_is_not_archived(queue: Path, tmp_path: Path) -> None:
    """Retention waits for it again; it can be archived anew as long as the queue holds it."""
    out = tmp_path / "out"
    assert run(queue, out, "--hold").exit_code == 0
    first, second, _ = parts_of(out)
    second.unlink()
    found = run(queue, out)
    assert found.exit_code == 4, found.output
    assert f"{second}: expected a part of the archive, found none; put it back" in found.stderr
    with Queue.open(queue) as growing:
        growing.append(b"next", now_ms=(CYCLE + 4) * DAY_MS)
    assert f"reader archive {out} is at {(CYCLE + 1) << 32:#x}" in gc_lines(queue)[1]
    assert run(queue, out, "--replace").exit_code == 0
    assert parts_of(out)[:2] == [first, second]  # its name has the digest of what it holds
    assert gc_lines(queue)[1] == ""
    first.unlink()
    next(queue.glob("20231114*.cq4")).unlink()
    gone = run(queue, out, "--replace")
    assert gone.exit_code == 4, gone.output
    assert f"{first}: expected a part of the archive, found none" in gone.stderr
    assert json.loads((out / "_manifest.json").read_text())["cycles"][0]["cycle"] == CYCLE


def test_an_archive_that_has_lost_its_manifest_is_left_alone(queue: Path, tmp_path: Path) -> None:
    """The next run would have taken its parts for those of a run that was cut off."""
    out = tmp_path / "out"
    assert run(queue, out, "--hold").exit_code == 0
    held = parts_of(out)
    manifest = (out / "_manifest.json").rename(tmp_path / "saved")
    next(queue.glob("20231114*.cq4")).unlink()  # as retention has
    for words in ((queue, out), (queue, out, "--replace", "--hold")):
        found = run(*words)
        assert found.exit_code == 4, found.output
        told = "_manifest.json: expected the manifest of 3 parts, found none; put it back, or"
        assert f"{out}/{told}" in found.stderr
    assert run("gc", out, "--apply").exit_code == 2
    assert parts_of(out) == held
    manifest.rename(out / "_manifest.json")
    assert run(queue, out, "--with-open").exit_code == 0
    assert parts_of(out)[:3] == held


@pytest.mark.parametrize("lost", ["a part", "the manifest", "all"])
def test_a_hold_is_given_up_whatever_has_become_of_the_archive(
    queue: Path, tmp_path: Path, lost: str
) -> None:
    out = tmp_path / "out"
    assert run(queue, out, "--hold").exit_code == 0
    with Queue.open(queue) as growing:
        for nth in (4, 5):
            growing.append(b"next", now_ms=(CYCLE + nth) * DAY_MS)
    assert f"reader archive {out} is at" in gc_lines(queue)[3]
    if lost == "a part":
        parts_of(out)[0].unlink()
    elif lost == "the manifest":
        (out / "_manifest.json").unlink()
    else:
        out.rename(tmp_path / "aside")
        out.write_text("no directory")
    found = run(queue, out, "--release")
    assert found.exit_code == (2 if lost == "all" else 4), found.output
    assert found.stdout.startswith(f"cqrepl gc of {queue} waits for {out} no longer\n")
    assert len(found.stderr.splitlines()) == 1
    assert gc_lines(queue)[3] == ""
    again = run(queue, out, "--release", "--json")
    assert json.loads(again.stdout.splitlines()[0]) == {
        "v": 1, "queue": str(queue), "archive": str(out), "is_released": False,
    }  # fmt: skip


def test_a_first_run_that_is_cut_off_is_begun_again(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has left parts, and the manifest of an archive that holds nothing yet."""
    out = tmp_path / "out"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(job, "check_written", full)
        assert run(queue, out).exit_code == 6
    assert len(parts_of(out)) == 3
    assert run("verify", out).exit_code == 1
    assert run(queue, out, "--verify").exit_code == 0
    assert len(parts_of(out)) == 3


def test_all_is_held_while_the_first_archive_is_made(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails leaves the queue waiting for the next one."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(job, "write_manifest", full)
        assert run(queue, tmp_path / "out", "--hold").exit_code == 6
    assert f"reader archive {tmp_path / 'out'} is at" in gc_lines(queue)[0]


def test_an_archive_that_holds_nothing_yet_proves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """If no cycle was ever closed, adding succeeds, and verifying tells that it read nothing."""
    assert spark
    queue, archive = make_queue(tmp_path / "open", (5,)), tmp_path / "archive"
    assert run(queue, archive, "--verify").exit_code == 0
    found = run("verify", archive)
    assert found.exit_code == 1
    assert found.stdout == (
        "0 of 0 parts read, 0 excerpts: nothing is archived yet, which proves nothing\n"
    )
