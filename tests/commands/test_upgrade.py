"""Hosts of two versions meet: one after the other is upgraded, and goes back."""

import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
import trio

from cqrepl.queue import ExcerptBatch, Queue
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import SECONDS, copied, last_of
from tests.support.requirements import require
from tests.support.samples import fill

ROOT: Final = Path(__file__).parents[2]
OLDER: Final = "315c063b"  # a commit before TLS, rights and pages
IDS: Final = (1, 2, 3)
PACE_S: Final = 0.01
CLUSTER: Final = """\
cluster:
  context: {{heartbeatIntervalMs: 500, heartbeatTimeoutMs: 60000, basePath: "{folder}/$hostId"}}
  one: {{hostId: 1, connectUri: "127.0.0.1:{ports[0]}"}}
  two: {{hostId: 2, connectUri: "127.0.0.1:{ports[1]}"}}
  three: {{hostId: 3, connectUri: "127.0.0.1:{ports[2]}"}}
queues:
  q1: {{masterId: 1, acknowledge: true}}
  q2: {{masterId: 2, acknowledge: true}}
  q3: {{masterId: 3, acknowledge: true}}
"""
pytestmark = pytest.mark.long


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A folder with the packages of the older version."""
    packed = subprocess.run(
        ["git", "-C", ROOT, "archive", OLDER, "cqrepl", "wire"], capture_output=True
    )
    if packed.returncode:
        require("history", f"the commit {OLDER} is not here: {packed.stderr.decode().strip()}")
    folder = tmp_path / "older"
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Cluster:
    """Three hosts; each leads one queue, and has copies of the two others."""

    def __init__(self, folder: Path, older: Path) -> None:
        self._folder = folder
        self._older = older
        self._file = folder / "cluster.yaml"
        ports = [reserved_port() for _ in IDS]
        self._file.write_text(CLUSTER.format(folder=folder, ports=ports))
        for each in IDS:
            fill(self.path(each, each), "FAST_DAILY", {0: 20})
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.said = folder / "said"

    def path(self, host_id: int, leader: int) -> Path:
        return self._folder / str(host_id) / f"q{leader}"

    def start(self, host_id: int, *, is_older: bool) -> None:
        environ = dict(os.environ)
        if is_older:
            environ["PYTHONPATH"] = str(self._older)
        program = "import cqrepl; print(cqrepl.__file__, flush=True)"
        program += "; from cqrepl.__main__ import main; main()"
        words = ["run", "-c", self._file, "--host-id", host_id, "--run-dir", self._folder / "run"]
        command = [sys.executable, "-P", "-c", program, *map(str, words)]
        with self.said.open("ab") as said:
            self.running[host_id] = subprocess.Popen(command, stderr=said, stdout=said, env=environ)

    async def stop(self, host_id: int) -> None:
        process = self.running.pop(host_id)
        process.send_signal(signal.SIGTERM)
        code = await trio.to_thread.run_sync(lambda: process.wait(timeout=SECONDS))
        assert code == 0, self.said.read_text()

    async def settled(self) -> None:
        """Each copy has what its leader has now."""
        for leader in IDS:
            wanted = last_of(self.path(leader, leader))
            assert wanted is not None
            for host_id in IDS:
                with trio.fail_after(4 * SECONDS):
                    while (last_of(self.path(host_id, leader)) or 0) < wanted:
                        await trio.sleep(0.05)

    async def write(self) -> None:
        """Appends to each queue at its leader for ever, also while no host runs there."""
        while True:
            for each in IDS:
                path = self.path(each, each)
                with Queue.open_for_append(path) as queue:
                    last = queue.last_index()
                    assert last is not None
                    queue.appender().append_at(ExcerptBatch.of(last + 1, [b"%d" % last]))
                await trio.sleep(PACE_S)


@pytest.fixture
def cluster(tmp_path: Path, older: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, older)
    yield made
    for each in made.running.values():
        each.kill()
        each.wait()


async def test_hosts_are_upgraded_one_after_the_other_and_go_back(
    cluster: Cluster, older: Path
) -> None:
    """Under load. Each version leads and follows beside the other one."""
    for each in IDS:
        cluster.start(each, is_older=True)
    with trio.fail_after(500):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.write)
            await cluster.settled()
            for is_older in (False, True):
                for each in IDS:
                    await cluster.stop(each)
                    cluster.start(each, is_older=is_older)
                    await cluster.settled()
            nursery.cancel_scope.cancel()
        for leader in IDS:
            for host_id in set(IDS) - {leader}:
                await copied(cluster.path(leader, leader), cluster.path(host_id, leader))
    for each in IDS:
        await cluster.stop(each)
    said = cluster.said.read_text()
    lines = said.splitlines()
    assert lines.count(f"{older}/cqrepl/__init__.py") == 2 * len(IDS)
    assert lines.count(f"{ROOT}/cqrepl/__init__.py") == len(IDS)
    assert "stopped" not in said
    for leader in IDS:
        for host_id in set(IDS) - {leader}:
            assert_same(cluster.path(leader, leader), cluster.path(host_id, leader))
