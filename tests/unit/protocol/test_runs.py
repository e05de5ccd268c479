"""Runs in the core: only where they were agreed, and what they come to."""

from typing import Any

import pytest

from cqrepl.protocol import RemoteProtocolError
from cqrepl.protocol import events as ev
from cqrepl.protocol.messages.runs import write_run_head
from tests.property.test_runs_agree import as_run
from tests.support import peer

BLOCK = {"v": 1, "capabilities": ["runs"], "role": "host"}


def receiving(*, runs: bool = True, said: bool = True, **config: Any) -> peer.Ours:
    """A sink that has nothing and receives.

    Args:
        runs: our side takes runs.
        said: so does the peer.
    """
    ours = peer.Ours(peer.Role.SINK, runs=runs, **config)
    more: dict[str, Any] = {"cqrepl": BLOCK} if said else {}
    ours.receive(peer.uber(peer.SOURCE_ID, peer.SINK_ID, **more), peer.heartbeats())
    ours.receive(peer.register(peer.CSP, peer.CID, peer.sink_handler()))
    ours.connection.answer_queue(peer.CID, 0, peer.SHIFT, None)
    return ours


def run(first: int, *payloads: bytes, count: int | None = None) -> bytes:
    laid = as_run(list(payloads))
    return peer.select() + write_run_head(first, count or len(payloads), peer.NS, len(laid)) + laid


def test_known_excerpts_and_new_ones_in_one_run(agreed: peer.Ours) -> None:
    agreed.receive(peer.excerpts(peer.index(0), b"a", b"b"))
    known, new = agreed.receive(run(peer.index(1), b"b", b"cc", b"d"))
    assert isinstance(known, ev.CompareExcerpts)
    assert isinstance(new, ev.AppendExcerpts)
    assert [bytes(payload) for _, payload in known.batch] == [b"b"]
    assert (new.batch.index_first, new.ns) == (peer.index(2), peer.NS)
    assert [bytes(payload) for _, payload in new.batch] == [b"cc", b"d"]


def test_a_run_that_does_not_follow_is_a_gap(agreed: peer.Ours) -> None:
    (event,) = agreed.receive(run(peer.index(3), b"a", b"b"))
    assert isinstance(event, ev.QueueStopped)


def test_a_run_that_lies_closes_the_connection(agreed: peer.Ours) -> None:
    with pytest.raises(RemoteProtocolError, match="a run of 3 excerpts expected: it ends before"):
        agreed.receive(run(peer.index(0), b"a", b"b", count=3))


def test_longer_than_this_side_takes() -> None:
    """The excerpts before a payload that is too long are taken, as they are from frames."""
    ours = receiving(payload_max=10)
    ours.connection.receive_data(run(peer.index(0), b"a", b"b", b"c" * 11, b"d"), 0)
    event = ours.connection.next_event()
    assert isinstance(event, ev.AppendExcerpts)
    assert [bytes(payload) for _, payload in event.batch] == [b"a", b"b"]
    with pytest.raises(RemoteProtocolError, match="at most 10 bytes expected"):
        ours.connection.next_event()
    with pytest.raises(RemoteProtocolError, match="at most 10 bytes expected"):
        receiving(payload_max=10).receive(run(peer.index(0), b"c" * 11, b"d"))


def test_a_run_may_be_longer_than_an_excerpt() -> None:
    (event,) = receiving(payload_max=10).receive(run(peer.index(0), *[b"a"] * 16_384))
    assert isinstance(event, ev.AppendExcerpts)
    assert len(event.batch) == 16_384


@pytest.mark.parametrize("more", [{"runs": False}, {"runs": True, "said": False}])
def test_not_known_where_it_was_not_agreed(more: dict[str, Any]) -> None:
    (event,) = receiving(**more).receive(run(peer.index(0), b"a", b"b"))
    assert isinstance(event, ev.RegistrationRefused)
    assert "'run' is not known" in event.message


@pytest.fixture
def agreed() -> peer.Ours:
    return receiving()
