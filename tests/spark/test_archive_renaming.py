"""Archives where the only atomic step is to rename a directory: as on HDFS.

Run with pyarrow's file system of this machine, which refuses to rename onto a directory that is
not empty, and with one that moves into it, as HDFS does. No Hadoop is run here.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.console.exitcodes import BadArguments
from cqrepl.spark.jobs.archive import archive
from cqrepl.spark.jobs.archiveplace import (
    MANIFESTS,
    SETTLED_S,
    ArchiveChanged,
    RenamingPlace,
    place_of,
)
from cqrepl.spark.jobs.archivesweep import left_over
from cqrepl.spark.jobs.archiveverify import verify_archive
from cqrepl.spark.jobs.restore import restore
from tests.spark.queues import excerpts, make_queue
from tests.support.manifestrace import (
    assert_one_wins,
    assert_only_exchanged_for_what_was_read,
    assert_two_runs_lose_nothing,
)
from tests.support.movinginto import made_while_listed, moving_into


@dataclass(frozen=True, slots=True)
class Counting(RenamingPlace):
    """Notes how often it is asked for sizes."""

    asked: Path

    def sizes(self, names: Iterable[str]) -> Mapping[str, int]:
        with self.asked.open("a") as out:
            out.write(".")
        return RenamingPlace.sizes(self, names)


@pytest.fixture(params=["refuses", "moves into"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> RenamingPlace:
    connect = moving_into if request.param == "moves into" else pafs.LocalFileSystem
    return RenamingPlace("hdfs://somewhere/archive", str(tmp_path / "archive"), connect)


def files(place: RenamingPlace) -> list[str]:
    root = Path(place.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def made_old(place: RenamingPlace, names: list[str]) -> None:
    for name in names:
        path = Path(place.root, name)
        os.utime(path, (0, path.stat().st_mtime - SETTLED_S - 60))


def test_a_manifest_is_only_exchanged_for_the_one_that_was_read(place: RenamingPlace) -> None:
    assert_only_exchanged_for_what_was_read(place)
    assert len(files(place)) == 2  # of those that lost nothing is left


def test_runs_at_once_lose_nothing(
    spark: SparkSession, place: RenamingPlace, tmp_path: Path
) -> None:
    assert_two_runs_lose_nothing(spark, make_queue(tmp_path / "q", (50,) * 6), place, [50] * 6)
    assert_one_wins(place, rounds=20)


def test_a_directory_that_another_run_makes_while_it_is_listed_is_listed(tmp_path: Path) -> None:
    root = tmp_path / "archive"
    RenamingPlace("hdfs://somewhere/archive", str(root), moving_into).swap_manifest(b"first", None)
    root.rename(tmp_path / "elsewhere")
    system = made_while_listed(tmp_path / "elsewhere", root)
    assert RenamingPlace("hdfs://somewhere/archive", str(root), lambda: system).manifest() == (
        b"first",
        "1",
    )


def test_who_comes_when_his_number_was_removed_is_too_late(place: RenamingPlace) -> None:
    place.swap_manifest(b"first", None)
    version = place.manifest()[1]
    place.swap_manifest(b"second", version)
    place.swap_manifest(b"third", place.manifest()[1])
    old = [name for name in files(place) if "0003" not in name]
    place.remove(old)
    for late in (None, version):
        with pytest.raises(ArchiveChanged):
            place.swap_manifest(b"late", late)
        assert place.manifest() == (b"third", "3")


def test_a_draft_that_a_killed_run_has_left_goes_when_it_is_old(place: RenamingPlace) -> None:
    place.swap_manifest(b"first", None)
    place.swap_manifest(b"second", "1")
    system = place.connect()
    system.create_dir(f"{place.root}/{MANIFESTS}/draft-x.json")
    with system.open_output_stream(f"{place.root}/{MANIFESTS}/draft-x.json/x.json") as out:
        out.write(b"killed")
    assert place.manifest() == (b"second", "2")
    stale = [each.name for each in place.stored()]
    assert len(stale) == 2  # the draft, and the first one
    made_old(place, files(place))
    settled = [each.name for each in place.stored() if each.age_s >= SETTLED_S]
    for _ in range(2):  # as two runs do that look at once
        place.remove(settled)
    assert [each.name for each in place.stored()] == []
    assert place.manifest() == (b"second", "2")
    assert list(Path(place.root, MANIFESTS).iterdir()) == [Path(place.root, MANIFESTS, "00000002")]


def test_there_and_back(spark: SparkSession, place: RenamingPlace, tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "queue", (300, 200, 50))
    assert archive(spark, queue, place, verify=True)[1] == 2
    manifest, new = archive(spark, queue, place, with_open=True)
    assert (new, [cycle.count for cycle in manifest.cycles]) == (1, [300, 200, 50])
    restore(spark, place, tmp_path / "back")
    assert excerpts(tmp_path / "back") == excerpts(queue)
    place.opened(manifest.cycles[0].parts[0].path).close()
    Path(place.root, manifest.cycles[1].parts[0].path).write_bytes(b"PAR1 nonsense PAR1")
    found = verify_archive(spark, place)
    assert [text.partition(": ")[0] for text in found.damages] == [
        place.at(manifest.cycles[1].parts[0].path)
    ]
    assert left_over(place, manifest) == []  # what is young stays
    made_old(place, files(place))
    assert [each.name.split("/")[:2] for each in left_over(place, manifest)] == [
        [MANIFESTS, "00000001"],  # of nothing yet, before the first part
        [MANIFESTS, "00000002"],
    ]


def test_the_sizes_of_parts_are_asked_for_once(
    spark: SparkSession, place: RenamingPlace, tmp_path: Path
) -> None:
    """A run asks once even if it holds the queue: far away, each size costs a question."""
    queue = make_queue(tmp_path / "queue", (30, 20, 10))
    asked = tmp_path / "asked"
    counting = Counting(place.name, place.root, place.connect, asked)
    archive(spark, queue, counting, holds=True)
    assert asked.read_text() == "."  # of what was written
    archive(spark, queue, counting, holds=True)
    assert asked.read_text() == ".."


def test_a_hadoop_that_cannot_be_reached_is_told_in_one_line() -> None:
    place = place_of("hdfs://127.0.0.1:9/archive?user=someone")
    assert place.text == "hdfs://127.0.0.1:9/archive"
    with pytest.raises(BadArguments, match=r"expected Hadoop's libhdfs .* found: .+") as refused:
        place.manifest()
    assert "\n" not in str(refused.value)
    done = CliRunner().invoke(cli, ["spark", "archive", "gc", "hdfs://127.0.0.1:9/archive"])
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1
