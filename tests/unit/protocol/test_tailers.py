"""Named tailers on the wire: what a source says of them, and what a sink takes."""

from typing import Any

import pytest

from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.tailers import read_tailer, write_tailer
from cqrepl.protocol.outbox import CROWDED_BYTES
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.format.tailerposition import TailerPosition
from tests.support import peer
from tests.support.peer import CID, CSP, NAME, SHIFT, SINK_ID, SOURCE_ID, Ours, Role, data, select
from wire import Reader
from wire.grammar import structures
from wire.header import HEADER_BYTES

TELLS: dict[str, Any] = {"v": 1, "capabilities": ["tailers"], "role": "host"}
ANNOUNCED = pytest.mark.parametrize("announced", [None, {"v": 1, "capabilities": ["levels"]}])
ORDERS = TailerPosition(name="replicated:orders", index=4, version=7)
PLAIN = TailerPosition(name="plain", index=4)


def sink(announced: dict[str, Any] | None = TELLS) -> Ours:
    """A sink that has everything before index 5, and has answered an offer from there."""
    ours = Ours(Role.SINK)
    more = {} if announced is None else {"cqrepl": announced}
    ours.receive(peer.uber(SOURCE_ID, SINK_ID, **more), peer.heartbeats())
    ours.receive(peer.register(CSP, CID, peer.sink_handler(5)))
    ours.connection.answer_queue(CID, 5, SHIFT, None, None)
    ours.said()
    return ours


def source(announced: dict[str, Any] | None = TELLS, *, held: int = 5) -> Ours:
    """A source that streams to a sink, which has everything before index `held`."""
    ours = Ours(Role.SOURCE, cid_first=CID)
    more = {} if announced is None else {"cqrepl": announced}
    ours.receive(peer.uber(SINK_ID, SOURCE_ID, **more), peer.heartbeats())
    ours.connection.offer_queue(NAME, 9, acknowledgement=True, source_id=SOURCE_ID, shape=None)
    ours.receive(peer.register(CSP, CID, peer.source_handler(held)))
    (started,) = ours.receive(select(), data(eos=None))
    assert isinstance(started, ev.StreamingStarted)
    ours.said()
    return ours


@pytest.mark.parametrize("position", [ORDERS, PLAIN])
def test_what_is_written_is_read(position: TailerPosition) -> None:
    document = write_tailer(position)
    reader = Reader(document[HEADER_BYTES:])
    assert reader.read_name() == "tailer"
    assert read_tailer(reader) == position
    built = structures.TailerMoved.build(structures.TailerMoved.parse(document))
    assert built == document


def test_a_source_says_where_it_stands_behind_what_the_sink_has() -> None:
    ours = source()
    handler = ours.connection.source(CID)
    for index, is_told in ((5, True), (6, False), (0, True), (INDEX_MAX, False)):
        assert handler.tell_tailer(TailerPosition(name="plain", index=index)) == is_told
    assert handler.tell_tailer(ORDERS)
    said = [next(iter(each.items())) for each in ours.said()]
    assert [name for name, _ in said] == ["meta", "tailer"] * 3
    assert said[1][1] == {"name": "plain", "index": 5}
    assert said[5][1] == {"name": ORDERS.name, "index": 4, "version": 7}


def test_not_while_the_peer_takes_little() -> None:
    ours = source()
    handler, told = ours.connection.source(CID), 0
    while handler.tell_tailer(ORDERS):
        told += 1
    assert told == CROWDED_BYTES // len(select() + write_tailer(ORDERS)) + 1
    assert len(ours.said()) == 2 * told
    assert handler.tell_tailer(ORDERS)


@ANNOUNCED
def test_nothing_is_said_to_a_sink_that_did_not_announce_it(
    announced: dict[str, Any] | None,
) -> None:
    ours = source(announced)
    assert not ours.connection.source(CID).takes_tailers
    assert not ours.connection.source(CID).tell_tailer(ORDERS)
    assert not ours.said()


@pytest.mark.parametrize("position", [ORDERS, PLAIN])
def test_a_sink_takes_what_it_has_everything_before(position: TailerPosition) -> None:
    moved = ev.TailerMoved(cid=CID, name=NAME, position=position)
    assert sink().receive(select(), write_tailer(position)) == [moved]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "plain", "index": 6}, "a named tailer at 0x6, 0x5 is the next"),
        ({"name": "plain", "index": INDEX_MAX}, "a named tailer at 0x7fff"),
        ({"name": "plain", "index": -1}, "no named tailer can have"),
        ({"name": "", "index": 1}, "no named tailer can have"),
        ({"name": "x" * 257, "index": 1}, "no named tailer can have"),
        ({"index": 1}, "no named tailer can have"),
        ({"name": "plain"}, "no named tailer can have"),
        ({"name": "replicated:a", "index": 1}, "no named tailer can have"),
        ({"name": "replicated:a", "index": 1, "version": -2}, "no named tailer can have"),
        ({"name": "replicated:a.version", "index": 1, "version": 2}, "no named tailer can have"),
        ({"name": "gr€n", "index": 1}, "no named tailer can have"),
        ({"name": "replicated:a.loc\u016b", "index": 1, "version": 2}, "no named tailer can have"),
        ({"name": "replicated:a.lock", "index": 1, "version": 2}, "no named tailer can have"),
    ],
)
def test_anything_else_is_refused(fields: dict[str, Any], message: str) -> None:
    (refused,) = sink().receive(select(), data(tailer=fields))
    assert isinstance(refused, ev.RegistrationRefused)
    assert message in refused.message


@ANNOUNCED
def test_nor_is_anything_taken_from_a_source_that_did_not_announce_it(
    announced: dict[str, Any] | None,
) -> None:
    (refused,) = sink(announced).receive(select(), write_tailer(ORDERS))
    assert isinstance(refused, ev.RegistrationRefused)
    assert "'tailer' is not known" in refused.message
