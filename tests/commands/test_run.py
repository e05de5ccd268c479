"""`cqrepl run`: clusters of real processes, each started as a user starts it."""

import re
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.epochfile import store_epochs
from cqrepl.queue.format.epochs import Epoch, Epochs
from cqrepl.queue.format.index import Index
from tests.support.clusters import NEWER_PAGE, OLDER_PAGE, THIRD_HOST
from tests.support.commands import Command, Start, commands, until
from tests.support.copies import assert_same
from tests.support.invoke import Invoke
from tests.support.ports import reserved_port
from tests.support.replicas import last_of
from tests.support.samples import NOON_MS, payloads

HOSTS = (1, 2, 3)
CONNECTED = re.compile(r"host \d at [0-9.:]+: connected")


class Cluster:
    """Three hosts on this machine, each in a working directory of its own."""

    def __init__(self, folder: Path, text: str, masters: dict[str, int]) -> None:
        self.masters = masters
        self.running: dict[int, Command] = {}
        self._folder = folder
        self._file = folder / "cluster.yaml"
        self._file.write_text(text)
        self._ports = {each: reserved_port() for each in HOSTS}
        for each in HOSTS:
            (folder / str(each)).mkdir()

    async def start(self, start: Start, *hosts: int) -> None:
        """Starts hosts, and waits until each of them listens."""
        names = [f"--address=host.port{each}=127.0.0.1:{self._ports[each]}" for each in HOSTS]
        for each in hosts:
            self.running[each] = await start(
                "run", "-c", self._file, "--host-id", each, *names, cwd=self._folder / str(each)
            )
        for each in hosts:
            assert await self.running[each].port() == self._ports[each]

    async def end(self, host: int) -> None:
        """Ends a host in order."""
        await self.running.pop(host).terminate()

    def at(self, host: int, path: str) -> Path:
        """Below the working directory of a host."""
        return self._folder / str(host) / path


def append(path: Path, day: int) -> None:
    """Append a day's excerpts, as an application of the master's host does."""
    with Queue.open_for_append(path) as queue:
        queue.appender().append(payloads(50, seed=day), NOON_MS + day * 86_400_000)


async def has_all(original: Path, copy: Path) -> None:
    """Waits until a copy holds what the original does."""
    last = last_of(original)
    assert last is not None
    await until(lambda: last_of(copy) == last)
    assert_same(original, copy)


@pytest.mark.parametrize(
    ("page", "source", "sink"),
    [
        (OLDER_PAGE, "replica/source/queue1", "replica/sink/queue1"),
        (NEWER_PAGE, "replica/1/queue1", "replica/{host}/queue1"),
    ],
    ids=["older", "newer"],
)
async def test_chronicles_documentation_on_three_hosts(
    tmp_path: Path, page: str, source: str, sink: str
) -> None:
    """The page as it stands, with a third host where it has dots for it."""
    cluster = Cluster(tmp_path, page.replace("...", THIRD_HOST), {"queue1": 1})
    async with commands() as start:
        await cluster.start(start, *HOSTS)
        original = cluster.at(1, source)
        for day in (0, 1):
            append(original, day)
            for host in (2, 3):
                await has_all(original, cluster.at(host, sink.format(host=host)))
        for host in HOSTS:
            await cluster.end(host)


def mesh(folder: Path) -> Cluster:
    text = OLDER_PAGE.replace("...", THIRD_HOST)
    text = text.replace("300000", "500").replace("500000", "5000")
    queues = ", ".join(f"q{each}: {{masterId: {each}, acknowledge: true}}" for each in HOSTS)
    text = text[: text.index("queues: {")] + f"queues: {{{queues}}}\n}}\n"
    return Cluster(folder, text, {f"q{each}": each for each in HOSTS})


async def all_copied(cluster: Cluster) -> None:
    for name, master in cluster.masters.items():
        original = cluster.at(master, f"replica/source/{name}")
        for host in HOSTS:
            if host != master:
                await has_all(original, cluster.at(host, f"replica/sink/{name}"))


async def test_a_mesh_survives_a_restart_of_each_host(tmp_path: Path) -> None:
    """Half of them end in order, the others by kill -9; applications go on all the time."""
    cluster = mesh(tmp_path)
    async with commands() as start:
        await cluster.start(start, *HOSTS)
        for command in cluster.running.values():
            await until(partial(has_two_peers, command))  # one connection between any two
        for day, host in enumerate((None, *HOSTS)):
            if host == 2:
                await cluster.running.pop(host).kill()
            elif host is not None:
                await cluster.end(host)
            for name, master in cluster.masters.items():
                append(cluster.at(master, f"replica/source/{name}"), day)
            if host is not None:
                await cluster.start(start, host)
            await all_copied(cluster)
        for host in HOSTS:
            said = cluster.running[host].said
            assert "Traceback" not in said
            await cluster.end(host)


async def test_the_middle_of_a_chain_is_killed(tmp_path: Path) -> None:
    """Host 3 takes what host 2 passes on, whatever becomes of that one."""
    text = OLDER_PAGE.replace("...", THIRD_HOST).replace("300000", "500")
    text = text.replace("500000", "5000").rstrip().removesuffix("}")
    text = text.replace("acknowledge: false", "acknowledge: true")
    text += ", cqrepl: {routes: {queue1: {3: 2}}} }"
    cluster = Cluster(tmp_path, text, {"queue1": 1})
    async with commands() as start:
        await cluster.start(start, *HOSTS)
        original = cluster.at(1, "replica/source/queue1")
        for day in range(3):
            append(original, day)
            await has_all(original, cluster.at(3, "replica/sink/queue1"))
            await cluster.running.pop(2).kill()
            append(original, day + 10)
            await cluster.start(start, 2)
            await has_all(original, cluster.at(3, "replica/sink/queue1"))
        for host in HOSTS:
            assert "Traceback" not in cluster.running[host].said
            await cluster.end(host)


def test_routes_of_a_queue_that_has_had_a_promotion(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host 1 was made its leader, and the file would have host 3 take it from host 2."""
    path, page = tmp_path / "cluster.yaml", OLDER_PAGE.replace("...", THIRD_HOST)
    path.write_text(page.rstrip().removesuffix("}") + ", cqrepl: {routes: {queue1: {3: 2}}} }")
    queue = tmp_path / "replica/source/queue1"
    with Queue.open_for_append(queue, create="FAST_DAILY") as made:
        made.append(b"1", now_ms=NOON_MS)
    store_epochs(queue, Epochs(promised=1, promised_to=1, history=(Epoch(1, 1, Index(0)),)))
    names = [f"--address=host.port{each}=127.0.0.1:{reserved_port()}" for each in HOSTS]
    monkeypatch.chdir(tmp_path)
    result = invoke("run", "-c", path, "--host-id", "1", *names)
    assert result.exit_code == 5, result.output
    assert "take 'queue1' out of 'routes'" in result.stderr
    assert result.stderr.count("\n") == 1


def has_two_peers(command: Command) -> bool:
    return len(CONNECTED.findall(command.said)) == 2


def test_wrong_use(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(OLDER_PAGE)
    assert "Missing option '--config'" in invoke("run").stderr
    result = invoke("run", "-c", path)
    assert (result.exit_code, "Missing option '--host-id'" in result.stderr) == (2, True)
    result = invoke("run", "-c", path, "--host-id", "1")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"cqrepl run: {path}:12:19: HOST:PORT, or a name")
    assert result.stderr.count("\n") == 1
    monkeypatch.setenv("CQREPL_CONFIG", str(tmp_path / "other"))
    monkeypatch.setenv("CQREPL_HOST_ID", "1")
    says = f"cqrepl run: {tmp_path}/other: cannot be read: No such file or directory\n"
    assert invoke("run").stderr == says


def test_a_host_that_is_a_member_of_no_queue(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    hosts = "".join(
        f'  host{each}: {{hostId: {each}, connectUri: "127.0.0.1:900{each}"}}\n' for each in HOSTS
    )
    path.write_text(
        f"cluster:\n  context: {{basePath: data/$hostId}}\n{hosts}"
        "cqrepl:\n  cluster: {groups: {count: 1, members: [1]}}\n"
    )
    result = invoke("run", "-c", path, "--host-id", "3")
    assert result.exit_code == 2
    says = f"cqrepl run: {path}: expected a queue that host 3 is a member of, got none\n"
    assert result.stderr == says
