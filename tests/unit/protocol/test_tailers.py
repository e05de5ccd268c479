"""Named tailers on the wire: what a source says of them, and what a sink takes."""

from typing import Any

import pytest

from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.tailers import read_tailer, write_tailer
from cqrepl.protocol.outbox import CROWDED_BYTES
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.queue.format.tailerposition import TailerPosition
from tests.support import peer
from wire import Reader
from wire.grammar import structures
from wire.header import HEADER_BYTES

UNTOLD = pytest.mark.parametrize("capable", [[], ["levels"]])
ORDERS = TailerPosition(name="replicated:orders", index=4, version=7)
PLAIN = TailerPosition(name="plain", index=4)


@pytest.mark.parametrize("position", [ORDERS, PLAIN])
def test_what_is_written_is_read(position: TailerPosition) -> None:
    document = write_tailer(position)
    reader = Reader(document[HEADER_BYTES:])
    assert reader.read_name() == "tailer"
    assert read_tailer(reader) == position
    built = structures.TailerMoved.build(structures.TailerMoved.parse(document))
    assert built == document


def test_a_source_says_where_it_stands_behind_what_the_sink_has() -> None:
    ours = peer.capable_source("tailers", held=5)
    handler = ours.connection.source(peer.CID)
    for index, is_told in ((5, True), (6, False), (0, True), (INDEX_MAX, False)):
        assert handler.tell_tailer(TailerPosition(name="plain", index=index)) == is_told
    assert handler.tell_tailer(ORDERS)
    said = [next(iter(each.items())) for each in ours.said()]
    assert [name for name, _ in said] == ["meta", "tailer"] * 3
    assert said[1][1] == {"name": "plain", "index": 5}
    assert said[5][1] == {"name": ORDERS.name, "index": 4, "version": 7}


def test_not_while_the_peer_takes_little() -> None:
    ours = peer.capable_source("tailers", held=5)
    handler, told = ours.connection.source(peer.CID), 0
    while handler.tell_tailer(ORDERS):
        told += 1
    assert told == CROWDED_BYTES // len(peer.select() + write_tailer(ORDERS)) + 1
    assert len(ours.said()) == 2 * told
    assert handler.tell_tailer(ORDERS)


@UNTOLD
def test_nothing_is_said_to_a_sink_that_did_not_announce_it(
    capable: list[str],
) -> None:
    ours = peer.capable_source(*capable, held=5)
    assert not ours.connection.source(peer.CID).takes_tailers
    assert not ours.connection.source(peer.CID).tell_tailer(ORDERS)
    assert not ours.said()


@pytest.mark.parametrize("position", [ORDERS, PLAIN])
def test_a_sink_takes_what_it_has_everything_before(position: TailerPosition) -> None:
    moved = ev.TailerMoved(cid=peer.CID, name=peer.NAME, position=position)
    assert peer.capable_sink("tailers").receive(peer.select(), write_tailer(position)) == [moved]


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
    (refused,) = peer.capable_sink("tailers").receive(peer.select(), peer.data(tailer=fields))
    assert isinstance(refused, ev.RegistrationRefused)
    assert message in refused.message


@UNTOLD
def test_nor_is_anything_taken_from_a_source_that_did_not_announce_it(
    capable: list[str],
) -> None:
    (refused,) = peer.capable_sink(*capable).receive(peer.select(), write_tailer(ORDERS))
    assert isinstance(refused, ev.RegistrationRefused)
    assert "'tailer' is not known" in refused.message
