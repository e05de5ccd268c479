"""Jobs on a real cluster, whose executors get this installation with the job."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.read.registration import registered_readers
from tests.spark.cluster import BARE, Cluster, cluster, namespaces_missing
from tests.spark.conftest import spark_missing
from tests.spark.queues import FIRST, excerpts, make_queue, payload
from tests.support.ports import reserved_port
from tests.support.requirements import require
from tests.support.samples import flip_byte

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    reason = spark_missing() or (None if BARE.exists() else f"no {BARE}")
    if reason is not None:
        require("spark", reason)
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def spark_command(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "cqrepl", "spark", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
def test_executors_that_see_other_directories_at_the_same_path_are_refused(tmp_path: Path) -> None:
    """Executors are refused that see another directory than the driver at the same path. Each
    worker here has a directory of its own where the driver has the copy: a sound one, while the
    driver's copy has an excerpt altered. Otherwise an audit would find all the same, and no other
    process would see what such a worker writes there."""
    reason = spark_missing() or namespaces_missing() or (None if BARE.exists() else f"no {BARE}")
    if reason is not None:
        require("spark", reason)
    here = tmp_path / "here"
    queue, table = make_queue(tmp_path / "queue", (500, 500)), tmp_path / "table.json"
    table.write_text("".join(f'{{"key": {n}, "text": "row {n}"}}\n' for n in range(100)))
    copy = Path(shutil.copytree(queue, here / "copy"))
    others = [Path(shutil.copytree(here, tmp_path / f"other{nth}")) for nth in range(2)]
    flip_byte(sorted(copy.glob("*.cq4"))[0], payload(300), 3)
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", [(other, here) for other in others]) as found:
        said = several(
            found,
            ["audit", str(queue), str(copy)],
            ["archive", str(copy), str(tmp_path / "archive")],
            ["rebuild", str(queue), str(copy), "--to", str(tmp_path / "new")],
            ["archive", str(queue), str(here / "archive"), "--hold"],
            ["preload", str(table), str(here / "filled"), "--format=json", "--key=key",
             "--partitions=3", "--payload=text"],
        )  # fmt: skip
    assert [line for line in said if line.startswith("exit")] == ["exit 2"] * 5
    told = [line for line in said if "found another one at the same path: " in line]
    assert len(told) == 4
    assert all(line.startswith("cqrepl spark ") and str(here) in line for line in told)
    assert [line for line in said if "executors see another directory at the archive's" in line]
    for archive in (tmp_path / "archive", here / "archive"):
        assert '"cycles": []' in (archive / "_manifest.json").read_text()
    assert list(tmp_path.glob("other*/archive/day=*/cycle=*/*.parquet"))
    table_store = TableStore(queue / FILE_NAME, writable=False)
    assert list(registered_readers(table_store).values()) == [FIRST]
    table_store.close()
    assert not list((here / "filled").glob("partition-*/*.cq4"))


@pytest.mark.long
def test_doctor_tells_what_executors_lack(running: Cluster) -> None:
    bare = spark_command("doctor", *running.options)
    assert bare.returncode == 1, bare.stdout + bare.stderr
    last = bare.stdout.splitlines()[-1]
    assert last.startswith("fail  workers   No module named 'cqrepl'")
    assert "fix: pip install 'cqrepl[spark]' on each host, or --ship" in last


# a session costs more than all that is done in it: one for several commands
SEVERAL = """
import json, sys
from cqrepl.cli.main import cli
from cqrepl.commands.sparkjob import session_settings
from cqrepl.spark.session import session
settings, commands = json.loads(sys.argv[1])
with session(session_settings(settings), "several"):
    for words in commands:
        try:
            cli(["spark", *words])
        except SystemExit as end:
            print("exit", end.code, flush=True)
"""


def several(running: Cluster, *commands: list[str]) -> list[str]:
    """The lines that the commands print, each run in turn on the cluster, and their exit codes."""
    conf = [word.removeprefix("--conf=") for word in running.options if "--conf=" in word]
    settings = {"master": running.master, "conf": conf, "ship": True, "verbose": False}
    words = [sys.executable, "-c", SEVERAL, json.dumps([settings, commands])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines() + done.stderr.splitlines()


def test_jobs_on_two_executors(running: Cluster, tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "queue", (1000, 200_000))
    copy = Path(shutil.copytree(queue, tmp_path / "copy"))
    flip_byte(sorted(copy.glob("*.cq4"))[1], payload(150_000), 3)
    paths, new = [str(queue), str(copy)], str(tmp_path / "new")
    said = several(
        running,
        ["audit", *paths],
        ["rebuild", *paths, "--to", new, "--prefer", str(queue)],
        ["doctor", f"--master={running.master}"],
    )
    assert [line for line in said if line.startswith("exit")] == ["exit 1", "exit 0", "exit 0"]
    assert any(f"{FIRST + (1 << 32) + 149_000:#x}  1 excerpt" in line for line in said)
    assert excerpts(tmp_path / "new") == excerpts(queue)
    workers = [line for line in said if line.startswith("ok    workers")]
    assert workers
    assert "cqrepl 0." in workers[0]
    for name in ("work1", "work2"):  # both had an executor with what was shipped
        assert list((running.folder / name).glob("app-*/*/cqrepl_shipped/cqrepl/__init__.py"))


def test_a_master_that_is_not_there(running: Cluster, tmp_path: Path) -> None:
    assert running
    queue = make_queue(tmp_path / "a", (5,))
    audit = ("audit", queue, queue, "--master")
    done = spark_command(*audit, f"spark://127.0.0.1:{reserved_port()}")
    assert done.returncode == 3
    assert done.stderr.endswith("cannot be reached: Connection refused\n")
    bad = spark_command(*audit, "spark://nowhere")
    assert bad.returncode == 2
    assert "spark://host:7077 expected" in bad.stderr
