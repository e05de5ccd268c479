"""Every way in which a connection ends, and which of them are in order."""

from collections.abc import Callable

import pytest

from cqrepl.protocol import (
    LocalProtocolError,
    QueueShape,
)
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.states import ConnectionState
from tests.support import peer

MIDDLE = "the connection ended in the middle of a document"
WITHOUT_GOODBYE = "the connection ended without a goodbye"
SHAPE = QueueShape(roll_cycle="FAST_DAILY", epoch=0, index_count=4096, index_spacing=256)


@pytest.mark.parametrize(
    ("ours", "before", "event"),
    [
        (lambda: peer.Ours(peer.Role.SINK), b"", WITHOUT_GOODBYE),
        (lambda: peer.Ours(peer.Role.SINK), peer.header(9), f"{MIDDLE} (4 bytes"),
        (peer.sink, b"", WITHOUT_GOODBYE),
        (peer.streaming_source, b"", WITHOUT_GOODBYE),
        (peer.receiving_sink, b"", None),
        (peer.receiving_sink, peer.excerpt(peer.index(0), b"x")[:-1], MIDDLE),
        (peer.receiving_sink, b"\x05", f"{MIDDLE} (1 bytes"),
    ],
    ids=["greeting", "in greeting", "sink", "source", "receiving", "in event", "in header"],
)
def test_the_end_of_the_stream_is_orderly_only_from_a_source_that_cannot_announce_it(
    ours: Callable[[], peer.Ours], before: bytes, event: str | None
) -> None:
    this = ours()
    this.receive(before)
    this.connection.receive_end(this.now)
    (end,) = this.events()
    if event is None:
        assert end == ev.OrderlyEnd()
    else:
        assert isinstance(end, ev.PeerLost)
        assert end.message.startswith(event)
    this.connection.receive_end(this.now)
    assert this.events() == []


def test_a_peer_with_the_extension_announces_its_end_or_is_lost() -> None:
    ours = peer.sink()
    shape = {"v": 1, "rollCycle": "FAST_DAILY", "epoch": 0, "indexCount": 1, "indexSpacing": 1}
    ours.receive(peer.register(peer.CSP, peer.CID, peer.sink_handler(cqrepl=shape)))
    ours.connection.answer_queue(peer.CID, 0, peer.SHIFT, SHAPE)
    ours.connection.receive_end(0)
    assert peer.kinds(ours.events()) == [ev.PeerLost]


def join(source_dials: bool = False) -> tuple[peer.Ours, peer.Ours, int]:
    """Two of ours that stream one queue."""
    one = peer.Ours(peer.Role.SOURCE, is_dialler=source_dials, cid_first=100)
    other = peer.Ours(peer.Role.SINK, is_dialler=not source_dials, cid_first=200)
    exchange(one, other)
    cid = one.connection.offer_queue(peer.NAME, 0, acknowledgement=True, source_id=7, shape=SHAPE)
    exchange(one, other)
    other.connection.answer_queue(cid, 0, peer.SHIFT, SHAPE)
    assert peer.kinds(exchange(one, other)[0]) == [ev.StreamingStarted]
    return one, other, cid


def exchange(one: peer.Ours, other: peer.Ours) -> tuple[list[ev.Event], list[ev.Event]]:
    """The events of each side, after both have sent everything that they had to say."""
    told: tuple[list[ev.Event], list[ev.Event]] = ([], [])
    while one.connection.has_data_to_send or other.connection.has_data_to_send:
        told[1].extend(other.receive(one.connection.data_to_send()))
        told[0].extend(one.receive(other.connection.data_to_send()))
    return told


@pytest.mark.parametrize("source_dials", [True, False])
@pytest.mark.parametrize("source_ends", [True, False])
def test_an_orderly_end_is_announced_to_a_peer_with_the_extension(
    source_dials: bool, source_ends: bool
) -> None:
    ours, theirs, cid = join(source_dials)
    if not source_ends:
        ours, theirs = theirs, ours
    ours.connection.end()
    assert ours.connection.state is ConnectionState.ENDING
    (last,) = peer.decoded(ours.connection.data_to_send())
    assert last["csp"] == "/"
    assert last["cid"] not in (cid, 100 if source_dials else 200)  # the heartbeat's
    assert last["handler"] == ("net.openhft.chronicle.network.cluster.TerminatorHandler", {})
    assert theirs.receive(peer.terminator(last["cid"])) == [ev.OrderlyEnd()]
    assert theirs.connection.state is ConnectionState.CLOSED
    ours.connection.receive_end(0)
    assert ours.events() == [ev.OrderlyEnd()]


def test_both_sides_may_end_at_once() -> None:
    one, other, _ = join()
    one.connection.end()
    other.connection.end()
    assert exchange(one, other) == ([ev.OrderlyEnd()], [ev.OrderlyEnd()])


def test_nothing_follows_the_announcement_of_the_end() -> None:
    one, _, cid = join()
    one.connection.end()
    one.connection.data_to_send()
    one.tick(20)
    assert one.said() == []
    with pytest.raises(LocalProtocolError):
        one.frame(Cid(cid), peer.batch(peer.index(0), b"x"))


def test_the_last_acknowledgement_goes_before_the_announcement() -> None:
    one, other, cid = join()
    frames = one.frame(Cid(cid), peer.batch(peer.index(0), b"x", b"y"))
    (event,) = other.receive(frames)
    assert isinstance(event, ev.AppendExcerpts)
    peer.crowd(other)
    other.connection.tell_stored(Cid(cid), peer.index(1), event.ns)
    other.connection.end()
    said = peer.decoded(other.connection.data_to_send())
    assert said[-2]["idx"] == peer.index(1)
    assert "handler" in said[-1]


def test_a_peer_without_the_extension_is_told_nothing_and_still_ends_in_order() -> None:
    ours = peer.streaming_source()
    ours.connection.end()
    assert ours.said() == []
    assert ours.connection.state is ConnectionState.ENDING
    assert peer.kinds(ours.receive(peer.acknowledgement(peer.index(0)))) == [ev.RegistrationRefused]
    ours.connection.receive_end(0)
    assert ours.events() == [ev.OrderlyEnd()]


@pytest.mark.parametrize("split", [False, True])
def test_a_terminator_of_an_older_java_ends_in_order(split: bool) -> None:
    """Its terminator has a comment behind the handler, as recorded in section 3.4. It ends in order
    in the split form too."""
    typed = peer.Typed("net.openhft.chronicle.network.cluster.TerminatorHandler", {})
    comment = b"\xbe\x24localIdentifier=1,remoteIdentifier=2"
    if split:
        last = peer.meta(csp="/", cid=292323922173575) + peer.meta(handler=typed)
    else:
        last = (
            bytes.fromhex(
                "82000040b90363737 0e12fb903636964a7875e8af7dd090100b90768616e646c6572b637".replace(
                    " ", ""
                )
            )
            + b"net.openhft.chronicle.network.cluster.TerminatorHandler"
            + bytes.fromhex("8200000000")
            + comment
        )
    ours = peer.sink()
    assert ours.receive(last, peer.heartbeat()) == [ev.OrderlyEnd()]
    assert ours.connection.state is ConnectionState.CLOSED
