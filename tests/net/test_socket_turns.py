"""The turns at a socket: every pair of state and move, and the moves of real hosts."""

from collections.abc import Mapping
from enum import Enum
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from cqrepl.kernel import live
from cqrepl.net.socketturn import OutgoingTurn, SocketTurn
from cqrepl.protocol import LocalProtocolError
from cqrepl.protocol.states import (
    OUTGOING_MOVES,
    SOCKET_MOVES,
    OutgoingMove,
    OutgoingState,
    SocketMove,
    SocketState,
)
from cqrepl.queue import Queue
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.replicas import copied, eventually

TO_SOCKET = {
    SocketState.TASKS: (),
    SocketState.LENT: (SocketMove.LEND,),
    SocketState.WORKING: (SocketMove.LEND, SocketMove.START),
    SocketState.RETURNING: (SocketMove.LEND, SocketMove.START, SocketMove.COME_BACK),
    SocketState.OVER: (SocketMove.END,),
}
TO_OUTGOING = {
    OutgoingState.WRITER: (),
    OutgoingState.LEFT: (OutgoingMove.LEAVE,),
    OutgoingState.LENT: (OutgoingMove.LEAVE, OutgoingMove.LEND),
}


def check(turn: Any, state: Enum, move: Enum, moves: Mapping[tuple[Any, Any], Enum]) -> None:
    """Makes a move in a state, and expects what the table says."""
    assert turn.state is state
    after = moves.get((state, move))
    if after is None:
        with pytest.raises(LocalProtocolError, match=f"{move.name} is not allowed while"):
            turn.move(move)
    else:
        turn.move(move)
    assert turn.state is (after or state)


@pytest.mark.parametrize(("state", "move"), list(product(SocketState, SocketMove)))
def test_the_socket_moves_as_its_table_says(state: SocketState, move: SocketMove) -> None:
    turn = SocketTurn()
    for step in TO_SOCKET[state]:
        turn.move(step)
    check(turn, state, move, SOCKET_MOVES)
    assert turn.is_working == (turn.state is SocketState.WORKING)
    assert turn.is_back == (turn.state in (SocketState.TASKS, SocketState.OVER))


@pytest.mark.parametrize(("state", "move"), list(product(OutgoingState, OutgoingMove)))
def test_queues_that_go_out_move_as_their_table_says(
    state: OutgoingState, move: OutgoingMove
) -> None:
    turn = OutgoingTurn()
    for step in TO_OUTGOING[state]:
        turn.move(step)
    check(turn, state, move, OUTGOING_MOVES)
    assert turn.is_writers == (turn.state is OutgoingState.WRITER)
    assert turn.is_lent == (turn.state is OutgoingState.LENT)


@pytest.mark.parametrize("last", [SocketMove.TAKE, SocketMove.END])
async def test_who_waits_for_the_socket_goes_on_when_it_is_back_or_over(
    autojump_clock: trio.testing.MockClock, last: SocketMove
) -> None:
    turn = SocketTurn()
    is_back = trio.Event()

    async def wait() -> None:
        await turn.back()
        is_back.set()

    turn.move(SocketMove.LEND)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for move in (SocketMove.START, SocketMove.COME_BACK):
            turn.move(move)
            await trio.sleep(1)
            assert not is_back.is_set()
        turn.move(last)
        await is_back.wait()


def is_lent(host: Sink | Source) -> bool:
    """True while a live pump runs."""
    return any(pump._shared.turn.is_working for pump in host.endpoint._live)


@pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")
async def test_hosts_make_every_move_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pump is lent the socket, hands it back, gets it again, and the connection ends."""
    made: set[tuple[Enum, Enum]] = set()

    def noting(kind: Any) -> None:
        make = kind.move

        def move(self: Any, move: Any) -> None:
            before = self.state
            make(self, move)
            made.add((before, move))

        monkeypatch.setattr(kind, "move", move)

    noting(SocketTurn)
    noting(OutgoingTurn)
    path, copy = tmp_path / "q", tmp_path / "copy"
    with Queue.open(path, create="FAST_DAILY") as queue:
        async with (
            serve_sink({"q": copy}, listen="127.0.0.1:0") as sink,
            serve_source({"q": path}, connect=f"127.0.0.1:{sink.port}") as source,
        ):
            for nth in range(3):
                queue.append(b"%d" % nth)
                await copied(path, copy)
                for host in (sink, source):
                    await eventually(partial(is_lent, host))
                    (pump,) = host.endpoint._live
                    await pump.have_back()
                    pump.look()
    usual = {pair for pair in SOCKET_MOVES if SocketMove.END not in pair}
    assert made >= usual | OUTGOING_MOVES.keys()
    assert {move for _, move in made} >= {SocketMove.END}
