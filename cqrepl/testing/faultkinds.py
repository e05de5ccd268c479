"""The kinds of faults: where they happen, and how often they are drawn."""

from enum import Enum
from typing import Final


class Kind(Enum):
    """A fault; with its weight in the schedule."""

    KILL = "kill"  # of the replication's process
    KILL_AT_CALL = "kill-at-call"  # in the middle of what it does
    KILL_APPLICATION = "kill-application"
    FREEZE = "freeze"  # replication stands still, and goes on later
    STOP = "stop"  # in order, and a start later
    CUT = "cut"  # a connection breaks
    STALL = "stall"  # nothing comes through, both ways
    STALL_ONE_WAY = "stall-one-way"
    SWALLOW = "swallow"  # nothing comes through, and what was sent is lost
    SPLIT = "split"  # bytes come in pieces
    SLOW = "slow"
    DISK_FULL = "disk-full"
    DISK_ERROR = "disk-error"  # of one call
    DISK_SLOW = "disk-slow"
    BIT_FLIP = "bit-flip"  # what was sent is not what is stored
    CLOCK_STEP = "clock-step"
    LIAR = "liar"  # a peer connects that says what is not true
    POWER_CUT = "power-cut"
    POWER_CUT_AT_CALL = "power-cut-at-call"  # which changes a file, or brings it to the disk
    # what operators do
    GC = "gc"  # at the source
    ANEW = "anew"  # the source's queue is made anew, and its sinks keep theirs
    RESTORED = "restored"  # the source's queue comes back as a backup has it
    FOREIGN = "foreign"  # a sink is started in the directory of another queue
    SAME_DIRECTORY = "same-directory"  # a sink is started in the source's own directory
    FILE_GONE = "file-gone"  # a store file in the middle is removed
    FILE_OLD = "file-old"  # a closed store file becomes what it was while it was written
    MOVED_AWAY = "moved-away"  # a sink's directory, under it; and back, with another start
    ACK_LOG = "ack-log"  # the source logs acknowledgements into the queue that it streams
    # what a peer does that is no sink of ours
    INTRUDER = "intruder"  # says that it has more than the source, and gives it
    # of hosts that are source and sink at once
    CUT_INSIDE = "cut-inside"  # a connection breaks after so many bytes more
    FLOOD = "flood"  # two hosts have much for each other, all at once; or those of one queue
    # what operators tell hosts of one queue
    PAUSE = "pause"  # and resume
    PROMOTE = "promote"  # a host, by the plan that is printed first
    STEP_DOWN = "step-down"  # who leads gives that up, and a host is promoted
    FAIL_OVER = "fail-over"  # the same while the one that leads is away, which comes back
    NEW_MASTER = "new-master"  # by the file, with reloads
    OTHER_QUEUE = "other-queue"  # is added to the file, or removed from it
    LIMIT = "limit"  # of the file
    # what a user has brought
    OWN = "own"


WEIGHTS: Final = {
    Kind.KILL: 6,
    Kind.KILL_AT_CALL: 4,
    Kind.KILL_APPLICATION: 2,
    Kind.FREEZE: 3,
    Kind.STOP: 2,
    Kind.CUT: 6,
    Kind.STALL: 3,
    Kind.STALL_ONE_WAY: 3,
    Kind.SWALLOW: 3,
    Kind.SPLIT: 2,
    Kind.SLOW: 2,
    Kind.DISK_FULL: 2,
    Kind.DISK_ERROR: 2,
    Kind.DISK_SLOW: 2,
    Kind.BIT_FLIP: 1,
    Kind.CLOCK_STEP: 2,
    Kind.LIAR: 3,
    Kind.POWER_CUT: 2,
    Kind.POWER_CUT_AT_CALL: 1,
    Kind.GC: 1,
    Kind.ANEW: 1,
    Kind.RESTORED: 1,
    Kind.FOREIGN: 1,
    Kind.SAME_DIRECTORY: 1,
    Kind.FILE_GONE: 1,
    Kind.FILE_OLD: 1,
    Kind.MOVED_AWAY: 1,
    Kind.ACK_LOG: 1,
    Kind.INTRUDER: 1,
}
SERVICE_FIRST: Final = 101  # number of the first machine that has a service
FAULT_EVERY_SECONDS_AT_SERVICES: Final = 8.0
FAULT_EVERY_SECONDS_OWN: Final = 8.0
WEIGHTS_AT_SERVICES: Final = {
    Kind.KILL: 6,
    Kind.KILL_AT_CALL: 2,
    Kind.FREEZE: 3,
    Kind.STOP: 2,
    Kind.CUT: 6,
    Kind.STALL: 3,
    Kind.STALL_ONE_WAY: 3,
    Kind.SWALLOW: 3,
    Kind.SPLIT: 2,
    Kind.SLOW: 2,
    Kind.DISK_FULL: 1,
    Kind.DISK_ERROR: 1,
    Kind.CLOCK_STEP: 1,
    Kind.POWER_CUT: 2,
    Kind.POWER_CUT_AT_CALL: 1,
}
INSIDE: Final = {Kind.CUT_INSIDE: 8, Kind.FLOOD: 4}  # documents, and full sockets
WEIGHTS_BOTH_WAYS: Final = WEIGHTS | INSIDE
WEIGHTS_CHANGING: Final = {
    Kind.KILL: 4,
    Kind.KILL_AT_CALL: 4,
    Kind.FREEZE: 2,
    Kind.STOP: 2,
    Kind.CUT: 3,
    Kind.STALL: 2,
    Kind.STALL_ONE_WAY: 2,
    Kind.SWALLOW: 2,
    Kind.SPLIT: 1,
    Kind.SLOW: 2,
    Kind.DISK_FULL: 1,
    Kind.DISK_ERROR: 1,
    Kind.DISK_SLOW: 1,
    Kind.CLOCK_STEP: 1,
    Kind.POWER_CUT: 2,
    Kind.POWER_CUT_AT_CALL: 1,
    Kind.PAUSE: 3,
    Kind.PROMOTE: 6,
    Kind.FAIL_OVER: 6,
}
WEIGHTS_ELECTED: Final[dict[Kind, int]] = {
    **{
        kind: weight
        for kind, weight in WEIGHTS_CHANGING.items()
        if kind not in (Kind.PAUSE, Kind.PROMOTE, Kind.FAIL_OVER)
    },
    Kind.KILL: 6,
    Kind.FREEZE: 5,
    Kind.CUT: 4,
    Kind.STALL: 4,
    Kind.STALL_ONE_WAY: 4,
    Kind.CLOCK_STEP: 3,
    Kind.PROMOTE: 1,
    Kind.STEP_DOWN: 1,
}
BY_RELOADS: Final = frozenset({Kind.NEW_MASTER, Kind.OTHER_QUEUE, Kind.LIMIT})
WEIGHTS_RELOADING: Final = {
    kind: weight
    for kind, weight in WEIGHTS_CHANGING.items()
    if kind not in (Kind.PROMOTE, Kind.FAIL_OVER)
} | {Kind.NEW_MASTER: 10, Kind.OTHER_QUEUE: 5, Kind.LIMIT: 1, Kind.PROMOTE: 1}
SHARE_RELOADING: Final = 0.4  # of clusters of one queue: by promotions a file counts no more
BY_OPERATORS: Final = BY_RELOADS | {
    Kind.PAUSE,
    Kind.PROMOTE,
    Kind.FAIL_OVER,
    Kind.STEP_DOWN,
}
SHARE_STEPPING_DOWN: Final = 1 / 3  # of the clusters whose roles change
STEP_DOWN_EVERY_SECONDS: Final = 10.0
AT_LINKS: Final = frozenset(
    {
        Kind.CUT,
        Kind.STALL,
        Kind.STALL_ONE_WAY,
        Kind.SWALLOW,
        Kind.SPLIT,
        Kind.SLOW,
        Kind.CUT_INSIDE,
        Kind.FLOOD,
    }
)
AT_THE_SOURCE: Final = frozenset(
    {
        Kind.KILL_APPLICATION,
        Kind.LIAR,
        Kind.GC,
        Kind.ANEW,
        Kind.RESTORED,
        Kind.ACK_LOG,
        Kind.INTRUDER,
    }
)
AT_SINKS: Final = frozenset({Kind.FOREIGN, Kind.SAME_DIRECTORY, Kind.MOVED_AWAY, Kind.BIT_FLIP})
AT_FILES: Final = frozenset({Kind.FILE_GONE, Kind.FILE_OLD})
AT_ONCE: Final = frozenset(
    {
        Kind.CUT,
        Kind.CLOCK_STEP,
        Kind.GC,
        Kind.FILE_GONE,
        Kind.DISK_ERROR,
        Kind.BIT_FLIP,
        Kind.CUT_INSIDE,
        Kind.FLOOD,
    }
)
AT_A_CALL: Final = frozenset({Kind.KILL_AT_CALL, Kind.POWER_CUT_AT_CALL, Kind.DISK_ERROR})
