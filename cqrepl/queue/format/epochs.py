"""The epochs of a queue: who has led it, from which index on, and who may lead it now.

Theory of operation. Each promotion makes an epoch: a number above all that any copy has promised,
the host that leads in it, and the index at which it begins, which is where its leader stood. A copy
that promises an epoch takes nothing from a lower one any more. So of two hosts that both believe
that they lead, one is refused.

A copy keeps two things apart: what it has promised, and the history of what it holds. It may have
promised an epoch of which it holds nothing, as when the leader has failed on the way. The history
says where two copies part: behind the last epoch that both have, where the earlier one of the next
begins. What a copy has beyond that, and the higher epoch has not, was never the queue's.

A history has at most 64 entries: the oldest ones merge into one. That keeps the number, the leader
and the start of its first epoch, and the number of its last one. So it says nothing of the epochs
between: a copy may hold any of them, or none. A copy that was away for many promotions may have no
epoch in common with the others but one that later ones have merged into: then the histories do not
tell where they part, and chains of hashes have to. So it is with histories of versions that forgot
the oldest epochs instead.

Where a queue names its members, the hosts that have copies of it, the list belongs to an epoch: it
is promised with it. Lists of two epochs that follow each other differ by one host at most, and the
later epoch begins only once a majority of each list has promised it.

Without any promotion there is no epoch, which counts as number 0; its leader is the host that
streams the queue. A copy in a cluster notes the last such host that it knows of, in the place of
the host that it has promised an epoch to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from cqrepl.queue.format.index import Index, format_index

EPOCHS_MAX: Final = 64  # entries of a history
NUMBER_MAX: Final = (1 << 62) - 1
_HOSTS: Final = range(1, 128)


class Epoch(NamedTuple):
    """One of them: everything before `start`, a next index, is of those before it.

    Where later ones have merged into it, `last` is the number of the last of these, else 0. Which
    of the numbers between were epochs of this history, and where they began, is not known any more.
    """

    number: int
    leader: int
    start: Index
    last: int = 0

    @property
    def reach(self) -> int:
        """The number of the last epoch that this entry stands for."""
        return self.last or self.number

    @property
    def first(self) -> "Epoch":
        """The one that it begins with, and no other."""
        return self._replace(last=0) if self.last else self


class Parting(NamedTuple):
    """Two histories may stand for different excerpts from `at` on. Where it `is_known`, they do
    from there on; else at some place behind, or nowhere, which only the excerpts tell."""

    at: Index
    is_known: bool


History = tuple[Epoch, ...]  # the oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The promise of one copy, and the epochs it knows of.

    Args:
        promised: the number of the promised epoch: nothing is taken from a lower one; 0: nothing
            was promised.
        promised_to: the host that leads in that epoch, or is to. Where nothing was promised, the
            host that has streamed the queue last, as far as the copy knows; 0 for none.
        history: the epochs of what the copy holds.
        members: the hosts that have copies, in the epoch of the number `listed`; empty where none
            were named.
        listed: the number of the last epoch whose members are known; 0 for none.

    Raises:
        ValueError: the numbers do not fit together.
    """

    promised: int = 0
    promised_to: int = 0
    history: History = ()
    members: frozenset[int] = frozenset()
    listed: int = 0

    def __post_init__(self) -> None:
        check_history(self.history)
        if not self.number <= self.promised <= NUMBER_MAX:
            raise ValueError(f"a promise of epoch {self.number} or later expected")
        if not 0 <= self.listed <= self.promised or bool(self.listed) != bool(self.members):
            raise ValueError(f"members of an epoch up to {self.promised} expected")
        if not self.members <= set(_HOSTS):
            raise ValueError("host ids from 1 to 127 expected as members")
        if self.promised and self.promised_to not in _HOSTS:
            raise ValueError(f"a host id from 1 to 127 expected, {self.promised_to} came")

    @property
    def number(self) -> int:
        """The number of the newest epoch that this copy knows has begun; 0 for none."""
        return number_of(self.history)

    @property
    def is_begun(self) -> bool:
        """True where the copy has heard that the epoch that it has promised has begun, or where it
        has promised none. Of the last epoch of a merged entry nothing more is known."""
        return self.number == self.promised and not has_merged(self.history[-1:])

    @property
    def streamed_by(self) -> int:
        """The host that has streamed the queue last, as far as the copy knows; 0 where an epoch was
        promised."""
        return 0 if self.promised else self.promised_to

    def may_lead(self, host_id: int) -> bool:
        """True when a host whose own copy knows this may stream what it holds."""
        return not self.promised or (self.is_begun and self.promised_to == host_id)

    def held(self, end: int) -> History:
        """The history of a copy whose next index is `end`: an epoch that begins behind it has left
        nothing there yet. Of a merged entry at its end the copy may hold no more than the first."""
        return tuple(each for each in self.history if each.start <= end)

    def streamed_from(self, host_id: int) -> "Epochs":
        """The same, once the queue is streamed by a host, and nothing was promised."""
        return self if self.promised else replace(self, promised_to=host_id)

    def is_own_claim(self, number: int, host_id: int) -> bool:
        """True where a host has promised this epoch to itself, and has not begun it: it has stepped
        down, or its promotion has ended in the middle. It alone could begin the epoch, so it may
        give the number up to another host."""
        return (number, host_id) == (self.promised, self.promised_to) and not self.is_begun

    def without_claim(self) -> "Epochs":
        """The same as of the last epoch that has begun, where the later promise is given up."""
        leader = self.history[-1].leader if self.history else 0
        is_listed = self.listed <= self.number
        return replace(
            self,
            promised=self.number,
            promised_to=leader,
            members=self.members if is_listed else frozenset(),
            listed=self.listed if is_listed else 0,
        )

    def promise(self, number: int, host_id: int, members: frozenset[int] = frozenset()) -> "Epochs":
        """The same, once an epoch is promised to a host.

        Args:
            members: in that epoch; empty where they are not known.

        Raises:
            ValueError: this epoch is promised to another host, or a higher one is promised.
        """
        if number < self.promised or (number == self.promised and host_id != self.promised_to):
            raise ValueError(promised_otherwise(self, number, host_id))
        epochs = replace(self, promised=number, promised_to=host_id)
        return replace(epochs, members=members, listed=number) if members else epochs

    def adopt(self, history: History) -> "Epochs":
        """The same, once the copy is proved to hold what a source of this history does."""
        number = number_of(history)
        if not history or number < self.promised:
            return replace(self, history=history)
        return replace(self, promised=number, promised_to=history[-1].leader, history=history)

    def opened(self, end: int) -> "Epochs":
        """The same, once the host that it is promised to leads, with a copy whose next index is
        `end`."""
        # merged before any is left out: that older versions have forgotten some stays known so
        known = replace(self, history=merged(self.history, EPOCHS_MAX - 1))
        own = (*known.held(end), Epoch(self.promised, self.promised_to, Index(end)))
        return replace(self, history=own)


def check_history(history: Sequence[Epoch]) -> None:
    """Looks whether epochs can follow each other so.

    Raises:
        ValueError: they cannot.
    """
    if len(history) > EPOCHS_MAX:
        raise ValueError(f"at most {EPOCHS_MAX} epochs expected, {len(history)} came")
    number, start = 0, 0
    for each in history:
        if not number < each.number <= each.reach <= NUMBER_MAX or each.start < start:
            raise ValueError("epochs that rise, with their first indexes, expected")
        if each.last == each.number:
            raise ValueError(f"a last number above {each.number} expected, {each.last} came")
        if each.leader not in _HOSTS:
            raise ValueError(f"a host id from 1 to 127 expected, {each.leader} came")
        number, start = each.reach, each.start


def number_of(history: Sequence[Epoch]) -> int:
    """The latest number; 0 for none."""
    return history[-1].reach if history else 0


def merged(history: History, count_max: int) -> History:
    """The same with at most so many entries: the oldest ones merge."""
    over = len(history) - count_max
    if over <= 0:
        return history
    return (history[0]._replace(last=history[over].reach), *history[over + 1 :])


def has_merged(history: Iterable[Epoch]) -> bool:
    """True when an entry of a history stands for later epochs, too."""
    return any(each.last for each in history)


def unmerged(history: History) -> History:
    """The same for a version that knows of no merged entries, and compares chains only where no
    epoch is common and a history has all the entries that it can have.

    A merged entry is left out: that version would take its first epoch for one that the next entry
    follows. In the place of what is missing come epochs with numbers that no entry has, which begin
    where the next entry does. They stand for no excerpts, so nothing is decided by them.
    """
    if not has_merged(history):
        return history
    kept = [each for each in history if not each.last]
    taken = {each.number for each in kept}
    free = (number for number in range(number_of(history), 0, -1) if number not in taken)
    following, filled = history[-1].first, list[Epoch]()
    for number in sorted((*taken, *islice(free, EPOCHS_MAX - len(kept))), reverse=True):
        if number in taken:
            following = kept.pop()
        filled.append(following._replace(number=number))
    return tuple(reversed(filled))


def parting(own: Sequence[Epoch], other: Sequence[Epoch]) -> Parting | None:
    """The place from which on two histories may stand for different excerpts; None where one copy
    has gone through all that the other has.

    The place is not known where either side may have had epochs behind the last common one that its
    history does not name: they have merged into it; or none is common, and some were forgotten.
    """
    entries = (*own, *other)
    common = {each.first for each in own} & {each.first for each in other}
    if not common:
        is_known = not has_merged(entries) and EPOCHS_MAX not in (len(own), len(other))
        starts = [each.start for each in entries]
        return Parting(min(starts), is_known) if starts else None
    latest = max(common)
    if any(each.last for each in entries if each.first == latest):
        return Parting(latest.start, is_known=False)
    starts = [each.start for each in entries if each.number > latest.number]
    return Parting(min(starts), is_known=True) if starts else None


def why_refused(own: Epochs, offered: Sequence[Epoch], host_id: int) -> str | None:
    """The reason why a copy does not take its queue from a host that offers this history; None
    where it takes it."""
    number = number_of(offered)
    if number and offered[-1].leader != host_id:
        return f"epoch {number} is led by host {offered[-1].leader}, and host {host_id} offers it"
    if number > own.promised or (number, host_id) == (own.promised, own.promised_to):
        return None
    return promised_otherwise(own, number, host_id) if own.promised else None


def promised_otherwise(own: Epochs, number: int, host_id: int) -> str:
    """The message to a host that comes with too low an epoch."""
    promised = f"epoch {own.promised} was promised to host {own.promised_to}"
    if host_id == own.promised_to:
        return f"{promised}, which comes with epoch {number}"
    return f"{promised}: host {host_id}, with epoch {number}, leads it no longer"


def shown(history: Iterable[Epoch]) -> list[dict[str, object]]:
    """A history for JSON; `merged_to` only where later epochs have merged into one."""
    return [
        {"epoch": each.number, "leader": each.leader, "start": format_index(each.start)}
        | ({"merged_to": each.last} if each.last else {})
        for each in history
    ]
