"""Archives in an object store: as in a directory, but that the store compares and swaps."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from cqrepl.cli.main import cli
from cqrepl.console.exitcodes import BadArguments
from cqrepl.spark.jobs.archivefiles import read_manifest
from cqrepl.spark.jobs.archiveplace import SETTLED_S, ArchivePlace, place_of
from tests.spark.queues import excerpts, make_queue
from tests.support.manifestrace import (
    assert_one_wins,
    assert_only_exchanged_for_what_was_read,
    assert_two_runs_lose_nothing,
)
from tests.support.requirements import require
from tests.support.s3 import Store, store

try:
    import boto3
except ImportError:
    require("s3", "boto3 is not installed")

BUCKET = "archives"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, store(tmp_path_factory.mktemp("s3")) as found:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        client(found).create_bucket(Bucket=BUCKET)
        yield found


@pytest.fixture(scope="module")
def workers(spark: SparkSession, server: Store) -> Iterator[SparkSession]:
    """The session, whose workers know the credentials, too."""
    environment = spark.sparkContext.environment
    environment |= server.environment
    yield spark
    for name in server.environment:
        del environment[name]


def client(server: Store) -> Any:
    return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1")


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["spark", *map(str, words)])


def keep(place: ArchivePlace, name: str, data: bytes) -> None:
    with place.draft(name) as draft:
        draft.write_bytes(data)
        place.keep(draft, name)


def test_a_manifest_is_only_exchanged_for_the_one_that_was_read(server: Store) -> None:
    place = place_of(server.url(BUCKET, "swapped"))
    assert_only_exchanged_for_what_was_read(place, f'"{"0" * 32}"')


def test_runs_at_once_lose_nothing(workers: SparkSession, server: Store, tmp_path: Path) -> None:
    queue, url = make_queue(tmp_path / "queue", (50,) * 6), server.url(BUCKET, "c")
    assert_two_runs_lose_nothing(workers, queue, place_of(url), [50] * 6)
    found = run("archive", "verify", url)
    assert found.stdout == "6 of 6 parts read, 300 excerpts: all as archived\n"
    assert_one_wins(place_of(server.url(BUCKET, "raced")), rounds=10)


def test_there_and_back(workers: SparkSession, server: Store, tmp_path: Path) -> None:
    assert workers
    queue, url = make_queue(tmp_path / "queue", (300, 200, 50)), server.url(BUCKET, "a/queue")
    made = run("archive", queue, url, "--verify", "--hold")
    assert made.exit_code == 0, made.output
    assert "2 cycles, 2 of them new; 500 excerpts" in made.stdout
    again = run("archive", queue, url, "--with-open")
    assert "3 cycles, 1 of them new; 550 excerpts" in again.stdout, again.output
    assert run("restore", url, tmp_path / "back").exit_code == 0
    assert excerpts(tmp_path / "back") == excerpts(queue)
    held = CliRunner().invoke(cli, ["gc", str(queue), "--json"])
    assert "archive s3://archives/a/queue is at" in held.stdout
    other = run("archive", make_queue(tmp_path / "other", (100, 5)), url)
    assert other.exit_code == 1, other.output
    assert "expected 300 excerpts as archived, found 100 in the queue" in other.stderr


def test_damage_is_named_and_what_is_young_stays(
    workers: SparkSession, server: Store, tmp_path: Path
) -> None:
    assert workers
    queue, url = make_queue(tmp_path / "queue", (50, 50, 5)), server.url(BUCKET, "b")
    assert run("archive", queue, url).exit_code == 0
    place = place_of(url)
    first, second = [cycle.parts[0].path for cycle in read_manifest(place).cycles]
    keep(place, first, b"PAR1 nonsense PAR1")
    place.remove([second])
    found = run("archive", "verify", url)
    assert found.exit_code == 4, found.output
    *lines, summary = found.stdout.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [place.at(first), place.at(second)]
    assert summary == "2 of 2 parts read, 100 excerpts: 2 damaged"
    left = re.sub(r"part-.*", "part-of-another-run.parquet", first)
    keep(place, left, b"of a run that is busy")
    assert run("archive", "gc", url, "--apply").stdout.startswith("0 files")
    file = next(tmp_path.parent.glob(f"s3*/buckets/{BUCKET}/b/{left}"), None)
    if server.kind == "versitygw":  # the only one whose objects are files
        assert file is not None
        os.utime(file, (0, file.stat().st_mtime - SETTLED_S - 60))
        done = run("archive", "gc", url, "--apply")
        assert done.stdout.splitlines() == [f"{left}  21 B  deleted", "1 file, 21 B deleted"]


@pytest.mark.parametrize(
    "text",
    ["s3://bucket", "s3:///prefix", "hdfs://host", "hdfs:///a", "hdfs://h/a?color=red", "gs://b/a"],
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(
        BadArguments, match=r"expected a directory, hdfs://host:port/path, or s3://"
    ):
        place_of(text)
