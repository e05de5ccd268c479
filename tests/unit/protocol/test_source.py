"""The source's side of one queue: offer, answer, back copy, stream, acknowledgements, time."""

import math
from array import array

import pytest

from cqrepl.protocol import QueueShape, RemoteProtocolError, StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.sendwindow import ALONE_MAX, BYTES_MAX, EXCERPTS_MAX, SentRun
from cqrepl.protocol.states import ConnectionState, SourceState
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from tests.support.peer import (
    CID,
    CSP,
    NAME,
    NS,
    SHAPE_FIELDS,
    SHIFT,
    Hex,
    Ours,
    Role,
    acknowledgement,
    batch,
    data,
    decoded,
    end_of_stream,
    excerpt,
    excerpts,
    heartbeat,
    index,
    kinds,
    offer_queue,
    offering_source,
    register,
    select,
    source,
    source_handler,
    streaming_source,
)


def state(ours: Ours, cid: Cid = CID) -> SourceState:
    return ours.connection.source(cid).state


def copying_back(
    next_index: int = index(4), wanted: int = index(7), locked: int | None = None
) -> Ours:
    """A source that lacks what the sink has from `next_index` to `wanted`; locked by now."""
    ours = offering_source(next_index)
    ours.receive(register(CSP, CID, source_handler(wanted)))
    ours.connection.begin_back_copy(CID, next_index if locked is None else locked, SHIFT)
    return ours


def stopped(events: list[ev.Event]) -> ev.QueueStopped:
    (event,) = events
    assert isinstance(event, ev.QueueStopped)
    return event


# offer and answer


def test_an_offer_may_announce_the_extension() -> None:
    ours = source()
    shape = QueueShape(roll_cycle="FAST_DAILY", epoch=0, index_count=4096, index_spacing=256)
    ours.connection.offer_queue(NAME, 0, acknowledgement=False, source_id=0, shape=shape)
    (said,) = ours.said()
    assert said["handler"][1]["cqrepl"] == SHAPE_FIELDS
    assert said["handler"][1]["acknowledgement"] is False


@pytest.mark.parametrize("end", [data(eos=None), data(eos=""), data(eos="x", later=1)])
def test_the_end_of_the_back_copy_is_known_by_its_name(end: bytes) -> None:
    ours = offering_source()
    assert kinds(ours.receive(register(CSP, CID, source_handler()), select(), end)) == [
        ev.StreamingStarted
    ]


def test_only_the_sources_wish_for_acknowledgements_counts() -> None:
    ours = offering_source()
    ours.receive(register(CSP, CID, source_handler(acknowledgement=False)), end_of_stream())
    ours.frame(CID, batch(index(0), b"x"))
    assert not ours.connection.source(CID).is_settled


@pytest.mark.parametrize("next_index", [-1, -(1 << 63)])
def test_a_negative_position_stops_the_queue(next_index: int) -> None:
    ours = offering_source()
    event = stopped(ours.receive(register(CSP, CID, source_handler(next_index))))
    assert event.message == f"the sink asks for index {next_index}"
    assert ours.receive(end_of_stream(), acknowledgement(0), excerpt(0, b"x")) == []
    assert ours.receive(register(CSP, CID, source_handler())) == []


# back copy


@pytest.mark.parametrize("locked", [index(6), index(7), index(9)])
def test_what_a_local_writer_wrote_meanwhile_is_compared(locked: int) -> None:
    """It may have written a part of what comes back, all of it, or more."""
    ours = copying_back(index(4), index(7), locked=locked)
    *events, started = ours.receive(excerpts(index(4), b"a", b"b", b"c"), end_of_stream())
    found: list[tuple[type, list[int]]] = []
    for event in events:
        assert isinstance(event, ev.CompareExcerpts | ev.AppendExcerpts)
        found.append((type(event), [at for at, _ in event.batch]))
    copied = [(ev.CompareExcerpts, list(range(index(4), min(locked, index(7)))))]
    assert found == copied + [(ev.AppendExcerpts, [index(6)])] * (locked < index(7))
    assert started == ev.StreamingStarted(cid=CID, name=NAME, next_index=index(7))


def test_a_local_excerpt_that_the_sink_steps_over_is_a_divergence() -> None:
    """The sink rolled where the source's writer went on: the sink would never get that excerpt."""
    ours = copying_back(index(4), index(1, cycles=1), locked=index(5))
    event = stopped(ours.receive(excerpt(index(0, cycles=1), b"x"), end_of_stream()))
    assert event.reason is StopReason.DIVERGED
    assert f"{index(4):#x}" in event.message
    assert f"{index(0, cycles=1):#x}" in event.message


@pytest.mark.parametrize("locked", [index(4), index(5), index(7), index(9)])
@pytest.mark.parametrize("came", [0, 1, 2])
def test_an_early_end_of_the_back_copy_is_a_gap(locked: int, came: int) -> None:
    """The excerpts that were not copied back were not compared, however far a local writer got."""
    ours = copying_back(index(4), index(7), locked=locked)
    ours.receive(excerpts(index(4), *[b"x"] * came))
    event = stopped(ours.receive(end_of_stream()))
    assert event.reason is StopReason.GAP
    assert event.message == (
        f"the sink has excerpts before {index(7):#x} and copied back only those before "
        f"{index(4 + came):#x}"
    )
    assert ours.connection.state is ConnectionState.OPEN


@pytest.mark.parametrize("at", [index(5), index(3, cycles=1), -1])
def test_a_gap_in_the_back_copy_stops_the_queue(at: int) -> None:
    ours = copying_back()
    event = stopped(ours.receive(excerpt(at, b"x"), excerpt(index(4), b"x"), end_of_stream()))
    assert event.reason is StopReason.GAP
    assert state(ours) is SourceState.STOPPED


def test_a_stopped_back_copy_drops_what_still_comes() -> None:
    ours = copying_back()
    ours.connection.stop_queue(CID, StopReason.DIVERGED, "other bytes")
    events = ours.receive(excerpts(index(4), b"a", b"b"), end_of_stream(), acknowledgement(0))
    assert kinds(events) == [ev.QueueStopped]


# messages out of turn


def test_a_message_out_of_turn_closes_and_the_error_names_the_queue() -> None:
    """`test_moves` has each message in each state."""
    with pytest.raises(RemoteProtocolError, match=r"END_OF_STREAM is not .* OFFERED \(queue 'q'\)"):
        offering_source().receive(end_of_stream())


# stream and acknowledgements


def test_only_whole_frames_go_into_the_room_there_is() -> None:
    ours = streaming_source()
    run = batch(index(0), bytes(100), bytes(100), bytes(5000))
    size = ours.connection.frame_size(CID, 100)
    out = bytearray(2 * size + 10)
    framed, filled = ours.connection.frame_excerpts(CID, run, 0, NS, out, 10)
    assert framed == run.part(0, 2)
    assert filled <= len(out)
    assert len(decoded(bytes(out[10:filled]))) == 4
    assert ours.connection.frame_excerpts(CID, run, 2, NS, bytearray(100), 0) == (None, 0)
    assert ours.connection.source(CID).index_sent == index(1)
    assert len(ours.frame(CID, run, 2)) <= ours.connection.frame_size(CID, 5000)


def acknowledged(at: int, excerpts: int, payload_bytes: int, ns: int = NS) -> ev.Acknowledged:
    return ev.Acknowledged(
        cid=CID, name=NAME, index=at, ns=ns, excerpts=excerpts, payload_bytes=payload_bytes
    )


def sent(count: int = 10) -> Ours:
    """A source that sent excerpts of 10 bytes."""
    ours = streaming_source()
    ours.frame(CID, batch(index(0), *[bytes(10)] * count))
    return ours


def test_acknowledgements_may_come_one_by_one_or_together() -> None:
    ours = sent()
    assert not ours.connection.source(CID).is_settled
    assert ours.receive(acknowledgement(index(0))) == [acknowledged(index(0), 1, 10)]
    assert ours.receive(acknowledgement(index(6))) == [acknowledged(index(6), 6, 60)]
    assert ours.receive(acknowledgement(index(9))) == [acknowledged(index(9), 3, 30)]
    assert ours.connection.source(CID).is_settled
    assert ours.connection.source(CID).index_acknowledged == index(9)


@pytest.mark.parametrize("late", [index(5), index(3), 0, -1, -(1 << 63)])
def test_a_late_or_repeated_acknowledgement_changes_nothing(late: int) -> None:
    ours = sent()
    ours.receive(acknowledgement(index(5)))
    assert ours.receive(acknowledgement(late)) == []
    assert ours.connection.source(CID).index_acknowledged == index(5)


@pytest.mark.parametrize("beyond", [index(10), index(0, cycles=1), (1 << 63) - 1])
def test_an_acknowledgement_of_what_was_not_sent_is_a_claim(beyond: int) -> None:
    """The source tells such a claim once. However often the claim comes, the connection goes on."""
    ours = sent()
    ours.receive(acknowledgement(index(5)))
    (event,) = ours.receive(acknowledgement(beyond))
    assert event == ev.RegistrationRefused(
        message=f"queue 'q': acknowledgement of index {beyond:#x}, up to {index(9):#x} was sent",
        count=1,
    )
    assert ours.connection.source(CID).index_claimed == beyond
    assert ours.receive(*[acknowledgement(beyond)] * 200) == []
    assert ours.connection.source(CID).index_acknowledged == index(5)
    assert not ours.connection.source(CID).is_settled
    assert ours.receive(acknowledgement(index(9))) == [acknowledged(index(9), 4, 40)]


def test_an_acknowledgement_before_anything_was_sent_is_a_claim() -> None:
    (event,) = streaming_source().receive(acknowledgement(index(0)))
    assert isinstance(event, ev.RegistrationRefused)
    assert event.message.endswith("nothing was sent")


@pytest.mark.parametrize(
    ("message", "ns"),
    [
        (data(idx=Hex(index(0))), 0),
        (data(idx=index(0), ns=5), 5),
        (data(idx=Hex(index(0)), later="text", ns=-5), -5),
        (data(idx=Hex(index(0)), ns=1 << 40), 1 << 40),
    ],
)
def test_an_acknowledgement_with_more_or_less_in_it(message: bytes, ns: int) -> None:
    assert sent().receive(select(), message) == [acknowledged(index(0), 1, 10, ns)]


def test_an_acknowledgement_that_starts_with_its_time_is_none() -> None:
    assert kinds(sent().receive(select(), data(ns=1, idx=Hex(index(0))))) == [
        ev.RegistrationRefused
    ]


def test_without_acknowledgements_everything_is_settled_at_once() -> None:
    ours = streaming_source(acknowledgement=False)
    ours.frame(CID, batch(index(0), b"x"))
    assert ours.connection.source(CID).is_settled
    assert ours.connection.source(CID).has_room


def has_room(ours: Ours) -> bool:
    return ours.connection.source(CID).has_room


@pytest.mark.parametrize(("count", "length"), [(64, BYTES_MAX // 64), (ALONE_MAX, 0)])
def test_a_full_window_has_no_room_until_it_is_acknowledged(count: int, length: int) -> None:
    ours = streaming_source()
    handler = ours.connection.source(CID)
    run = batch(index(0), *[bytes(length)] * count)
    handler.framed(SentRun.of(run.index_first, run.lengths))
    assert not has_room(ours)
    ours.receive(acknowledgement(index(0)))
    assert has_room(ours)


def test_no_more_excerpts_are_framed_than_have_room() -> None:
    ours = streaming_source()
    handler = ours.connection.source(CID)
    handler.framed(SentRun.of(index(0), array("q", [0]) * (ALONE_MAX - 3)))
    out = bytearray(4096)
    more = batch(index(ALONE_MAX - 3), *[b"x"] * 9)
    framed, _ = ours.connection.frame_excerpts(CID, more, 2, NS, out, 0)
    assert framed is not None
    assert (framed.index_first, len(framed)) == (index(ALONE_MAX - 1), 3)
    assert not has_room(ours)


def test_a_stopped_queue_leaves_its_room_to_the_others() -> None:
    ours = sent()
    budget = ours.connection.source(CID).budget
    assert budget.free == EXCERPTS_MAX - 10
    ours.connection.stop_queue(CID, StopReason.FAILED, "gone")
    assert budget.free == EXCERPTS_MAX


def test_a_stopped_queue_drops_acknowledgements() -> None:
    ours = sent()
    ours.connection.stop_queue(CID, StopReason.FAILED, "gone")
    assert kinds(ours.receive(acknowledgement(index(5)))) == [ev.QueueStopped]
    assert ours.connection.source(CID).index_acknowledged == -1


def test_sending_earlier_excerpts_again_does_not_lower_what_was_sent() -> None:
    ours = sent()
    ours.frame(CID, ExcerptBatch.of(index(2), [b"x"]))
    assert kinds(ours.receive(acknowledgement(index(9)))) == [ev.Acknowledged]


# time


def overdue(ours: Ours) -> list[str]:
    """The queues that were not answered in time, as all that is told."""
    found = ours.events()
    assert all(isinstance(event, ev.AnswerOverdue) for event in found)
    return [event.name for event in found if isinstance(event, ev.AnswerOverdue)]


def test_an_answer_has_the_time_of_a_heartbeat_timeout() -> None:
    ours = offering_source(heartbeat_timeout_ms=9000)
    assert ours.connection.next_deadline() == 9.0
    ours.tick(8.9)
    ours.receive(heartbeat())
    assert ours.events() == []
    ours.tick(0.1)
    assert overdue(ours) == [NAME]
    assert ours.connection.source(CID).deadline == math.inf


def test_an_unanswered_offer_leaves_the_connection_open_and_takes_a_late_answer() -> None:
    ours = offering_source(heartbeat_timeout_ms=9000)
    told: list[object] = []
    for _ in range(5):
        ours.tick(8.9)
        told += ours.receive(heartbeat())
    assert told == [ev.AnswerOverdue(cid=CID, name=NAME)]
    assert ours.connection.state is ConnectionState.OPEN
    answer = register(CSP, CID, source_handler())
    assert kinds(ours.receive(answer, end_of_stream())) == [ev.StreamingStarted]
    assert ours.frame(CID, batch(index(0), b"x"))


def test_an_answer_alone_is_not_enough_the_back_copy_must_end_too() -> None:
    ours = offering_source(heartbeat_timeout_ms=9000)
    ours.tick(5)
    ours.receive(register(CSP, CID, source_handler()))
    ours.tick(8.9)
    ours.receive(heartbeat())
    assert ours.events() == []
    ours.tick(0.2)
    assert overdue(ours) == [NAME]
    assert kinds(ours.receive(end_of_stream())) == [ev.StreamingStarted]


def test_a_back_copy_that_is_not_over_in_time_stops_the_queue() -> None:
    """The source keeps its queue locked meanwhile."""
    ours = copying_back(index(0), index(5))
    ours.tick(35)
    ours.receive(heartbeat())
    ours.tick(5.1)
    event = stopped(ours.events())
    assert (event.reason, event.is_final) == (StopReason.NO_ANSWER, False)


def test_the_time_for_an_answer_runs_anew_with_every_answer() -> None:
    """A sink that opens a thousand queues answers one after the other."""
    ours = Ours(Role.SOURCE, cid_first=CID, heartbeat_timeout_ms=9000).greeted()
    cids = [offer_queue(ours, name=f"p{nth}") for nth in range(20)]
    for nth, cid in enumerate(cids[:-1]):
        ours.tick(8)
        name = f"p{nth}"
        answer = register(f"/replication/{name}/2", cid, source_handler(name=name))
        assert ours.receive(answer, select(cid), data(eos=None)) != []
    ours.tick(8.9)
    ours.receive(heartbeat())
    assert ours.events() == []
    ours.tick(0.2)
    assert overdue(ours) == ["p19"]


def test_the_time_for_a_stream_to_begin_runs_anew_with_every_one_that_does() -> None:
    """A sink locks a thousand queues one after the other, when all of them have been answered."""
    ours = Ours(Role.SOURCE, cid_first=CID, heartbeat_timeout_ms=9000).greeted()
    cids = [offer_queue(ours, name=f"p{nth}") for nth in range(20)]
    for nth, cid in enumerate(cids):
        ours.receive(register(f"/replication/p{nth}/2", cid, source_handler(name=f"p{nth}")))
    for cid in cids[:-1]:
        ours.tick(8)
        assert kinds(ours.receive(end_of_stream(cid))) == [ev.StreamingStarted]
    ours.tick(8.9)
    ours.receive(heartbeat())
    assert ours.events() == []
    ours.tick(0.2)
    assert overdue(ours) == ["p19"]


def test_every_excerpt_that_comes_back_renews_the_time() -> None:
    ours = copying_back(index(0), index(5))
    assert ours.connection.source(CID).deadline == 40.0
    for at in range(5):
        ours.tick(35)
        ours.receive(excerpt(index(at), b"x"))
        assert ours.connection.source(CID).deadline == ours.now + 40
    ours.receive(end_of_stream())
    assert ours.connection.source(CID).deadline == math.inf


def test_while_the_source_takes_its_lock_no_time_runs() -> None:
    ours = offering_source(index(4))
    ours.receive(register(CSP, CID, source_handler(index(7))))
    assert ours.connection.source(CID).deadline == math.inf
    ours.tick(30)
    ours.connection.begin_back_copy(CID, index(4), SHIFT)
    assert ours.connection.source(CID).deadline == 70.0
