"""Every state and every legal move of the replication protocol, as tables.

Handlers look their moves up here. A move that is not in the table is an error: the caller's when
our own side asked for it, the peer's when a message did. The tasks and the live pump that share a
connection's socket look their moves up here too: these tables say which of them may receive and
send, and the peer sees nothing of that. The crate decides what native lanes do, by the same tables
(`native/kernel/src/live/lane_moves.rs`). Their moves are checked against these tables when a live
pump is back.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeVar

from cqrepl.protocol.errors import ProtocolError


class ConnectionState(Enum):
    """One connection, on either side."""

    WAITING = auto()  # the peer's UberHandler has not come
    OPEN = auto()  # both sides know each other; sub-handlers may be registered
    ENDING = auto()  # our TerminatorHandler is sent: nothing but the end of the stream follows
    CLOSED = auto()  # nothing is read or sent any more


class ConnectionMove(Enum):
    """The moves of a connection."""

    UBER_ACCEPTED = auto()
    TERMINATOR_SENT = auto()
    TERMINATOR_RECEIVED = auto()
    END = auto()  # end of stream, or an error of the peer's


class SourceState(Enum):
    """One queue on the source's side of one connection."""

    OFFERED = auto()  # the sink's handler is registered there; its answer has not come
    ANSWERED = auto()  # the sink has nothing that the source lacks; its `eos` has not come
    SINK_AHEAD = auto()  # the sink will copy back; the source queue is not locked yet
    BACK_COPY = auto()  # locked; excerpts come back until `eos`
    STREAMING = auto()  # excerpts go out, acknowledgements come in
    STOPPED = auto()  # a gap, a divergence or no answer: messages for it are dropped


class SourceMove(Enum):
    """The moves of a queue on the source's side."""

    ANSWER = auto()
    ANSWER_AHEAD = auto()
    LOCKED = auto()
    EXCERPTS_RECEIVED = auto()
    END_OF_STREAM = auto()
    FRAMED = auto()
    ACKNOWLEDGEMENT = auto()
    STOP = auto()


class SinkState(Enum):
    """One queue on the sink's side of one connection."""

    REGISTERED = auto()  # the source's registration came; our queue's position is not known yet
    ANSWERED = auto()  # where both can compare what they hold, the source has not said that it does
    BACK_COPY = auto()  # what the source lacks goes back
    RECEIVING = auto()  # `eos` is sent; excerpts come in, acknowledgements go out
    STOPPED = auto()  # a gap or a divergence: messages for it are dropped


class SinkMove(Enum):
    """The moves of a queue on the sink's side."""

    ANSWERED = auto()
    BACK_COPY_BEGUN = auto()
    FRAMED = auto()
    END_OF_STREAM_SENT = auto()
    EXCERPTS_RECEIVED = auto()
    STORED = auto()
    STOP = auto()


class SocketState(Enum):
    """The socket of one connection: its tasks have it, or its live pump."""

    TASKS = auto()  # the tasks receive and send
    LENT = auto()  # what came and was not taken is with the pump, which is about to run
    WORKING = auto()  # the pump runs: it alone receives and sends
    RETURNING = auto()  # the pump is back, what it left is not taken: no task sends or receives
    OVER = auto()  # the connection is over, or what a pump held is lost: no task waits for it


class SocketMove(Enum):
    """The moves of the socket."""

    LEND = auto()
    START = auto()
    COME_BACK = auto()
    TAKE = auto()  # what the pump has left, and what it has heard
    END = auto()


class OutgoingState(Enum):
    """The queues of one connection that go out: who looks for what is new in them."""

    WRITER = auto()  # the writer task
    LEFT = auto()  # neither: the writer has left them to the live pump, which has not got them
    LENT = auto()  # the live pump that runs


class OutgoingMove(Enum):
    """The moves of the queues that go out."""

    LEAVE = auto()
    LEND = auto()
    COME_BACK = auto()
    TAKE_BACK = auto()


class SourceLaneState(Enum):
    """A native lane of a queue that goes out, in one live pump after the other."""

    KEPT = auto()  # no pump has it, and the next one may go on with it
    LIVE = auto()  # a pump has it, and frames what appears
    BEHIND = auto()  # there was more than could be sent at the last look: live ones go first
    FOR_TAILER = auto()  # a pump has it and frames no more: the tailer has to look what is there
    LET_GO = auto()  # its file is not mapped any more


class SourceLaneMove(Enum):
    """The moves of a lane of a queue that goes out."""

    LEND = auto()  # a pump gets it, as one that may have nothing to catch up with
    LEND_BEHIND = auto()  # a pump gets it, as one that had more than could be sent
    FALL_BEHIND = auto()  # there was more than could be sent
    COME_UP = auto()  # all that was there is sent
    MEET_OTHER = auto()  # the end of a file, or what contradicts the walk
    COME_BACK = auto()  # the pump is back
    LET_GO = auto()  # its file is not needed any more


class SinkLaneState(Enum):
    """A native lane of a queue that comes in, in one live pump after the other."""

    KEPT = auto()  # no pump has it
    QUIET = auto()  # a pump has it, and what was stored is acknowledged, or is not to be
    DUE = auto()  # a pump has it, and holds an acknowledgement back
    REFUSED = auto()  # a pump has it and stores no more: the pen refuses what has come
    REFUSED_DUE = auto()  # the same, and an acknowledgement is held back
    LOST = auto()  # the connection broke while a pump had it


class SinkLaneMove(Enum):
    """The moves of a lane of a queue that comes in."""

    LEND = auto()  # a pump gets it
    STORE = auto()  # the first excerpts behind an acknowledgement are stored
    ACKNOWLEDGE = auto()  # what was stored is acknowledged, or the source asks for no word of it
    DISOWN = auto()  # what was stored is in a file without a name: it is never acknowledged
    REFUSE = auto()  # the pen refuses
    COME_BACK = auto()  # the pump is back
    LOSE = auto()  # the connection breaks


_C, _CM = ConnectionState, ConnectionMove
CONNECTION_MOVES: Final[Mapping[tuple[ConnectionState, ConnectionMove], ConnectionState]] = {
    (_C.WAITING, _CM.UBER_ACCEPTED): _C.OPEN,
    (_C.WAITING, _CM.END): _C.CLOSED,
    (_C.OPEN, _CM.TERMINATOR_SENT): _C.ENDING,
    (_C.OPEN, _CM.TERMINATOR_RECEIVED): _C.CLOSED,
    (_C.OPEN, _CM.END): _C.CLOSED,
    (_C.ENDING, _CM.TERMINATOR_RECEIVED): _C.CLOSED,  # both sides ended at the same time
    (_C.ENDING, _CM.END): _C.CLOSED,
    (_C.CLOSED, _CM.END): _C.CLOSED,
}

_S, _SM = SourceState, SourceMove
SOURCE_MOVES: Final[Mapping[tuple[SourceState, SourceMove], SourceState]] = {
    (_S.OFFERED, _SM.ANSWER): _S.ANSWERED,
    (_S.OFFERED, _SM.ANSWER_AHEAD): _S.SINK_AHEAD,
    (_S.ANSWERED, _SM.END_OF_STREAM): _S.STREAMING,
    (_S.SINK_AHEAD, _SM.LOCKED): _S.BACK_COPY,
    (_S.BACK_COPY, _SM.EXCERPTS_RECEIVED): _S.BACK_COPY,
    (_S.BACK_COPY, _SM.END_OF_STREAM): _S.STREAMING,
    (_S.STREAMING, _SM.FRAMED): _S.STREAMING,
    (_S.STREAMING, _SM.ACKNOWLEDGEMENT): _S.STREAMING,
    **{(state, _SM.STOP): _S.STOPPED for state in _S},
}

_K, _KM = SinkState, SinkMove
SINK_MOVES: Final[Mapping[tuple[SinkState, SinkMove], SinkState]] = {
    (_K.REGISTERED, _KM.ANSWERED): _K.ANSWERED,
    (_K.ANSWERED, _KM.BACK_COPY_BEGUN): _K.BACK_COPY,
    (_K.BACK_COPY, _KM.FRAMED): _K.BACK_COPY,
    (_K.BACK_COPY, _KM.END_OF_STREAM_SENT): _K.RECEIVING,
    (_K.RECEIVING, _KM.EXCERPTS_RECEIVED): _K.RECEIVING,
    (_K.RECEIVING, _KM.STORED): _K.RECEIVING,
    **{(state, _KM.STOP): _K.STOPPED for state in _K},
}

_T, _TM = SocketState, SocketMove
SOCKET_MOVES: Final[Mapping[tuple[SocketState, SocketMove], SocketState]] = {
    (_T.TASKS, _TM.LEND): _T.LENT,
    (_T.LENT, _TM.START): _T.WORKING,
    (_T.WORKING, _TM.COME_BACK): _T.RETURNING,
    (_T.RETURNING, _TM.TAKE): _T.TASKS,
    **{(state, _TM.END): _T.OVER for state in _T},
}

_O, _OM = OutgoingState, OutgoingMove
OUTGOING_MOVES: Final[Mapping[tuple[OutgoingState, OutgoingMove], OutgoingState]] = {
    (_O.WRITER, _OM.LEAVE): _O.LEFT,
    (_O.LEFT, _OM.LEND): _O.LENT,
    (_O.LENT, _OM.COME_BACK): _O.LEFT,
    (_O.LEFT, _OM.TAKE_BACK): _O.WRITER,
}

_L, _LM = SourceLaneState, SourceLaneMove
SOURCE_LANE_MOVES: Final[Mapping[tuple[SourceLaneState, SourceLaneMove], SourceLaneState]] = {
    (_L.KEPT, _LM.LEND): _L.LIVE,
    (_L.KEPT, _LM.LEND_BEHIND): _L.BEHIND,
    (_L.LIVE, _LM.FALL_BEHIND): _L.BEHIND,
    (_L.BEHIND, _LM.COME_UP): _L.LIVE,
    (_L.LIVE, _LM.MEET_OTHER): _L.FOR_TAILER,
    (_L.BEHIND, _LM.MEET_OTHER): _L.FOR_TAILER,
    **{(state, _LM.COME_BACK): _L.KEPT for state in (_L.LIVE, _L.BEHIND, _L.FOR_TAILER)},
    (_L.KEPT, _LM.LET_GO): _L.LET_GO,
}

_I, _IM = SinkLaneState, SinkLaneMove
SINK_LANE_MOVES: Final[Mapping[tuple[SinkLaneState, SinkLaneMove], SinkLaneState]] = {
    (_I.KEPT, _IM.LEND): _I.QUIET,
    (_I.QUIET, _IM.STORE): _I.DUE,
    (_I.DUE, _IM.ACKNOWLEDGE): _I.QUIET,
    (_I.DUE, _IM.DISOWN): _I.QUIET,
    (_I.QUIET, _IM.REFUSE): _I.REFUSED,
    (_I.DUE, _IM.REFUSE): _I.REFUSED_DUE,
    (_I.REFUSED_DUE, _IM.ACKNOWLEDGE): _I.REFUSED,
    (_I.REFUSED_DUE, _IM.DISOWN): _I.REFUSED,
    (_I.QUIET, _IM.COME_BACK): _I.KEPT,
    (_I.REFUSED, _IM.COME_BACK): _I.KEPT,
    **{(state, _IM.LOSE): _I.LOST for state in (_I.QUIET, _I.DUE, _I.REFUSED, _I.REFUSED_DUE)},
}

State = TypeVar("State", bound=Enum)
Move = TypeVar("Move", bound=Enum)


def moved(
    table: Mapping[tuple[State, Move], State],
    state: State,
    move: Move,
    error: type[ProtocolError],
    where: str,
) -> State:
    """The state after `move`.

    Raises:
        error: the table has no such move; the message names state, move and `where`.
    """
    after = table.get((state, move))
    if after is None:
        raise error(f"{move.name} is not allowed while {state.name} ({where})")
    return after
