"""The states of one led queue at a member that elects, and every legal move between them."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class ElectionState(Enum):
    """A queue whose leader is elected, as one of its members sees it."""

    FOLLOWING = auto()  # it hears the leader; or less than a lease ago it did, promised, or began
    MISSING = auto()  # it has heard no leader for a lease
    ASKING = auto()  # it asks the other members how far their copies are
    WAITING = auto()  # it waits for a random time, so that two members rarely fence at once
    FENCING = auto()  # it asks the copies for their promises
    LEADING = auto()  # it leads
    OFF = auto()  # a member cannot elect: nothing is done without an operator


class ElectionMove(Enum):
    """The moves of such a queue at one member."""

    SWITCH_OFF = auto()  # a member is there that cannot elect
    SWITCH_ON = auto()  # all members that are known can elect
    HEAR = auto()  # another host says that it leads, or was promised an epoch
    MISS = auto()  # a lease is over, and the leader was not heard
    ASK = auto()  # a majority is connected
    ANSWER = auto()  # a majority hears no leader either
    PUT_OFF = auto()  # another member hears the leader, or no majority is there any more
    FENCE = auto()  # the random time is over
    REFUSE = auto()  # too few copies have promised
    LEAD = auto()  # its epoch has begun
    STEP_DOWN = auto()  # it leads no longer


_S, _M = ElectionState, ElectionMove
_SEEKING: Final = (_S.MISSING, _S.ASKING, _S.WAITING, _S.FENCING)
ELECTION_MOVES: Final[Mapping[tuple[ElectionState, ElectionMove], ElectionState]] = {
    **{(state, _M.SWITCH_OFF): _S.OFF for state in _S},
    (_S.OFF, _M.SWITCH_ON): _S.FOLLOWING,
    **{(state, _M.HEAR): _S.FOLLOWING for state in _S if state is not _S.OFF},
    (_S.FOLLOWING, _M.MISS): _S.MISSING,
    (_S.MISSING, _M.ASK): _S.ASKING,
    (_S.ASKING, _M.ANSWER): _S.WAITING,
    **{(state, _M.PUT_OFF): _S.MISSING for state in (_S.ASKING, _S.WAITING)},
    (_S.WAITING, _M.FENCE): _S.FENCING,
    (_S.FENCING, _M.REFUSE): _S.MISSING,
    # an operator promotes this host, whatever it hears
    **{(state, _M.LEAD): _S.LEADING for state in (_S.FOLLOWING, *_SEEKING)},
    (_S.LEADING, _M.STEP_DOWN): _S.MISSING,
}
