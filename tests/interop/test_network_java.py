"""Our source and the sink on the real Chronicle-Network, and our sink and the source there.

Java dials only from the higher host id to the lower one, so the side that dials is host 2. A Java
source says nothing of its roll cycle. Between the two is the relay, which tells what was
said, and cuts where a test wants it.
"""

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl import HostSettings, NetSettings, ProtocolSettings, serve_host
from cqrepl.net.address import Address
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED
from tests.support.commands import Command, commands, until
from tests.support.copies import assert_same
from tests.support.java import JavaPeer, JavaQueue, require_java, run_network
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.ports import reserved_port
from tests.support.relay import Action, OnDocument, Relay, forward_all
from tests.support.samples import NOON_MS, read
from tests.support.tables import keys_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

NAME = "out-1"
ROLES = ("source", "sink")
COUNT = 400
BEATS = 22  # at two a second: longer than two time-outs
MORE = 20
HEARTBEAT = b"\xc9heartbeat"
IDX = b"\xc3idx"
EOS = b"\xc3eos"
RE = b"\xc2re\x82"
# a Java that starts on a busy machine may take longer than five seconds for its first words
PATIENT = "from cqrepl.protocol import connection; connection.GREETING_SECONDS = 300.0"
WIDE = {"interop.blockSize": 1 << 20}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQueue]:
    require_java()
    with JavaQueue(props=WIDE) as queue:
        yield queue


@dataclass(frozen=True, slots=True)
class Sides:
    """The role that is ours, and the role that dials."""

    ours: str
    dialler: str

    @property
    def java(self) -> str:
        return "sink" if self.ours == "source" else "source"

    def ids(self, role: str) -> tuple[int, int]:
        """Host id of a role, and of its peer."""
        return (2, 1) if role == self.dialler else (1, 2)


ALL_SIDES = [
    pytest.param(Sides(ours, dialler), id=f"our-{ours}-{dialler}-dials")
    for ours in ROLES
    for dialler in ROLES
]


@dataclass(kw_only=True)
class Meeting:
    """Our command and the Java peer, both started, and the relay between them."""

    queues: dict[str, Path]
    ours: Command
    peer: JavaPeer
    relay: Relay

    async def has_all(self, count: int) -> None:
        """Waits until the sink is as far as the source, which holds so many."""
        indexes = [index for index, _ in read(self.queues["source"])]
        assert len(indexes) == count
        await until(lambda: last_index(self.queues["sink"]) == indexes[-1])

    def said(self, role: str, name: bytes) -> list[bytes]:
        """Documents of one side that were passed on and contain these bytes."""
        return [raw for raw in self.relay.documents_from(role) if name in raw]

    def connections_with(self, role: str, name: bytes) -> list[int]:
        """The numbers of the connections of those documents, one for each document.

        The side that dials may do so once more when the other has ended, and says nothing then.
        """
        entries = self.relay.entries
        return [
            each.conn for each in entries if each.direction.startswith(role) and name in each.raw
        ]

    async def peer_succeeds(self) -> None:
        """Waits until what the Java peer expected has happened."""
        assert await trio.to_thread.run_sync(self.peer.exit_code, 300) == 0


def last_index(path: Path) -> int | None:
    """Of a queue that may be in the making."""
    try:
        with Queue.open(path) as queue:
            return queue.last_index()
    except QueueError:
        return None


@asynccontextmanager
async def meeting(
    sides: Sides,
    queues: dict[str, Path],
    arguments: Sequence[str],
    peer_options: Mapping[str, Any],
    *,
    ack: bool = True,
    on_document: OnDocument = forward_all,
) -> AsyncIterator[Meeting]:
    """Starts both sides with further options; what is left of them after the block is ended."""
    local_id, remote_id = sides.ids(sides.java)
    mine, other = sides.ids(sides.ours)
    words = [f"{NAME}={queues[sides.ours]}", "--host-id", mine, "--remote-id", other, *arguments]
    if sides.ours == "source" and not ack:
        words.append("--no-ack")
    java_port = reserved_port()
    relay = Relay(java_port, dialler=sides.dialler, on_document=on_document)
    async with commands(before=PATIENT) as start, relay.running():
        address = f"127.0.0.1:{relay.port}"
        is_dialled = sides.java != sides.dialler
        if not is_dialled:  # before Java dials: each of its tries is a connection
            ours = await start(sides.ours, *words, "--listen", "127.0.0.1:0")
            relay.target = ("127.0.0.1", await ours.port())
        with JavaPeer(
            role=sides.java,
            queue=queues[sides.java],
            name=NAME,
            ack=ack,
            local_id=local_id,
            remote_id=remote_id,
            listen=java_port if is_dialled else None,
            connect=None if is_dialled else address,
            **peer_options,
        ) as peer:
            if is_dialled:
                await trio.to_thread.run_sync(peer.wait_for, "STARTED")
                ours = await start(sides.ours, *words, "--connect", address)
            try:
                yield Meeting(queues=queues, ours=ours, peer=peer, relay=relay)
            except BaseException as error:
                error.add_note("\n".join(str(event) for event in peer.events()[-30:]))
                error.add_note(peer.stderr_text())
                raise


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty queue that the peer has made: it is older than `java` and opens no newer ones."""
    require_java()
    path = tmp_path_factory.mktemp("template") / "queue"
    run_network("QueueTool", queue=path)
    return path


def fill(java: JavaQueue, path: Path, count: int, *, days: int = 0) -> None:
    """Lets Java append, on some day after the first."""
    clock = {"interop.time": NOON_MS + days * 86_400_000}
    answer = java.call("append", path, "FAST_DAILY", count, "0-70", days, props=clock)
    assert answer.exit == 0, answer


@pytest.fixture
def queues(java: JavaQueue, template: Path, tmp_path: Path) -> dict[str, Path]:
    """A source with excerpts of two days; the sink is not there yet."""
    shutil.copytree(template, tmp_path / "source")
    fill(java, tmp_path / "source", COUNT // 2)
    fill(java, tmp_path / "source", COUNT - COUNT // 2, days=2)
    return {role: tmp_path / role for role in ROLES}


def assert_equal(java: JavaQueue, queues: dict[str, Path], count: int, *, ack: bool) -> None:
    """Java finds the same on both sides, and the marks of the source where they belong."""
    answer = java.call("verify", queues["sink"])
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == count
    source, sink = (java.call("dump", queues[role]).lines for role in ROLES)
    assert source[:-1] == sink[:-1]
    assert_same(queues["source"], queues["sink"])
    meta = {line["key"]: line["value"] for line in java.call("meta", queues["source"]).lines}
    last = int(source[-1]["lastIndex"], 16)
    assert meta["chronicle.lastIndexReplicated"] == last
    assert meta["chronicle.lastAcknowledgedIndexReplicated"] == (last if ack else -1)


async def stream_more(java: JavaQueue, met: Meeting, sides: Sides, *, ack: bool) -> None:
    """To the end with excerpts that are appended meanwhile, and both sides end in order.

    A Java source appends its own; it ends when all is acknowledged, else it is told to.
    """
    if sides.ours == "source":
        append = partial(java.call, "append", met.queues["source"], "FAST_DAILY", MORE, "0-70", 9)
        answer = await trio.to_thread.run_sync(append)
        assert answer.exit == 0, answer
        await met.peer_succeeds()
        await met.ours.terminate()
        return
    if ack:
        await met.peer_succeeds()
    else:
        await until(lambda: len(met.peer.events("SENT")) == COUNT + MORE)
        await met.has_all(COUNT + MORE)
        met.peer.stop()
    await met.ours.succeeds()


def ends(sides: Sides, *, ack: bool) -> tuple[list[str], dict[str, object]]:
    """Options of our command and of the peer for `stream_more`."""
    if sides.ours == "source":
        return [], {"expect_count": COUNT + MORE}
    until_acknowledged = {"expect_count": COUNT + MORE, "expect_ack": True} if ack else {}
    return ["--once"], {"append": MORE, **until_acknowledged}


@pytest.mark.parametrize(
    ("sides", "ack"),
    [
        *(pytest.param(*each.values, True, id=f"{each.id}-ack") for each in ALL_SIDES),
        pytest.param(Sides("source", "sink"), False, id="our-source-no-ack"),
        pytest.param(Sides("sink", "sink"), False, id="our-sink-no-ack"),
    ],
)
async def test_stream(java: JavaQueue, queues: dict[str, Path], sides: Sides, ack: bool) -> None:
    async with meeting(sides, queues, *ends(sides, ack=ack), ack=ack) as met:
        await stream_more(java, met, sides, ack=ack)
    assert bool(met.said("sink", IDX)) == ack
    assert set(met.connections_with("source", RE)) == {1}
    assert_equal(java, queues, COUNT + MORE, ack=ack)


@pytest.mark.parametrize("sides", [Sides("source", "sink"), Sides("sink", "source")])
async def test_a_dialler_that_asks_for_binary(
    java: JavaQueue, queues: dict[str, Path], sides: Sides
) -> None:
    """The wire type is the dialler's choice; the acceptor answers with the same."""
    words, options = ends(sides, ack=True)
    async with meeting(sides, queues, words, options | {"wire_type": "BINARY"}) as met:
        await stream_more(java, met, sides, ack=True)
    for role in ROLES:
        assert met.connections_with(role, b"\xe6BINARY").count(1) == 1
    assert_equal(java, queues, COUNT + MORE, ack=True)


async def test_a_java_source_says_no_roll_cycle(java: JavaQueue, tmp_path: Path) -> None:
    """So the sink makes its queue as it was told to."""
    queues = {role: tmp_path / role for role in ROLES}
    words = ["--once", "--roll-cycle", "FAST_HOURLY"]
    options = {
        "roll_cycle": "FAST_HOURLY",
        "append": MORE,
        "expect_count": MORE,
        "expect_ack": True,
    }
    async with meeting(Sides("sink", "sink"), queues, words, options) as met:
        await met.peer_succeeds()
        await met.ours.succeeds()
    for path in queues.values():
        assert java.call("dump", path).lines[-1]["rollCycle"] == "FAST_HOURLY"
    assert_equal(java, queues, MORE, ack=True)


async def test_a_java_source_of_another_roll_cycle(java: JavaQueue, tmp_path: Path) -> None:
    """Read as one of ours, its first index would be of the year 3300 or so."""
    queues = {role: tmp_path / role for role in ROLES}
    options = {"roll_cycle": "FAST_HOURLY", "append": MORE}
    async with meeting(Sides("sink", "sink"), queues, ["--once"], options) as met:
        assert await met.ours.exit_code() == 5
    assert "FAST_HOURLY (" in met.ours.said
    assert "under FAST_DAILY" in met.ours.said
    assert not list(queues["sink"].glob("*.cq4"))


@pytest.mark.parametrize("sides", ALL_SIDES)
async def test_back_copy(
    java: JavaQueue, template: Path, queues: dict[str, Path], sides: Sides
) -> None:
    """The source has lost what it had of the second day, and a part of the first."""
    queues["source"].rename(queues["sink"])
    shutil.copytree(template, queues["source"])
    fill(java, queues["source"], COUNT // 4)
    words, settings = ends(sides, ack=True)
    if sides.ours == "source":  # Java's sink cannot prove that it has what we have before that
        words = [*words, "--accept-returns", "1,2"]
    async with meeting(sides, queues, words, settings) as met:
        if sides.ours == "source":  # Java's own waits for the end of the back copy
            await until(lambda: last_index(queues["source"]) == last_index(queues["sink"]))
            await until(lambda: locked_by(queues["source"]) is None)
        await stream_more(java, met, sides, ack=True)
    assert len(met.said("sink", RE)) == COUNT - COUNT // 4
    assert len(met.said("source", RE)) == MORE
    assert_equal(java, queues, COUNT + MORE, ack=True)


def locked_by(path: Path) -> int | None:
    """The process that keeps plain writers out of a queue; None for none."""
    keys = keys_of(path)
    value = keys[APPEND_LOCK_KEY.lower()]
    return None if value == UNLOCKED else value


@pytest.mark.parametrize("sides", ALL_SIDES)
async def test_reconnect(java: JavaQueue, queues: dict[str, Path], sides: Sides) -> None:
    """Cut behind a document, and inside one of the next connection; each time it goes on."""
    cuts = {201: Action.CUT, 401: Action.CUT_INSIDE}

    def on_document(_conn: int, sender: str, number: int, _raw: bytes) -> Action:
        return cuts.get(number, Action.FORWARD) if sender == "source" else Action.FORWARD

    # without --once: a cut behind a document looks like the end of a Java source
    words = ["--until-caught-up"] if sides.ours == "source" else []
    options = {"expect_count": COUNT, "expect_ack": sides.java == "source"}
    async with meeting(sides, queues, words, options, on_document=on_document) as met:
        await met.peer_succeeds()
        if sides.ours == "source":
            await met.ours.succeeds()
        else:
            await met.ours.terminate()
    ends_of_copies = met.connections_with("sink", EOS)
    assert len(ends_of_copies) >= 3
    assert len(ends_of_copies) == len(set(ends_of_copies))
    assert_equal(java, queues, COUNT, ack=True)


async def test_heartbeats(java: JavaQueue, queues: dict[str, Path]) -> None:
    """Longer than the time-out nothing but heartbeats: neither side takes the other for dead,
    whichever dials."""
    async with trio.open_nursery() as nursery:
        for ours in ROLES:
            for dialler in ROLES:
                folder = queues["source"].with_name(f"{ours}-{dialler}")
                shutil.copytree(queues["source"], folder / "source")
                nursery.start_soon(beat, Sides(ours, dialler), folder)


async def beat(sides: Sides, folder: Path) -> None:
    words = ["--heartbeat-interval", "500ms", "--heartbeat-timeout", "5s"]
    options = {"heartbeat_interval_ms": 500, "heartbeat_timeout_ms": 5000}
    async with meeting(sides, {role: folder / role for role in ROLES}, words, options) as met:
        await until(lambda: min(len(met.said(role, HEARTBEAT)) for role in ROLES) >= BEATS)
        await met.has_all(COUNT)
        assert not met.peer.events("DISCONNECTED")
        assert "disconnected" not in met.ours.said
        assert met.relay.connections == 1
        await met.ours.terminate()


@pytest.mark.parametrize("java_dials", [True, False])
@pytest.mark.parametrize("java_role", ROLES)
async def test_queues_both_ways_on_one_connection(
    java: JavaQueue, template: Path, tmp_path: Path, java_role: str, java_dials: bool
) -> None:
    """Java streams one queue and takes in another, over the one connection there is."""
    for name in ("ours", "javas"):
        shutil.copytree(template, tmp_path / name)
        fill(java, tmp_path / name, COUNT)
    ours, javas = tmp_path / "ours", tmp_path / "javas"
    taken, copy = tmp_path / "taken", tmp_path / "copy"  # of ours by Java, of Java's by us
    shutil.copytree(template, taken)
    first, back = (javas, taken) if java_role == "source" else (taken, javas)
    names = {"name": "out-1", "back_name": "back-1"}
    our_name, java_name = ("back-1", "out-1") if java_role == "source" else ("out-1", "back-1")
    java_port = reserved_port()
    local_id, remote_id = (2, 1) if java_dials else (1, 2)
    net = NetSettings(
        listen=Address("127.0.0.1", 0) if java_dials else None,
        connect=None if java_dials else Address("127.0.0.1", java_port),
    )
    protocol = ProtocolSettings(host_id=remote_id, remote_ids=frozenset({local_id}))
    async with serve_host(
        HostSettings(net=net, protocol=protocol), sources={our_name: ours}, sinks={java_name: copy}
    ) as host:
        with JavaPeer(
            role=java_role,
            queue=first,
            back_queue=back,
            ack=True,
            local_id=local_id,
            remote_id=remote_id,
            listen=None if java_dials else java_port,
            connect=f"127.0.0.1:{host.port}" if java_dials else None,
            run_ms=600_000,
            expect_count=10 * COUNT,
            quiet=True,
            **names,
        ):
            with trio.fail_after(300):
                while last_index(javas) != last_index(copy) or last_index(ours) != last_index(
                    taken
                ):
                    await trio.sleep(0.1)
                await host.source.wait_acked(last_index(ours) or 0)
            assert len(host.endpoint.sessions) == 1
        assert not host.source.stops + host.sink.stops
    for original, replica in ((ours, taken), (javas, copy)):
        answer = java.call("verify", replica)
        assert answer.exit == 0, answer
        assert_same(original, replica)
