"""The life of a queue on a host: every state, every legal move, and the reason of each state.

Theory of operation. A queue goes on, or it does not for now, or it does no more before an operator
has looked. Each part of a host that has a say moves the queue by these tables; each that asks reads
the state. A word of an operator, or of a promotion, is a machine of its own beside the rest
(`HoldState`): once a queue is let go on, it is what it was before, or has become meanwhile.

A state that keeps a queue from going on has a `Reason`, which comes with the move that begins it,
and goes with the state. A move that a table lacks is a mistake of ours, never of a peer's: where a
peer has the choice, the caller tries it (`try_move`). There is no clock here: when a queue is tried
again, its schedule says (`replicator/queuestate/pause`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, TypeVar

from cqrepl.protocol.events import StopReason


class ReasonKind(Enum):
    """The kind of a reason: what keeps a queue from going on."""

    BY_HAND = auto()  # an operator has paused it
    TURNS = auto()  # another host is to lead it, or leads it
    REMOVED = auto()  # it is not to be replicated here any more
    DISK = auto()  # no room is left on a disk
    DESCRIPTORS = auto()  # the process may open no more files
    RIGHTS = auto()  # files may not be read or written
    CLOCK = auto()  # what comes is of times to come: a clock is wrong, here or at the source
    MACHINE = auto()  # the system has failed otherwise, which may pass
    PEER = auto()  # the other host has met what keeps the queue from going on
    ANSWER = auto()  # the sink has not answered in time
    NO_QUEUE = auto()  # the directory holds none that can be read
    DIVERGED = auto()  # the two copies hold other bytes at the same index
    GAP = auto()  # an index is missing on one side
    DAMAGED = auto()  # a file of the queue breaks the format
    TOO_LONG = auto()  # an excerpt is longer than may be sent
    REFUSED = auto()  # the two queues are not alike, or one is not to be had
    FENCED = auto()  # another host leads the queue by a later epoch
    FAILED = auto()  # reading or writing the queue failed otherwise

    @classmethod
    def of_stop(cls, reason: StopReason) -> "ReasonKind":
        """The kind of a stop of which no more is known than what goes over the wire."""
        return cls.ANSWER if reason is StopReason.NO_ANSWER else cls[reason.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason why a queue does not go on: its kind, and a sentence for people and peers."""

    kind: ReasonKind = field(compare=False)
    message: str


class CopyState(Enum):
    """A queue that is taken in. A connection has it while excerpts of it may come there."""

    WAITING = auto()  # nothing keeps it from being taken; no connection has it
    LIVE = auto()  # a connection has it
    PAUSED = auto()  # nothing of it gets through for now; it is offered again
    RETRIED = auto()  # a connection has it; since it paused nothing has got through
    LEFT = auto()  # its source goes no further with it; another offer may
    LEFT_OPEN = auto()  # the same; a connection still has it
    STOPPED = auto()  # it goes no further before an operator or another source helps
    STOPPED_OPEN = auto()  # the same; a connection still has it


class CopyMove(Enum):
    """The moves of a queue that is taken in."""

    TAKE = auto()  # a connection takes it, by an offer
    GIVE_BACK = auto()  # no connection has it any more
    PAUSE = auto()  # this machine, or its source, cannot go on with it for now
    GO_ON = auto()  # something has got through, or nothing is to come
    LEAVE = auto()  # its source says that it goes no further
    STOP = auto()  # it is found to go no further
    BEGIN_ANEW = auto()  # what kept it is mended, or another offer is tried


class StreamedState(Enum):
    """A queue that is streamed, whatever sinks there are."""

    UNOPENED = auto()  # it is not open yet, and is tried again by itself
    AWAITED = auto()  # it is passed on once its copy here is ready
    UNREADABLE = auto()  # it is not open, and is not before an operator has looked
    OPEN = auto()  # it goes out to each sink that takes it
    STOPPED = auto()  # it is open, and goes no further to any sink


class StreamedMove(Enum):
    """The moves of a queue that is streamed."""

    FAIL = auto()  # the machine keeps it from being opened for now
    AWAIT = auto()  # its copy here is not ready
    GIVE_UP = auto()  # its directory holds nothing that can be streamed
    OPEN = auto()  # it is open
    STOP = auto()  # it is found to go no further
    BEGIN_ANEW = auto()  # what it was stopped for is mended, or an operator lets it go on


class ToSinkState(Enum):
    """A queue that is streamed, on its way to one sink, from its offer on."""

    OFFERED = auto()  # the sink owes the answer, a proof, or what it gives back
    OVERDUE = auto()  # the sink has not answered in time, and may yet
    LIVE = auto()  # its stream is on
    CALLED_OFF = auto()  # it is about to be let go of; its stream has not begun
    LEAVING = auto()  # it is about to be let go of; no live pump gets it any more
    PAUSED = auto()  # nothing of it goes out for now, and its sink does not know of that
    STOPPED = auto()  # it goes no further on this connection


class ToSinkMove(Enum):
    """The moves of a queue on its way to one sink. One that is let go of so that its sink knows is
    offered again, as a new one."""

    MISS = auto()  # the time for the answer is over
    START = auto()  # the sink wants everything from an index on
    LET_GO = auto()  # an operator, or a promotion, holds the queue
    PAUSE = auto()  # it is held back where it stands
    GO_ON = auto()  # it goes on from there
    STOP = auto()  # either side has stopped it


class ReadState(Enum):
    """A queue that is streamed to one sink: whether this host can read it."""

    READ = auto()  # as far as is known it can
    PAUSED = auto()  # it cannot for now; it is not to be tried yet
    RETRIED = auto()  # it is tried again; nothing was read since


class ReadMove(Enum):
    """The moves of what can be read."""

    PAUSE = auto()  # it cannot be read, or the sink has not answered in time
    RETRY = auto()  # the time to try again has come
    GO_ON = auto()  # something was read, or there is nothing to be read yet


class TakeState(Enum):
    """A queue that is streamed to one sink: whether that sink takes it, as it says."""

    TAKEN = auto()  # it has said nothing else
    LET_GO = auto()  # it has let go of it, or owes an answer; nothing got through since


class TakeMove(Enum):
    """The moves of whether the sink takes it."""

    LET_GO = auto()  # it says so, or its time to answer is over
    GO_ON = auto()  # it has taken something, or has all there is


class HoldState(Enum):
    """A word that keeps a queue from going on, beside all else that may."""

    FREE = auto()  # there is none
    HELD = auto()  # an operator has paused it, or it is about to be led from elsewhere


class HoldMove(Enum):
    """The moves of that word."""

    HOLD = auto()  # it goes no further from now on, or for another reason than before
    FREE = auto()  # it may go on


_C, _CM = CopyState, CopyMove
_OPEN_AS: Final = {  # a state that no connection has a part in, and the same where one has
    _C.WAITING: _C.LIVE,
    _C.PAUSED: _C.RETRIED,
    _C.LEFT: _C.LEFT_OPEN,
    _C.STOPPED: _C.STOPPED_OPEN,
}
COPY_MOVES: Final[Mapping[tuple[CopyState, CopyMove], CopyState]] = {
    (_C.WAITING, _CM.TAKE): _C.LIVE,
    (_C.PAUSED, _CM.TAKE): _C.RETRIED,
    (_C.LEFT, _CM.TAKE): _C.LIVE,
    (_C.STOPPED, _CM.TAKE): _C.STOPPED_OPEN,  # it has stopped since the offer was let in
    **{(taken, _CM.GIVE_BACK): free for free, taken in _OPEN_AS.items()},
    **{(state, _CM.PAUSE): _C.PAUSED for state in (_C.WAITING, _C.PAUSED)},
    **{(state, _CM.PAUSE): _C.RETRIED for state in (_C.LIVE, _C.RETRIED)},
    (_C.PAUSED, _CM.GO_ON): _C.WAITING,
    (_C.RETRIED, _CM.GO_ON): _C.LIVE,
    **{(state, _CM.LEAVE): _C.LEFT for state in (_C.WAITING, _C.PAUSED, _C.LEFT)},
    **{(state, _CM.LEAVE): _C.LEFT_OPEN for state in (_C.LIVE, _C.RETRIED, _C.LEFT_OPEN)},
    **{(free, _CM.STOP): _C.STOPPED for free in _OPEN_AS},
    **{(taken, _CM.STOP): _C.STOPPED_OPEN for taken in _OPEN_AS.values()},
    **{(free, _CM.BEGIN_ANEW): _C.WAITING for free in _OPEN_AS},
    **{(taken, _CM.BEGIN_ANEW): _C.LIVE for taken in _OPEN_AS.values()},
}

_S, _SM = StreamedState, StreamedMove
_UNOPENED: Final = (_S.UNOPENED, _S.AWAITED, _S.UNREADABLE)
STREAMED_MOVES: Final[Mapping[tuple[StreamedState, StreamedMove], StreamedState]] = {
    **{(state, _SM.FAIL): _S.UNOPENED for state in _UNOPENED},
    **{(state, _SM.AWAIT): _S.AWAITED for state in _UNOPENED},
    **{(state, _SM.GIVE_UP): _S.UNREADABLE for state in _UNOPENED},
    **{(state, _SM.OPEN): _S.OPEN for state in _UNOPENED},
    **{(state, _SM.STOP): _S.STOPPED for state in (_S.OPEN, _S.STOPPED)},
    (_S.STOPPED, _SM.BEGIN_ANEW): _S.OPEN,
}

_O, _OM = ToSinkState, ToSinkMove
TO_SINK_MOVES: Final[Mapping[tuple[ToSinkState, ToSinkMove], ToSinkState]] = {
    **{(state, _OM.MISS): _O.OVERDUE for state in (_O.OFFERED, _O.OVERDUE)},
    (_O.CALLED_OFF, _OM.MISS): _O.CALLED_OFF,
    **{(state, _OM.START): _O.LIVE for state in (_O.OFFERED, _O.OVERDUE, _O.LIVE)},
    **{(state, _OM.START): _O.LEAVING for state in (_O.CALLED_OFF, _O.LEAVING)},
    **{(state, _OM.LET_GO): _O.CALLED_OFF for state in (_O.OFFERED, _O.OVERDUE, _O.CALLED_OFF)},
    **{(state, _OM.LET_GO): _O.LEAVING for state in (_O.LIVE, _O.LEAVING, _O.PAUSED)},
    **{(state, _OM.PAUSE): _O.PAUSED for state in (_O.LIVE, _O.LEAVING)},
    (_O.PAUSED, _OM.GO_ON): _O.LIVE,
    **{(state, _OM.STOP): _O.STOPPED for state in _O if state is not _O.STOPPED},
}

_R, _RM = ReadState, ReadMove
READ_MOVES: Final[Mapping[tuple[ReadState, ReadMove], ReadState]] = {
    **{(state, _RM.PAUSE): _R.PAUSED for state in _R},
    (_R.PAUSED, _RM.RETRY): _R.RETRIED,
    **{(state, _RM.GO_ON): _R.READ for state in (_R.PAUSED, _R.RETRIED)},
}

_T, _TM = TakeState, TakeMove
TAKE_MOVES: Final[Mapping[tuple[TakeState, TakeMove], TakeState]] = {
    **{(state, _TM.LET_GO): _T.LET_GO for state in _T},
    (_T.LET_GO, _TM.GO_ON): _T.TAKEN,
}

_H, _HM = HoldState, HoldMove
HOLD_MOVES: Final[Mapping[tuple[HoldState, HoldMove], HoldState]] = {
    **{(state, _HM.HOLD): _H.HELD for state in _H},
    **{(state, _HM.FREE): _H.FREE for state in _H},
}

# the move that a state has its reason from, and from a later one of its kind, that one's; a state
# without one has no reason
COPY_REASONS: Final[Mapping[CopyState, CopyMove]] = {
    **dict.fromkeys((_C.PAUSED, _C.RETRIED), _CM.PAUSE),
    **dict.fromkeys((_C.LEFT, _C.LEFT_OPEN), _CM.LEAVE),
    **dict.fromkeys((_C.STOPPED, _C.STOPPED_OPEN), _CM.STOP),
}
STREAMED_REASONS: Final[Mapping[StreamedState, StreamedMove]] = {
    _S.UNOPENED: _SM.FAIL,
    _S.AWAITED: _SM.AWAIT,
    _S.UNREADABLE: _SM.GIVE_UP,
    _S.STOPPED: _SM.STOP,
}
TO_SINK_REASONS: Final[Mapping[ToSinkState, ToSinkMove]] = {_O.STOPPED: _OM.STOP}
READ_REASONS: Final[Mapping[ReadState, ReadMove]] = dict.fromkeys(
    (_R.PAUSED, _R.RETRIED), _RM.PAUSE
)
TAKE_REASONS: Final[Mapping[TakeState, TakeMove]] = {_T.LET_GO: _TM.LET_GO}
HOLD_REASONS: Final[Mapping[HoldState, HoldMove]] = {_H.HELD: _HM.HOLD}

State = TypeVar("State", bound=Enum)
Move = TypeVar("Move", bound=Enum)
Why = TypeVar("Why", bound=Reason)


class QueueLife(Generic[State, Move, Why]):
    """One machine of one queue.

    Args:
        moves: the table.
        reasons: the move that each state which has a reason has it from.
        first: the state that it begins in.

    Attributes:
        reason: of the state; None where it has none.
    """

    def __init__(
        self,
        moves: Mapping[tuple[State, Move], State],
        reasons: Mapping[State, Move],
        first: State,
    ) -> None:
        self.state = first
        self.reason: Why | None = None
        self._moves = moves
        self._reasons = reasons

    def may(self, move: Move) -> bool:
        """True where the table has this move for the state."""
        return (self.state, move) in self._moves

    def try_move(self, move: Move, reason: Why | None = None) -> bool:
        """Passes into the state that the table names; false, and nothing is changed, where it has
        no such move.

        Args:
            reason: as of `move`.
        """
        is_legal = self.may(move)
        if is_legal:
            self.move(move, reason)
        return is_legal

    def move(self, move: Move, reason: Why | None = None) -> None:
        """Passes into the state that the table names.

        Args:
            reason: of a move that some state has its reason from.
        """
        after = self._moves.get((self.state, move))
        assert after is not None, f"{move.name} is not allowed while {self.state.name}"
        begins = self._reasons.get(after)
        assert (reason is not None) == (move in self._reasons.values())
        if begins is None:
            self.reason = None
        elif begins is move:
            self.reason = reason
        assert (self.reason is None) == (begins is None)
        self.state = after


class HoldLife(QueueLife[HoldState, HoldMove, Reason]):
    """The word that holds a queue."""

    def __init__(self) -> None:
        super().__init__(HOLD_MOVES, HOLD_REASONS, HoldState.FREE)

    def set(self, reason: Reason | None) -> None:
        """Holds it for a reason, or no more."""
        self.move(HoldMove.FREE if reason is None else HoldMove.HOLD, reason)


class StreamedLife(QueueLife[StreamedState, StreamedMove, Why]):
    """The life of a queue that is streamed.

    Attributes:
        hold: the word that keeps it from going out, whatever else does.
    """

    def __init__(self) -> None:
        super().__init__(STREAMED_MOVES, STREAMED_REASONS, StreamedState.UNOPENED)
        self.hold = HoldLife()

    def word(self, trouble: str | None = None) -> str:
        """The word that people see.

        Args:
            trouble: the reason why it cannot be read right now; None where it can.
        """
        if self.state in (StreamedState.STOPPED, StreamedState.UNREADABLE):
            assert self.reason is not None
            return f"stopped: {self.reason.message}"
        if self.hold.reason is not None:
            return "paused: by operator"
        paused = trouble if self.reason is None else self.reason.message
        return "live" if paused is None else f"paused: {paused}"


class ToSinkLife(QueueLife[ToSinkState, ToSinkMove, Why]):
    """The life of a queue on its way to one sink."""

    def __init__(self) -> None:
        super().__init__(TO_SINK_MOVES, TO_SINK_REASONS, ToSinkState.OFFERED)

    @property
    def word(self) -> str:
        """The word that people see while the sink takes it."""
        is_live = self.state is ToSinkState.LIVE or self.state is ToSinkState.LEAVING
        return "live" if is_live else "waits"


class CopyLife(QueueLife[CopyState, CopyMove, Why]):
    """The life of a queue that is taken in.

    Attributes:
        hold: the word that keeps it from being taken, whatever else does.
    """

    def __init__(self) -> None:
        super().__init__(COPY_MOVES, COPY_REASONS, CopyState.WAITING)
        self.hold = HoldLife()

    @property
    def is_free(self) -> bool:
        """True where no connection has it, and no word holds it."""
        return self.state in _OPEN_AS and self.hold.reason is None

    @property
    def is_paused(self) -> bool:
        """True while an operator has it paused."""
        reason = self.hold.reason
        return reason is not None and reason.kind is ReasonKind.BY_HAND

    @property
    def takes_on(self) -> bool:
        """False once it is to take nothing more."""
        state = self.state
        has_stopped = state is CopyState.STOPPED_OPEN or state is CopyState.STOPPED
        return not has_stopped and self.hold.reason is None

    @property
    def trouble(self) -> Why | None:
        """The reason why nothing gets through for now."""
        return self._reason_of(CopyMove.PAUSE)

    @property
    def stop(self) -> Why | None:
        """The reason why it goes no further."""
        return self._reason_of(CopyMove.STOP)

    @property
    def end(self) -> Why | None:
        """The reason why it goes no further, here or as its source says."""
        return self.stop or self._reason_of(CopyMove.LEAVE)

    def _reason_of(self, move: CopyMove) -> Why | None:
        return self.reason if COPY_REASONS.get(self.state) is move else None

    @property
    def word(self) -> str:
        """The word that people see."""
        if self.end is not None:
            return f"stopped: {self.end.message}"
        if self.hold.reason is not None:
            return "paused: by operator"
        if self.reason is not None:
            return f"paused: {self.reason.message}"
        return "waits" if self.state is CopyState.WAITING else "live"
