"""Every state and every legal move of the replication protocol, as tables.

Handlers look their moves up here. A move that is not in the table is an error: the caller's when
our own side asked for it, the peer's when a message did. So do those who share a connection's
socket, of which the peer sees nothing: the tables say who may receive and send.
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
    """What moves a connection."""

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
    """What moves a queue on the source's side."""

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
    """What moves a queue on the sink's side."""

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
    RETURNING = auto()  # the pump is back, and what it has left is not taken yet: nobody does
    OVER = auto()  # the connection is over, or what a pump held is lost, and nobody waits for it


class SocketMove(Enum):
    """What moves the socket."""

    LEND = auto()
    START = auto()
    COME_BACK = auto()
    TAKE = auto()  # what the pump has left, and what it has heard
    END = auto()


class OutgoingState(Enum):
    """The queues of one connection that go out: who looks for what is new in them."""

    WRITER = auto()  # the writer task
    LEFT = auto()  # nobody: the writer has left them to the live pump, which has not got them
    LENT = auto()  # the live pump that runs


class OutgoingMove(Enum):
    """What moves the queues that go out."""

    LEAVE = auto()
    LEND = auto()
    COME_BACK = auto()
    TAKE_BACK = auto()


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
