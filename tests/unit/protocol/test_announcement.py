"""Two sides announce themselves, in every pairing of versions, and the names of their queues."""

from typing import Any

import pytest

from cqrepl.protocol import RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.announcement import CAPABILITIES_MAX
from cqrepl.protocol.messages.queuenames import QueueNames
from cqrepl.protocol.queuelist import NAMES_MAX
from tests.support import peer

QUEUES_CID = 770
ALL = frozenset({"queues", "ended"})


def names(*texts: str) -> list[str]:
    return list(texts)


# what a peer of each version puts into its UberHandler; None: no block at all
VERSIONS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "0": {"v": 0},
    "1": {"v": 1, "capabilities": names("ended", "queues"), "role": "host"},
    "99": {
        "later": {"x": 1},
        "capabilities": names("ended", "fly", "queues", "swim"),
        "role": "emperor",
        "v": 99,
        "z": 2,
    },
}
GARBAGE: dict[str, object] = {
    "a number": 5,
    "a text": "cqrepl",
    "nothing": None,
    "bytes": peer.block(b"\xe5\x00\xff\xff"),
    "half a field": peer.block(b"\xc1"),
    "texts for numbers": {"v": "one", "capabilities": "all", "role": 7, "name": 8},
    "numbers for texts": {"v": -1, "capabilities": peer.block(b"\x01\x02"), "role": 15},
    "a typed block": peer.Typed("Something", {"v": 1}),
}


@pytest.mark.parametrize("is_dialler", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_met(version: str, is_dialler: bool) -> None:
    more = VERSIONS[version]
    ours = peer.Ours(peer.Role.SINK, is_dialler=is_dialler)
    first = peer.decoded(ours.connection.data_to_send())
    block_of_peer = {} if more is None else {"cqrepl": more}
    beat = b"" if is_dialler else peer.heartbeats()
    assert ours.receive(peer.uber(peer.SOURCE_ID, peer.SINK_ID, **block_of_peer), beat) == [
        ev.Connected(remote_id=peer.SOURCE_ID)
    ]
    (greeting,) = [each for each in first + ours.said() if "Uber" in str(each.get("handler"))]
    assert ("cqrepl" in greeting["handler"][1]) == (is_dialler or more is not None)
    wanted = frozenset() if more is None else frozenset(more.get("capabilities", ()))
    assert ours.connection.link.capabilities == wanted
    assert ours.connection.names_queues == (version in ("1", "99"))


@pytest.mark.parametrize("is_dialler", [True, False])
@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_in_the_block_closes_nothing(what: str, is_dialler: bool) -> None:
    ours = peer.Ours(peer.Role.SINK, is_dialler=is_dialler)
    events = ours.receive(peer.uber(peer.SOURCE_ID, peer.SINK_ID, cqrepl=GARBAGE[what]))
    assert events == [ev.Connected(remote_id=peer.SOURCE_ID)]
    assert not ours.connection.names_queues
    ours.tick(1)


def test_the_block_stands_last() -> None:
    ours = peer.Ours(peer.Role.SOURCE, is_dialler=True)
    (greeting, _) = ours.said()
    body = greeting["handler"][1]
    assert list(body)[-1] == "cqrepl"
    assert body["cqrepl"] == {
        "v": 1,
        "capabilities": [
            *(
                "ended",
                "epochs",
                "identity",
                "levels",
                "lineage",
                "members",
                "merged",
                "queues",
                "runs",
                "stops",
                "tailers",
            ),
        ],
        "role": "host",
    }


def test_capabilities_beyond_a_limit_do_not_count() -> None:
    many = [f"c{nth:04}" for nth in range(2 * CAPABILITIES_MAX)]
    ours = peer.Ours(peer.Role.SINK)
    ours.receive(peer.uber(peer.SOURCE_ID, peer.SINK_ID, cqrepl={"v": 1, "capabilities": many}))
    assert ours.connection.link.capabilities == frozenset(many[:CAPABILITIES_MAX])


# why a host is not let in

SAME_IDS = "both sides have host id 2"


def test_a_dialler_with_a_block_hears_why_it_is_refused() -> None:
    ours = peer.Ours(peer.Role.SINK)
    with pytest.raises(RemoteProtocolError, match=SAME_IDS):
        ours.receive(peer.uber(peer.SINK_ID, peer.SOURCE_ID, cqrepl=VERSIONS["1"]))
    (greeting,) = ours.said()
    assert greeting["handler"][1]["cqrepl"]["refused"] == SAME_IDS


def test_one_without_a_block_hears_nothing() -> None:
    ours = peer.Ours(peer.Role.SINK)
    with pytest.raises(RemoteProtocolError, match=SAME_IDS):
        ours.receive(peer.uber(peer.SINK_ID, peer.SOURCE_ID))
    assert ours.said() == []


@pytest.mark.parametrize("is_dialler", [True, False])
def test_only_an_acceptor_refuses(is_dialler: bool) -> None:
    ours = peer.Ours(peer.Role.SINK, is_dialler=is_dialler)
    greeting = peer.uber(peer.SOURCE_ID, peer.SINK_ID, cqrepl={"v": 1, "refused": "two\nof you"})
    if is_dialler:
        with pytest.raises(RemoteProtocolError, match=r"the peer says: two\?of you"):
            ours.receive(greeting)
    else:
        assert ours.receive(greeting) == [ev.Connected(remote_id=peer.SOURCE_ID)]


# names of queues


def announced(role: peer.Role, **more: Any) -> peer.Ours:
    """Our side, and a peer that names its queues."""
    ours = peer.Ours(role, **more)
    remote, local = (
        (peer.SINK_ID, peer.SOURCE_ID)
        if role is peer.Role.SOURCE
        else (peer.SOURCE_ID, peer.SINK_ID)
    )
    ours.receive(peer.uber(remote, local, cqrepl=VERSIONS["1"]), peer.heartbeats())
    ours.said()
    return ours


def named(name: str, **more: object) -> bytes:
    return peer.select(QUEUES_CID) + peer.data(**{name: more})


def registered() -> bytes:
    return peer.register("/cqrepl/queues", QUEUES_CID, peer.Typed("QueuesHandler", {}))


def test_the_first_list_comes_in_pages() -> None:
    ours = announced(peer.Role.SOURCE)
    ours.connection.name_queues(QueueNames())
    first = named("queues", source=names("x"), sink=names("a", "b"), more=True)
    assert ours.receive(registered(), first) == []
    assert ours.connection.peer_queues is None
    events = ours.receive(named("queues", sink=names("c"), source=peer.block(b"")))
    assert events == [ev.QueuesNamed(sinks=frozenset("abc"))]
    wanted = QueueNames(sources=frozenset("x"), sinks=frozenset("abc"))
    assert ours.connection.peer_queues == wanted


def test_changes_are_heard_of() -> None:
    ours = announced(peer.Role.SOURCE)
    ours.receive(registered(), named("queues", sink=names("a", "b"), later={"x": 1}))
    assert ours.receive(named("-", sink=names("a"))) == []
    events = ours.receive(named("+", sink=names("c"), source=names("d")))
    assert events == [ev.QueuesNamed(sinks=frozenset("c"))]
    assert ours.receive(named("+", sink=names("x" * 129))) == []
    assert ours.connection.peer_queues == QueueNames(sources=frozenset("d"), sinks=frozenset("bc"))


def test_names_beyond_a_limit_are_refused() -> None:
    ours = announced(peer.Role.SOURCE)
    ours.receive(registered(), named("queues"))
    pages = NAMES_MAX // 1000 + 1
    events = [
        event
        for page in range(pages)
        for event in ours.receive(named("+", sink=[f"{page}-{nth}" for nth in range(1000)]))
    ]
    refused = [each for each in events if isinstance(each, ev.RegistrationRefused)]
    assert [each.message for each in refused] == [f"more than {NAMES_MAX} names of queues"]


def test_a_second_list_is_refused() -> None:
    ours = announced(peer.Role.SOURCE)
    ours.receive(registered())
    (refused,) = ours.receive(peer.register("/cqrepl/queues", 780, peer.Typed("QueuesHandler", {})))
    assert isinstance(refused, ev.RegistrationRefused)
    assert refused.message == "a second list of queues"


def test_many_names_go_out_in_documents_of_at_most_64_kib() -> None:
    sink = peer.Ours(peer.Role.SINK, is_dialler=True)
    source = peer.Ours(peer.Role.SOURCE)
    every = frozenset(f"{nth:05}".ljust(128, "x") for nth in range(3000))
    source.receive(sink.connection.data_to_send())
    events = sink.receive(source.connection.data_to_send())
    assert events == [ev.Connected(remote_id=peer.SOURCE_ID)]
    sink.connection.name_queues(QueueNames(sinks=every))
    source.connection.name_queues(QueueNames(sources=every))
    seen = []
    while stream := sink.connection.data_to_send():
        assert len(stream) < 256 * 1024
        seen += source.receive(stream)
    assert seen == [ev.QueuesNamed(sinks=every)]
    assert source.connection.peer_queues == QueueNames(sinks=every)
    gone, come = frozenset(sorted(every)[:5]), frozenset({"new"})
    sink.connection.change_queues(added=QueueNames(sinks=come), removed=QueueNames(sinks=gone))
    source.receive(sink.connection.data_to_send())
    assert source.connection.peer_queues == QueueNames(sinks=every - gone | come)


def test_an_old_peer_is_told_nothing_of_queues() -> None:
    ours = peer.Ours(peer.Role.SINK).greeted()
    ours.connection.change_queues(added=QueueNames(sinks=frozenset("a")), removed=QueueNames())
    assert ours.said() == []
    (refused,) = ours.receive(registered())
    assert isinstance(refused, ev.RegistrationRefused)
    assert refused.message == "a QueuesHandler from a peer that has not announced queues"


def test_queues_that_a_sink_does_not_take_are_no_offence() -> None:
    """Java's sources offer all that they have; more than a hundred closed the connection once."""
    ours = peer.Ours(peer.Role.SINK).greeted()
    for nth in range(300):
        offer = peer.Typed("SinkReplicationHandler", {"queueName": f"other{nth}"})
        (refused,) = ours.receive(peer.register(f"/replication/other{nth}/2", 1000 + nth, offer))
        assert isinstance(refused, ev.RegistrationRefused)
        assert refused.message == f"unknown queue 'other{nth}'"
    assert ours.receive(peer.meta(csp="/x", cid=1)) == []
