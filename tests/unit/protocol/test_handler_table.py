"""A program's own handlers beside those of the core, and how handlers end."""

from typing import Any

import pytest

from cqrepl.protocol import LocalProtocolError, RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol import uber as router
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.outbox import CROWDED_BYTES
from cqrepl.protocol.uber import HANDLERS_MAX
from tests.support import program
from tests.support.peer import (
    CID,
    CSP,
    NAME,
    NS,
    SHIFT,
    SINK_ID,
    SOURCE_ID,
    Ours,
    Role,
    Typed,
    data,
    excerpt,
    heartbeats,
    index,
    register,
    select,
    sink_handler,
    uber,
)
from tests.support.program import Echo, EchoKind


class Pair:
    """Two sides of ours whose bytes reach each other, each with a row of its own."""

    def __init__(self, **more: Any) -> None:
        self.kinds = EchoKind(), EchoKind()
        one = {"programs": ((self.kinds[0],),), **more}
        self.source = Ours(Role.SOURCE, is_dialler=True, **one)
        self.sink = Ours(Role.SINK, programs=((self.kinds[1],),))
        self.exchange()

    def exchange(self) -> dict[Role, list[ev.Event]]:
        """Delivers until both have nothing more to say."""
        events: dict[Role, list[ev.Event]] = {Role.SOURCE: [], Role.SINK: []}
        while True:
            out, back = (each.connection.data_to_send() for each in (self.source, self.sink))
            if not out and not back:
                return events
            events[Role.SINK] += self.sink.receive(out)
            events[Role.SOURCE] += self.source.receive(back)

    def register(self, csp: str = "/echo/1", greeting: str = "hello") -> Echo:
        return program.register(self.source.connection.link, self.kinds[0], csp, greeting)


def refusals(events: list[ev.Event]) -> list[str]:
    return [each.message for each in events if isinstance(each, ev.RegistrationRefused)]


def test_a_program_talks_through_a_row_of_its_own() -> None:
    pair = Pair()
    echo = pair.register()
    assert refusals(pair.exchange()[Role.SINK]) == []
    (theirs,) = pair.kinds[1].made
    assert (theirs.csp, theirs.cid) == ("/echo/1", echo.cid)
    assert echo.cid >> 48 == SOURCE_ID
    echo.say("one")
    events = pair.exchange()
    assert (theirs.heard, echo.heard) == (["one"], ["ONE"])
    assert events[Role.SOURCE] == [ev.Told(event=("/echo/1", "ONE"))]
    pair.source.connection.link.send(echo.cid, program.text_document("say", "two"))
    pair.exchange()
    assert echo.heard == ["ONE", "TWO"]


def test_what_a_row_refuses_is_told() -> None:
    pair = Pair()
    pair.register(greeting="refuse me")
    assert refusals(pair.exchange()[Role.SINK]) == ["as it asked for"]


def test_a_message_that_a_handler_does_not_know_is_refused() -> None:
    pair = Pair()
    echo = pair.register()
    pair.source.connection.link.send(echo.cid, program.text_document("shout", "x"))
    assert refusals(pair.exchange()[Role.SINK]) == ["'shout' is not known to /echo/1"]


@pytest.mark.parametrize("has_block", [True, False])
def test_nothing_of_a_program_goes_to_a_peer_that_has_not_announced_it(has_block: bool) -> None:
    kind = EchoKind()
    ours = Ours(Role.SINK, programs=((kind,),))
    block = {"cqrepl": {"v": 1}} if has_block else {}
    ours.receive(uber(SOURCE_ID, SINK_ID, **block))
    ours.said()
    with pytest.raises(LocalProtocolError, match="has not announced echo"):
        program.register(ours.connection.link, kind, "/echo/1")
    assert ours.said() == []
    events = ours.receive(register("/echo/1", 7, Typed("EchoHandler", {"greeting": "x"})))
    assert refusals(events) == ["a !EchoHandler from a peer that has not announced echo"]


def test_a_row_may_not_take_a_name_of_the_core() -> None:
    for alias in ("!HeartbeatHandler", "", "!"):
        with pytest.raises(ValueError, match="a name of its own"):
            Ours(Role.SINK, programs=((EchoKind(alias=alias),),))
    with pytest.raises(ValueError, match="a name of its own"):
        Ours(Role.SINK, programs=((EchoKind(), EchoKind()),))


def test_documents_that_are_not_whole_do_not_go_out() -> None:
    pair = Pair()
    echo = pair.register()
    for wrong in (b"\x05\0\0\0abc", b"abc", b"\0\0\0\0"):
        with pytest.raises(LocalProtocolError, match="document"):
            pair.source.connection.link.send(echo.cid, wrong)
    with pytest.raises(LocalProtocolError, match="has no handler"):
        pair.source.connection.link.send(Cid(echo.cid + 1), program.text_document("say", "x"))


# ends


def test_a_handler_ends_on_both_sides_and_its_csp_is_used_again() -> None:
    pair = Pair()
    echo = pair.register()
    pair.exchange()
    (theirs,) = pair.kinds[1].made
    pair.source.connection.link.remove(echo.cid, "enough")
    events = pair.exchange()
    assert (echo.closed_for, theirs.closed_for) == (["enough"], ["enough"])
    again = pair.register()
    again.say("still here")
    events = pair.exchange()
    assert refusals(events[Role.SINK] + events[Role.SOURCE]) == []
    assert again.cid != echo.cid
    assert again.heard == ["STILL HERE"]
    with pytest.raises(LocalProtocolError, match="has no handler"):
        pair.source.connection.link.remove(echo.cid)


def test_what_was_on_its_way_to_a_handler_that_ended_is_dropped() -> None:
    pair = Pair()
    echo = pair.register()
    pair.exchange()
    (theirs,) = pair.kinds[1].made
    theirs.say("crossing")
    pair.source.connection.link.remove(echo.cid)
    events = pair.exchange()
    assert refusals(events[Role.SINK] + events[Role.SOURCE]) == []
    assert echo.heard == []


def test_both_sides_end_a_handler_at_the_same_time() -> None:
    pair = Pair()
    echo = pair.register()
    pair.exchange()
    (theirs,) = pair.kinds[1].made
    pair.source.connection.link.remove(echo.cid, "one")
    pair.sink.connection.link.remove(echo.cid, "two")
    events = pair.exchange()
    assert refusals(events[Role.SINK] + events[Role.SOURCE]) == []
    assert (echo.closed_for, theirs.closed_for) == (["one"], ["two"])


def test_the_end_of_the_connection_is_told_to_every_handler_once() -> None:
    pair = Pair()
    echoes = [pair.register(f"/echo/{nth}") for nth in range(3)]
    pair.exchange()
    pair.source.connection.link.remove(echoes[0].cid, "before")
    pair.source.connection.close("over")
    assert [echo.closed_for for echo in echoes] == [["before"], ["over"], ["over"]]
    with pytest.raises(LocalProtocolError, match="not open"):
        pair.register("/late")


def test_a_queue_that_the_sink_withdraws_is_offered_again() -> None:
    pair = Pair()
    source, sink = pair.source.connection, pair.sink.connection

    def offer() -> Cid:
        return source.offer_queue(NAME, 0, acknowledgement=True, source_id=0, shape=None)

    first = offer()
    (offered,) = pair.exchange()[Role.SINK]
    assert isinstance(offered, ev.QueueOffered)
    assert sink.withdraw_queue(first, "it takes from another source")
    events = pair.exchange()
    message = "it takes from another source"
    assert events[Role.SOURCE] == [ev.QueueWithdrawn(cid=first, name=NAME, message=message)]
    second = offer()
    (again,) = pair.exchange()[Role.SINK]
    assert isinstance(again, ev.QueueOffered)
    assert again.cid == second
    assert not sink.awaits_answer(offered)
    assert sink.awaits_answer(again)
    assert source.next_deadline() < float("inf")


def test_an_end_means_nothing_from_a_peer_that_has_not_announced_it() -> None:
    ours = Ours(Role.SINK).greeted()
    ours.receive(register(CSP, CID, sink_handler()))
    assert not ours.connection.withdraw_queue(CID, "no")
    events = ours.receive(select(CID), data(ended="why"))
    assert refusals(events) == [f"'ended' is not known to {CSP}"]


# many


def test_handlers_with_nothing_to_do_cost_nothing() -> None:
    pair = Pair()
    idle = [pair.register(f"/echo/{nth}") for nth in range(1000)]
    busy = pair.register("/busy")
    pair.exchange()
    before = [dict(echo.calls) for echo in idle]
    halves = pair.kinds[1].made
    theirs_before = [dict(echo.calls) for echo in halves[:-1]]
    for nth in range(50):
        busy.say(str(nth))
        pair.exchange()
        for side in (pair.source, pair.sink):
            side.connection.next_deadline()
            side.connection.tick(side.now)
    assert len(busy.heard) == 50
    assert [echo.calls for echo in idle] == before
    assert [echo.calls for echo in halves[:-1]] == theirs_before


def test_there_is_a_limit_to_handlers() -> None:
    pair = Pair()
    room = HANDLERS_MAX - len(pair.source.connection._router.handlers)
    for nth in range(room):
        pair.register(f"/echo/{nth}")
    with pytest.raises(LocalProtocolError, match=f"more than {HANDLERS_MAX} handlers"):
        pair.register("/one/more")


def test_deadlines_of_handlers_are_kept() -> None:
    pair = Pair()
    connection = pair.source.connection
    echoes = [pair.register(f"/echo/{nth}") for nth in range(10)]
    echoes[3].deadline, echoes[7].deadline = 5.0, 3.0
    for each in (echoes[3], echoes[7]):
        connection.link.wake(each.cid)
    assert connection.next_deadline() == 3.0
    echoes[7].deadline = 4.0  # later than noted
    assert connection.next_deadline() == 4.0
    pair.source.tick(4.0)
    assert (echoes[7].calls["tick"], "tick" in echoes[3].calls) == (1, False)
    assert connection.next_deadline() == 5.0
    connection.link.remove(echoes[3].cid)
    assert connection.next_deadline() > 5.0


# guests


def guest(name: str = "task-1", **more: Any) -> Ours:
    """A guest that has greeted."""
    return Ours(Role.SOURCE, is_dialler=True, guest=name, **more)


@pytest.mark.parametrize("takes_guests", [True, False])
def test_a_guest_registers_only_what_takes_guests(takes_guests: bool) -> None:
    kinds = EchoKind(takes_guests=takes_guests), EchoKind(takes_guests=takes_guests)
    one, other = guest(programs=((kinds[0],),)), Ours(Role.SINK, programs=((kinds[1],),))
    other.receive(one.connection.data_to_send())
    events = one.receive(other.connection.data_to_send())
    assert events == [ev.Connected(remote_id=SINK_ID)]
    assert other.connection.is_guest
    assert other.connection.remote_id == 0
    echo = program.register(one.connection.link, kinds[0], "/echo/1")
    assert echo.cid >> 48 == 0x7FFF
    events = other.receive(one.connection.data_to_send())
    assert refusals(events) == ([] if takes_guests else ["a !EchoHandler came from a guest"])
    events = other.receive(register(CSP, 5, sink_handler()))
    assert refusals(events) == ["a SinkReplicationHandler came from a guest"]


def test_a_guest_need_not_know_whom_it_dials() -> None:
    one, other = guest(remote_ids=frozenset()), Ours(Role.SINK)
    answer = other.connection
    other.receive(one.connection.data_to_send())
    assert answer.is_guest
    one.receive(answer.data_to_send())
    assert one.connection.remote_id == SINK_ID


def test_a_host_has_to_know_whom_it_dials() -> None:
    problem = "the peer expects host id 0, this side has 2"
    with pytest.raises(RemoteProtocolError, match=problem):
        Ours(Role.SINK).receive(uber(SOURCE_ID, 0))


def test_a_guest_is_no_host() -> None:
    ours = Ours(Role.SINK, takes_guests=False)
    with pytest.raises(RemoteProtocolError, match="a host expected, a guest came"):
        ours.receive(guest().connection.data_to_send())
    one = guest()
    with pytest.raises(RemoteProtocolError, match="a host expected, a guest came"):
        one.receive(uber(0, 0, cqrepl={"role": "guest"}))
    plain = Ours(Role.SINK, remote_ids=frozenset({SOURCE_ID}))
    with pytest.raises(RemoteProtocolError, match="host id 1 expected, 0 came"):
        plain.receive(uber(0, SINK_ID), heartbeats())


# strange handlers, strange peers


def test_a_handler_may_remove_itself_at_any_time() -> None:
    pair = Pair()
    link = pair.source.connection.link
    echoes = [pair.register(f"/echo/{nth}") for nth in range(3)]
    pair.exchange()

    def produce(room: int) -> bytes:
        link.remove(echoes[0].cid)
        return program.text_document("say", "behind the end")

    # one half that behaves otherwise than its class
    echoes[0].produce = produce  # type: ignore[method-assign]  # see above
    link.wake(echoes[0].cid)
    events = pair.exchange()
    assert not refusals(events[Role.SINK] + events[Role.SOURCE])
    assert echoes[0].closed_for == [""]
    # and another one
    echoes[1].tick = lambda now: link.remove(echoes[1].cid)  # type: ignore[method-assign]  # too
    echoes[1].deadline = 1.0
    link.wake(echoes[1].cid)
    pair.source.tick(1.0)
    pair.exchange()
    assert [len(each.closed_for) for each in echoes] == [1, 1, 0]
    pair.source.connection.close("over")
    with pytest.raises(LocalProtocolError, match="has no handler"):
        link.remove(echoes[2].cid)
    assert [len(each.closed_for) for each in echoes] == [1, 1, 1]


def test_times_of_handlers_that_are_gone_are_not_kept() -> None:
    pair = Pair()
    agenda = pair.source.connection._router.agenda
    for nth in range(2000):
        echo = pair.register(f"/echo/{nth}")
        echo.deadline = 3600.0
        pair.source.connection.link.wake(echo.cid)
        pair.source.connection.link.remove(echo.cid)
        pair.exchange()
    assert len(agenda._heap) < 100
    assert len(agenda._planned) < 10


def announced(role: Role, **more: Any) -> Ours:
    ours = Ours(role, **more)
    remote, local = (SINK_ID, SOURCE_ID) if role is Role.SOURCE else (SOURCE_ID, SINK_ID)
    block = {"v": 1, "capabilities": ["ended", "queues"]}
    ours.receive(uber(remote, local, cqrepl=block), heartbeats())
    ours.said()
    return ours


def test_a_peer_that_reads_nothing_and_goes_on_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = announced(Role.SINK)
    monkeypatch.setattr(router, "WAITING_MAX", 64 * 1024)

    def offer_and_end(times: int) -> None:
        for cid in range(1000, 1000 + times):
            ours.receive(register(CSP, cid, sink_handler()), select(cid), data(ended="x"))

    offer_and_end(1000)
    with pytest.raises(RemoteProtocolError, match="the peer takes too little"):
        offer_and_end(3000)


def test_a_peer_that_never_confirms_an_end_is_closed() -> None:
    ours = announced(Role.SINK)

    def offer_and_withdraw(cids: range) -> None:
        for cid in map(Cid, cids):
            ours.receive(register(CSP, cid, sink_handler()))
            ours.connection.withdraw_queue(cid, "no")
            ours.connection.data_to_send()
            ours.events()

    offer_and_withdraw(range(1000, 1000 + HANDLERS_MAX))
    with pytest.raises(RemoteProtocolError, match="handlers that ended, and no word"):
        offer_and_withdraw(range(1000 + HANDLERS_MAX, 1003 + HANDLERS_MAX))


def test_nothing_goes_out_behind_the_end_of_a_queue() -> None:
    """Not even an acknowledgement goes out that was held back while the peer took nothing."""
    ours = announced(Role.SINK)
    ours.receive(register(CSP, CID, sink_handler()))
    connection = ours.connection
    connection.answer_queue(CID, 0, SHIFT, None)
    connection._outbox.data += bytes(CROWDED_BYTES + 1)
    ours.receive(excerpt(index(0), b"x"))
    connection.sink(CID).stored(index(0), NS)
    connection._outbox.data.clear()
    assert connection.withdraw_queue(CID, "enough")
    assert [each.get("ended") for each in ours.said()] == [None, "enough"]


def test_an_offer_is_answered_as_the_one_that_it_was() -> None:
    """The cid of one that is withdrawn may come again, for another queue."""
    ours = announced(Role.SINK, takes=frozenset({NAME, "p"}))
    (first,) = ours.receive(register(CSP, CID, sink_handler()))
    second_csp = "/replication/p/2"
    events = ours.receive(
        select(), data(ended="x"), register(second_csp, CID, sink_handler(name="p"))
    )
    (withdrawn, second) = events
    assert isinstance(first, ev.QueueOffered)
    assert isinstance(second, ev.QueueOffered)
    assert isinstance(withdrawn, ev.QueueWithdrawn)
    assert not ours.connection.awaits_answer(first)
    assert ours.connection.awaits_answer(second)


def test_the_reason_of_an_end_makes_no_lines() -> None:
    ours = announced(Role.SINK)
    ours.receive(register(CSP, CID, sink_handler()))
    (withdrawn,) = ours.receive(select(), data(ended="full\nqueue 'x' stopped\x1b[2J"))
    assert isinstance(withdrawn, ev.QueueWithdrawn)
    assert withdrawn.message == "full?queue 'x' stopped?[2J"
