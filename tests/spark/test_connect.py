"""A real server of Spark Connect, and clients of it, which have no Java of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import wire
from cqrepl.queue import Queue
from tests.spark.cluster import PATIENCE_S, connect_server
from tests.spark.conftest import spark_missing
from tests.spark.queues import excerpts, make_queue
from tests.support.requirements import require

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that runs for the tests of this module."""
    reason = spark_missing()
    if reason is None and find_spec("grpc") is None:
        reason = "what pyspark[connect] asks for is not installed"
    if reason is not None:
        require("spark", reason)
    with connect_server(tmp_path_factory.mktemp("server")) as found:
        yield found


def told(url: str, *words: str | Path) -> list[Any]:
    """The results that a client prints of some things that it does with queues."""
    client = [sys.executable, "-W", "ignore", "-m", "tests.spark.connecting", url]
    environment = {key: value for key, value in os.environ.items() if "SPARK" not in key}
    tree = Path(__file__).parents[2]
    done = subprocess.run(
        [*client, *map(str, words)], env=environment, cwd=tree, capture_output=True, text=True,
        check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    stacks = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
    assert done.returncode == 0, "\n".join(stacks[-40:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_registered_session_reads_a_queue(url: str, tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "orders", (30, 5))
    assert told(url, "read", queue) == [{"frame": 35, "range": 35}]


def test_fields_of_documents(url: str, tmp_path: Path) -> None:
    bodies = [wire.encode({"qty": number}) for number in range(9)]
    with Queue.open(tmp_path / "orders", create="FAST_DAILY") as queue:
        queue.append_many(bodies)
    wanted = {"source": [*range(9)], "function": [*range(9)]}
    (found,) = told(url, "typed", tmp_path / "orders")
    assert found == wanted | {"again": sorted(each.hex() for each in bodies)}


@pytest.mark.long
def test_a_session_writes_streams_and_runs_each_job(url: str, tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "orders", (30, 5))
    streamed, found = told(url, "write", queue, "jobs", queue)
    assert streamed == 35
    assert found.pop("lag").startswith("expected a log of acknowledgements, of 40 bytes each")
    assert found == {
        "same": True, "archived": 30, "restored": 1, "rebuilt": 35, "preloaded": 20,
        "session": True,
    }  # fmt: skip
    assert excerpts(tmp_path / "copy") == excerpts(queue)
    assert excerpts(tmp_path / "rebuilt") == excerpts(queue)
    assert excerpts(tmp_path / "restored") == excerpts(queue)[:30]


def test_no_statement_deletes_a_queue(url: str, tmp_path: Path) -> None:
    """A table without a path of its own is Spark's, which deletes its directory with it."""
    queue = make_queue(tmp_path / "orders", (30, 5))
    held = excerpts(queue)
    [found] = told(url, "tables", queue)
    assert excerpts(queue) == held
    for error in found["unregistered"]:
        assert "Failed to find the data source: chronicle" in error
    for statement, error in found["said"].items():
        makes = "other" in statement or statement == "createTable"
        wanted = "option path: expected the directory of a queue" if makes else "was made with a"
        if "EXECUTE" in statement and "BEGIN" in statement:
            wanted = "EXECUTE IMMEDIATE: expected it outside of a script"
        assert wanted in error, statement
    assert (found["count"], found["immediate"], found["script"]) == (35, [[3]], [[4]])
