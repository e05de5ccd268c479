"""The events that the core tells the shell. The shell acts on them, and answers through the
connection's methods."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from cqrepl.kernel.interface import AckLevel
from cqrepl.protocol.cid import Cid
from cqrepl.protocol.messages import ReplicationHandler
from cqrepl.protocol.messages.excerpts import Promise
from cqrepl.protocol.messages.offer import Lineage
from cqrepl.queue.format.excerptbatch import ExcerptBatch
from cqrepl.queue.format.identity import Identity
from cqrepl.queue.format.index import Index
from cqrepl.queue.format.tailerposition import TailerPosition


class StopReason(Enum):
    """The reason that a queue is not replicated any further on this connection."""

    GAP = "gap"  # an index is missing on one side
    DIVERGED = "diverged"  # the two sides hold other bytes at the same index
    REFUSED = "refused"  # other roll cycle, other index layout
    FENCED = "fenced"  # another host leads the queue now
    NO_ANSWER = "no answer"  # the sink did not answer the registration in time
    DAMAGED = "damaged"  # a file of the queue breaks the format
    FAILED = "failed"  # reading or writing the queue failed otherwise

    @classmethod
    def said(cls, text: str) -> "StopReason":
        """The reason that a peer gives; one that we do not know is a failure of its own."""
        return next((reason for reason in cls if reason.value == text), cls.FAILED)


_BY_PEER: Final = "the peer says: "


def printable(text: str) -> str:
    """A peer's text without anything that could be taken for a line of ours."""
    return "".join(each if each.isprintable() else "?" for each in text)


def said_by_peer(message: str) -> str:
    """A peer's message about a stop, printable and marked as the peer's. It is marked once, however
    often it went to and fro."""
    shown = printable(message)
    return shown if shown.startswith(_BY_PEER) else _BY_PEER + shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """Both UberHandlers were exchanged and accepted."""

    remote_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffered:
    """A source registered a queue that this sink was told to accept: answer or refuse it."""

    cid: Cid
    name: str
    offer: ReplicationHandler


@dataclass(frozen=True, slots=True, kw_only=True)
class BackCopyWanted:
    """The source lacks excerpts from `index_first` on: frame them, then end the back copy."""

    cid: Cid
    name: str
    index_first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageClaimed:
    """The lineage that a sink claims, up to the shorter of the two ends, `index`. Compare it with
    the source's before acting on anything else, and stop the queue if it differs."""

    cid: Cid
    name: str
    index: int
    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageProved:
    """The source holds what our sink queue does, up to the shorter end, which is `index`: keep all
    other writers out of the queue, and go on."""

    cid: Cid
    name: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnTaken:
    """The source has appended, or found equal, all that our sink queue gave back: it holds what
    that queue held before `index`, a next one."""

    cid: Cid
    name: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityTold:
    """The identity of the queue that our copy is of. A copy without an identity takes this one."""

    cid: Cid
    name: str
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofAsked:
    """The source looks for where the two begin to differ: tell what we hold before an index."""

    cid: Cid
    name: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofGiven:
    """The lineage that the sink holds before the index that was asked for. It has no chains where
    the sink does not hold all before the index."""

    cid: Cid
    name: str
    index: int
    lineage: Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyAudited:
    """The sink has read what came from its files once more, up to `index`, a next one: the chain
    over all before it in its cycle."""

    cid: Cid
    name: str
    index: Index
    chain: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAhead:
    """The sink has excerpts up to `next_index` that the source lacks: lock the source queue."""

    cid: Cid
    name: str
    next_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingStarted:
    """The back copy is over: stream from the first excerpt at or after `next_index`."""

    cid: Cid
    name: str
    next_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendExcerpts:
    """These follow directly: append them, then say `stored`. Views: valid while they are kept."""

    cid: Cid
    name: str
    batch: ExcerptBatch
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareExcerpts:
    """These were stored before: compare them byte for byte, then say `stored`.

    In a back copy they come in order from the index that was offered: none of ours may be left out.
    """

    cid: Cid
    name: str
    batch: ExcerptBatch
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """The sink has stored everything up to `index`; `ns` is the source's clock when it was sent."""

    cid: Cid
    name: str
    index: int
    ns: int
    excerpts: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelReached:
    """At the sink a level beyond appended is true of everything up to `index`."""

    cid: Cid
    name: str
    level: AckLevel
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelKeptBack:
    """The sink says why a level beyond appended is true of no more there; an empty text: nothing
    keeps it back any more."""

    cid: Cid
    name: str
    level: AckLevel
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMoved:
    """The source's policy calls its queue safe up to `index`."""

    cid: Cid
    name: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TailerMoved:
    """A named tailer stands there at the source: everything before it is in the copy."""

    cid: Cid
    name: str
    position: TailerPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelWanted:
    """The source waits for this level of what it sends: tell it as soon as it is reached."""

    cid: Cid
    name: str
    level: AckLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStopped:
    """This queue goes no further on this connection; the connection and other queues do.

    `by_peer`: the other side has stopped it, and says why. That ends this connection's stream; the
    queue itself goes no further only when the copies differ. `index` is the first one that they
    differ at, where the side that stopped has found it. `promise`: what a sink has promised that
    refuses a source of a lower epoch.
    """

    cid: Cid
    name: str
    reason: StopReason
    message: str
    by_peer: bool = False
    index: int | None = None
    promise: Promise | None = None

    @property
    def is_final(self) -> bool:
        """True when another connection could do no better."""
        is_for_peer = self.by_peer or self.reason is StopReason.NO_ANSWER
        return not is_for_peer or self.reason is StopReason.DIVERGED


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOverdue:
    """The sink has not answered the offer of this queue in time, or not had its stream begin. The
    offer stands: where it answers after all, the stream begins."""

    cid: Cid
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWithdrawn:
    """The peer has ended this queue on this connection; it may be offered again."""

    cid: Cid
    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesNamed:
    """The peer's list of queues has ended, or it has named more since.

    Args:
        sinks: those of them that it would take in; `Connection.peer_queues` has all of them.
    """

    sinks: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An event that a program's own handler tells the program's shell.

    Args:
        program: number of that program, in the order of `ConnectionConfig.programs`.
    """

    event: object
    program: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRefused:
    """One registration or message of the peer was refused; `count` is how many so far."""

    message: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderlyEnd:
    """The peer ended in order: everything it had to say was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLost:
    """The connection is of no more use; `message` says why. The shell closes the socket."""

    message: str


Event = (
    Connected
    | QueueOffered
    | BackCopyWanted
    | LineageClaimed
    | LineageProved
    | ReturnTaken
    | IdentityTold
    | ProofAsked
    | ProofGiven
    | CopyAudited
    | SinkAhead
    | StreamingStarted
    | AppendExcerpts
    | CompareExcerpts
    | Acknowledged
    | LevelReached
    | LevelKeptBack
    | LevelWanted
    | CommitMoved
    | TailerMoved
    | AnswerOverdue
    | QueueStopped
    | QueueWithdrawn
    | QueuesNamed
    | Told
    | RegistrationRefused
    | OrderlyEnd
    | PeerLost
)
