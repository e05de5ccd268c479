"""Stops on the wire: what a side says, hears and makes of it."""

from typing import Any

import pytest

from cqrepl.protocol import StopReason
from cqrepl.protocol import events as ev
from cqrepl.protocol.cid import Cid
from tests.support import peer
from tests.support.peer import NAME, Ours, Role, data, register, select, sink_handler

ANNOUNCED: dict[str, Any] = {"v": 1, "capabilities": ["stops"], "role": "host"}
CID = Cid(901)


def offered(*, announced: bool) -> Ours:
    """A sink to which a queue was offered."""
    sink = Ours(Role.SINK)
    more = {"cqrepl": ANNOUNCED} if announced else {}
    sink.receive(peer.uber(1, 2, **more), peer.heartbeats())
    events = sink.receive(register(f"/replication/{NAME}/2", CID, sink_handler(0)))
    assert isinstance(events[-1], ev.QueueOffered)
    sink.said()
    return sink


@pytest.mark.parametrize("announced", [True, False])
def test_only_a_peer_that_announced_it_is_told(announced: bool) -> None:
    sink = offered(announced=announced)
    sink.connection.stop_queue(CID, StopReason.REFUSED, "why")
    sink.connection.stop_queue(CID, StopReason.DAMAGED, "again")
    said = [message["stopped"] for message in sink.said() if "stopped" in message]
    assert said == ([{"reason": "refused", "message": "why"}] if announced else [])


def test_what_a_peer_says_is_passed_on_in_one_line() -> None:
    sink = offered(announced=True)
    text = "one\nline \x1b[31m"
    (event,) = sink.receive(select(CID), data(stopped={"reason": "diverged", "message": text}))
    assert event == ev.QueueStopped(
        cid=CID,
        name=NAME,
        reason=StopReason.DIVERGED,
        message="the peer says: one?line ?[31m",
        by_peer=True,
    )
    assert sink.connection.has_stopped(CID)
    assert not [message for message in sink.said() if "stopped" in message]
    assert not sink.receive(select(CID), data(stopped={"reason": "gap", "message": "again"}))


def test_no_reason_is_a_failure() -> None:
    sink = offered(announced=True)
    (event,) = sink.receive(select(CID), data(stopped={}))
    assert isinstance(event, ev.QueueStopped)
    assert event.reason is StopReason.FAILED
    assert not event.is_final
