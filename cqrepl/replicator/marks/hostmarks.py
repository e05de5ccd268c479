"""The marks of each sink host for one queue of a source, over all its connections and restarts.

Theory of operation. The marks of a host are read where they are kept when the source opens the
queue (`queue.files.keptmarks`). From then on the numbers here are what this source knows, and each
that rises is stored there too: once for a batch, and for what a native lane has done each time it
is drained. Where nothing can be stored they are right as long as the source lives.

They rise, but for four cases. A queue that has lost its end, in a power cut or as it came from a
backup, holds no more what the marks tell of: here they are lowered to its end when the source opens
it, or finds that. Where they are kept they stay, as they tell what is missing, until that is
settled with the host (`outgoing.endwatch`). Of a host whose copy differs nothing is known any more.
Where an earlier cycle came that no host was sent, no mark is behind it (`outgoing.latewatch`). And
a host may ask again for what it has had, as its copy came from a backup or was made anew: its marks
are lowered, else store files would go that it has yet to get. The host itself stays known, by a
mark of what was sent that is zero at least: it may give back what the queue has lost (`consent`).

A host that is asked to acknowledge, and has not yet, has a zero where its mark is kept: what was
sent to it is not what it has, and its store files stay (`queue.write.retention`).

A peer whose id is no host's, from 1 to 127, is a guest: its marks live as long as its connection,
and no other process sees them.
"""

import logging
from collections.abc import Mapping
from typing import Final

from cqrepl.kernel.board import AckLevel, MarkRow
from cqrepl.queue import QueueError
from cqrepl.queue.files.keptmarks import KEYS_END_JAVA, KEYS_END_WARNED, KeptMarks
from cqrepl.queue.files.markslots import FORGOTTEN, HOSTS, MarkLevel
from cqrepl.queue.format.index import INDEX_MAX, format_index
from cqrepl.replicator.marks.ackboard import AckBoard
from cqrepl.replicator.marks.resends import Resends

NOTHING_SENT: Final = 0  # to a host that is known; no excerpt has this index
_NOTHING_YET: Final = 0  # acknowledged by a host that is asked to, where its mark is kept
_logger: Final = logging.getLogger(__name__)


class HostMarks:
    """The marks of one host: `sent` to it, and `acknowledged`, `synced` and `applied` by it; -1 for
    nothing yet.

    Attributes:
        had: what it has acknowledged once, also where it has that no more.
        resends: the streams of that.
        row: what it has acknowledged in this run, on the board of the queue.
        missed_to: up to where it was known to have what the queue has lost; -1: nothing is missing.
    """

    def __init__(
        self, kept: KeptMarks, host_id: int, marks: Mapping[MarkLevel, int], row: MarkRow
    ) -> None:
        self.host_id = host_id
        self.sent = marks.get(MarkLevel.SENT, FORGOTTEN)
        self.acknowledged = marks.get(MarkLevel.ACKNOWLEDGED, FORGOTTEN) or FORGOTTEN
        self.synced = marks.get(MarkLevel.SYNCED, FORGOTTEN)
        self.applied = marks.get(MarkLevel.APPLIED, FORGOTTEN)
        self.had = self.acknowledged
        self.resends = Resends()
        self.row = row
        self.missed_to = FORGOTTEN
        self._limit = INDEX_MAX  # no mark is beyond it
        self._kept = kept

    @property
    def is_known(self) -> bool:
        """True for a host that something was sent to once."""
        return max(self.sent, self.acknowledged) > FORGOTTEN

    def reaches(self, index: int) -> bool:
        """True where a host that says it has everything up to this index was sent that: its
        acknowledgement may have been lost with a connection."""
        return index <= max(self.acknowledged, self.sent)

    def raise_sent(self, index: int) -> None:
        """Everything up to this index was sent to the host."""
        if index > self.sent:
            self.sent = index
            self._kept.raise_to(self.host_id, MarkLevel.SENT, index)

    def ask(self) -> None:
        """The host is asked to acknowledge what it is sent."""
        if self.acknowledged == FORGOTTEN:
            self._kept.raise_to(self.host_id, MarkLevel.ACKNOWLEDGED, _NOTHING_YET)

    def covers(self, index: int) -> int:
        """The last index that a host surely has, which says that it has everything up to `index`:
        excerpts that were missing may have been written anew."""
        return min(index, self._limit)

    def raise_acknowledged(self, index: int) -> None:
        """The host has everything up to this index."""
        self.row.raise_to(AckLevel.APPENDED, index)
        if index > self.acknowledged:
            self.acknowledged = index
            self.had = max(self.had, index)
            self._kept.raise_to(self.host_id, MarkLevel.ACKNOWLEDGED, index)

    def raise_level(self, level: AckLevel, index: int) -> None:
        """The host has more than appended everything up to this index."""
        self.row.raise_to(level, self.covers(index))
        self.keep_levels()

    def keep_levels(self) -> bool:
        """Keeps what it has said beyond appended: a native lane raises the mark of this run. True
        where that is more than before."""
        synced, applied = self.row.mark(AckLevel.SYNCED), self.row.mark(AckLevel.APPLIED)
        has_risen = synced > self.synced or applied > self.applied
        if synced > self.synced:
            self.synced = synced
            self._kept.raise_to(self.host_id, MarkLevel.SYNCED, synced)
        if applied > self.applied:
            self.applied = applied
            self._kept.raise_to(self.host_id, MarkLevel.APPLIED, applied)
        return has_risen

    def lower_to(self, index: int) -> None:
        """The queue has nothing beyond this index."""
        self._lower_sent(index)
        self.lower_acknowledged(index)

    def give_up(self, index: int, *, keeps_sent: bool) -> None:
        """The queue has lost what is beyond this index; that stays where it is kept.

        Args:
            keeps_sent: what was only sent, too.
        """
        if not keeps_sent:
            self._lower_sent(index)
        acknowledged = max(self.acknowledged, self.synced, self.applied)
        self.missed_to = max(self.missed_to, acknowledged, self.sent if keeps_sent else FORGOTTEN)
        if self.missed_to <= max(index, NOTHING_SENT):
            self.missed_to = FORGOTTEN
            return
        self._limit = index
        self.sent = min(self.sent, max(index, NOTHING_SENT))
        self.had = min(self.had, index)
        for level in AckLevel:
            self.row.lower_to(level, index)
        self.acknowledged = min(self.acknowledged, index)
        self.synced = min(self.synced, index)
        self.applied = min(self.applied, index)

    def withhold(self, index: int) -> None:
        """Excerpts have come behind this index that the host was passed by with: until its next
        stream begins no mark is beyond it, whatever it acknowledges."""
        self._limit = min(self._limit, index)
        self.lower_to(index)

    def begin(self) -> None:
        """A stream to the host begins: what it wants, and proves, tells anew what it has."""
        if self.missed_to == FORGOTTEN:
            self._limit = INDEX_MAX

    def settle(self) -> None:
        """Nothing more of what is missing is to be had from the host.

        Raises:
            QueueError, OSError: its marks cannot be read.
        """
        if self.missed_to == FORGOTTEN:
            return
        self.missed_to, self._limit = FORGOTTEN, INDEX_MAX
        own = {
            MarkLevel.SENT: self.sent,
            MarkLevel.ACKNOWLEDGED: max(self.acknowledged, _NOTHING_YET),
            MarkLevel.SYNCED: self.synced,
            MarkLevel.APPLIED: self.applied,
        }
        for level in self._kept.load().get(self.host_id, {}):
            self._kept.lower_to(self.host_id, level, own[level])

    def lower_to_start(self, index: int, *, asks_ack: bool) -> None:
        """The host has nothing beyond this index any more, and wants it.

        Args:
            asks_ack: it acknowledges what it is sent; else what it was sent counts.
        """
        if not asks_ack:
            self._lower_sent(index)
        self._lower_levels(index)

    def _lower_sent(self, index: int) -> None:
        if max(index, NOTHING_SENT) < self.sent:
            self.sent = max(index, NOTHING_SENT)
            self._kept.lower_to(self.host_id, MarkLevel.SENT, self.sent)

    def lower_acknowledged(self, index: int) -> None:
        """Nothing beyond this index is known to be at the host as it is here, nor to have been."""
        self.had = min(self.had, index)
        self._lower_levels(index)

    def _lower_levels(self, index: int) -> None:
        for level in AckLevel:
            self.row.lower_to(level, index)
        if index < self.acknowledged:
            self.acknowledged = index
            kept = max(index, _NOTHING_YET)
            self._kept.lower_to(self.host_id, MarkLevel.ACKNOWLEDGED, kept)
        if index < self.synced:
            self.synced = index
            self._kept.lower_to(self.host_id, MarkLevel.SYNCED, index)
        if index < self.applied:
            self.applied = index
            self._kept.lower_to(self.host_id, MarkLevel.APPLIED, index)

    def __repr__(self) -> str:
        names = ("sent", "acknowledged", "synced", "applied")
        shown = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in names)
        return f"HostMarks({self.host_id}, {shown})"


class QueueMarks:
    """The marks of all hosts of one queue.

    Args:
        name: of the queue, for what is logged.
        board: of the queue.
    """

    def __init__(self, name: str, kept: KeptMarks, board: AckBoard) -> None:
        self._name = name
        self._kept = kept
        self._board = board
        self._is_warned = False
        self._hosts: dict[int, HostMarks] = {}
        try:
            for host_id, marks in kept.load().items():
                self._hosts[host_id] = self._of(host_id, marks)
        except (QueueError, OSError) as error:
            _logger.warning("queue %r: the marks of its hosts cannot be read: %s", name, error)
        self._warn()

    def of(self, host_id: int) -> HostMarks:
        """The marks of a host, which has connected."""
        self._warn()
        if host_id not in HOSTS:
            return self._of(host_id, {})
        if host_id not in self._hosts:
            self._hosts[host_id] = self._of(host_id, {})
        return self._hosts[host_id]

    def forget(self, host_id: int) -> bool:
        """Nothing is known of a host any more; false where nothing was.

        Raises:
            OSError, QueueError: that cannot be written.
        """
        marks = self._hosts.get(host_id)
        if marks is None or not marks.is_known:
            return False
        self._kept.forget(host_id)
        for level in AckLevel:
            marks.row.lower_to(level, FORGOTTEN)
        del self._hosts[host_id]
        return True

    def known(self) -> dict[int, HostMarks]:
        """The marks of the hosts that have any, by host id."""
        return {host_id: marks for host_id, marks in sorted(self._hosts.items()) if marks.is_known}

    def lower_to(self, index: int) -> None:
        """The queue has nothing beyond this index: no mark of a host claims more."""
        for marks in self._hosts.values():
            marks.lower_to(index)

    def give_up(self, index: int, *, keeps_sent: bool) -> None:
        """The queue has lost what is beyond this index: see `HostMarks.give_up`."""
        for marks in self._hosts.values():
            marks.give_up(index, keeps_sent=keeps_sent)

    def withhold(self, index: int) -> None:
        """No host was sent all that is behind this index: see `HostMarks.withhold`."""
        for marks in self._hosts.values():
            marks.withhold(index)

    @property
    def are_missed(self) -> bool:
        """True while a host may have what the queue has lost."""
        return any(marks.missed_to > FORGOTTEN for marks in self._hosts.values())

    def _of(self, host_id: int, marks: Mapping[MarkLevel, int]) -> HostMarks:
        return HostMarks(self._kept, host_id, marks, self._board.row(host_id))

    def _warn(self) -> None:
        """Says once that the table store, whatever has filled it, will soon be full for Java."""
        if self._is_warned:
            return
        try:
            end = self._kept.keys_end()
        except (QueueError, OSError):
            return  # those who need the table store say so
        if end > KEYS_END_WARNED:
            self._is_warned = True
            _logger.warning(
                "queue %r: the keys of its table store end at %d bytes; behind %d Java adds none,"
                " and a new named tailer fails",
                self._name,
                end,
                KEYS_END_JAVA,
            )


def _shown(index: int) -> str:
    return format_index(index) if index > NOTHING_SENT else str(index)
