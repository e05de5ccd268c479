"""Plans the promotion of a host to leader of a queue, from what the copies say and nothing else.

Theory of operation. A write was safe when as many copies had it as its policy waits for, Qa of N.
So N - Qa + 1 copies that have promised to take nothing from the old leader any more have among them
all that was ever safe. The farthest of them, by the last epoch that it holds something of, then by
its end, has all of it. The old leader itself has it too, where it answers. What lies behind that
place on any copy goes to quarantine when that copy follows.

Two hosts that do not see each other may be promoted at once. So that they do not begin one epoch
both, those that promise are more than half of all hosts; or, without the last leader, which leads
already and is promoted to no next epoch, more than half of the others: any two such sets have a
host in common, which promises an epoch once. Where a write waits for one copy, the last leader and
one more will do: without that leader all others have to promise.

The copies know which host led last, each by what has come to it. The file of the cluster does not
say that: while a queue is handed over by it, one host has another version of it than the next one.
So where there was no epoch, each copy has noted which host streamed the queue to it; a host that
streamed it, itself. Where two copies that answer name different hosts, and neither of these says so
itself, no host is the last leader, and more than half of all hosts have to promise. Of two halves
without a host in common each would hold the other half's last leader, which has followed its own
one since: only one of the two can be the later.

Which copy is the farthest is not always known: of a merged entry of its history a copy may hold the
first epoch only, or all. Then it is the longest of those that may be; and those, as well as the
host that is to lead where no epoch is known that both have had, are to be held against it. Where
that is not done, or they differ, what was safe may be lost.

The host that leads is promoted too, where there is no epoch yet, or where the next one is to have
other members: it steps down, and leads on in the epoch that is made.

Not so where a power cut may have taken the old leader's end; nor where there was no epoch, and the
host that is called the master here streams nothing: another host leads then, by a newer file.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cqrepl.console.units import plural
from cqrepl.protocol.messages.fences import CopyPosition
from cqrepl.queue.format.epochs import (
    NUMBER_MAX,
    Epoch,
    History,
    number_of,
    parting,
)
from cqrepl.queue.format.index import NEXT_OF_EMPTY, Index, format_index

NOBODY: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStretch:
    """Excerpts of one copy, from an index up to another one."""

    host: int
    first: Index
    end: Index

    def fields(self) -> dict[str, object]:
        """For JSON."""
        first, end = format_index(self.first), format_index(self.end)
        return {"host": self.host, "first": first, "next": end}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """A plan, or what came of it.

    Args:
        epoch: that is made.
        leader: the host that is to lead.
        was: the one that did; 0 where that is not known.
        start: where the epoch begins.
        returned: what the new leader takes from another copy first.
        unproved: from where on a power cut may have torn that, and no copy that answers has it
            whole: it goes on as it stands. None: it is whole.
        quarantined: what goes there from copies that answer, when they follow.
        fenced: hosts that answer, and promise.
        unreached: those that do not: what only they have goes to quarantine when they come back.
        farthest: the host whose copy the epoch begins behind.
        uncompared: what other copies, by their histories, may hold otherwise than the farthest one,
            which may be what was safe, or the new leader's own.
        declined: those that answer, and do not promise: each with why.
        needed: so many copies have to promise, the leader's own included.
        may_lose: too few do, and what was safe may be missing from `lost_from` on: from where the
            epoch begins; or, where an epoch was promised here of which no copy that answers holds
            anything, from where the last one began of which one does. Where others begin, no host
            here knows.
        majority: so many hosts have to promise, that another one cannot begin the same epoch.
        may_split: fewer do.
        refusal: why it cannot be done at all.
        led: hosts that may have led last: whose writes may be safe on copies that do not answer.
        unsure: those of them that answer, and may lack some of what was safe for all that.
        last: the one that led last, as all that answer know; 0 where they do not agree.
        history: of what comes before the epoch.
        streams: another host that streams the queue, as it says before it promises; 0: none.
        hosts: that count: so many of them have to promise.
        also: of these too, where it is not known which of two lists of members is the last.
        members: of the queue in that epoch, which are promised with it; empty where it names none.
    """

    queue: str
    epoch: int
    leader: int
    was: int
    start: Index
    returned: CopyStretch | None
    quarantined: tuple[CopyStretch, ...]
    fenced: tuple[int, ...]
    unreached: tuple[int, ...]
    declined: tuple[tuple[int, str], ...]
    needed: int
    may_lose: bool
    lost_from: Index
    majority: int
    may_split: bool
    refusal: str = ""
    led: frozenset[int] = frozenset()
    unsure: frozenset[int] = frozenset()
    last: int = NOBODY
    history: History = ()
    unproved: Index | None = None
    farthest: int = NOBODY
    uncompared: tuple[CopyStretch, ...] = ()
    streams: int = NOBODY
    hosts: frozenset[int] = frozenset()
    also: frozenset[int] = frozenset()
    members: frozenset[int] = frozenset()

    @property
    def is_risky(self) -> bool:
        """It is done only where the operator accepts a loss."""
        return self.may_split or self.loses_from is not None

    @property
    def loses_from(self) -> Index | None:
        """From where on what was safe may be missing; None: nothing of it is."""
        places = [each.first for each in self.uncompared]
        return min([*places, self.lost_from] if self.may_lose else places, default=None)

    def fields(self) -> dict[str, object]:
        """For JSON."""
        return {
            "queue": self.queue,
            "epoch": self.epoch,
            "leader": self.leader,
            "was": self.was,
            "start": format_index(self.start),
            "returned": None if self.returned is None else self.returned.fields(),
            "unproved": None if self.unproved is None else format_index(self.unproved),
            "quarantined": [each.fields() for each in self.quarantined],
            "fenced": list(self.fenced),
            "unreached": list(self.unreached),
            "declined": [{"host": host, "why": why} for host, why in self.declined],
            "needed": self.needed,
            "may_lose": self.loses_from is not None,
            "lost_from": None if self.loses_from is None else format_index(self.loses_from),
            "uncompared": [each.fields() for each in self.uncompared],
            "majority": self.majority,
            "may_split": self.may_split,
            "members": sorted(self.members),
            "refusal": self.refusal,
        }

    def lines(self, *, is_done: bool) -> list[str]:
        """For people."""
        what = "leads" if is_done else "would lead"
        was = "" if self.was in (NOBODY, self.leader) else f", after host {self.was}"
        start = format_index(self.start)
        is_empty = self.start == NEXT_OF_EMPTY
        since = (
            "with nothing: no copy that counts has an excerpt" if is_empty else f"from {start} on"
        )
        lines = [
            f"queue {self.queue!r}: host {self.leader} {what} it in epoch {self.epoch}{was},"
            f" {since}"
        ]
        if self.returned is not None:
            first, end, host = self.returned.first, self.returned.end, self.returned.host
            if first == NEXT_OF_EMPTY:
                has = "had" if is_done else "has"
                lines.append(f"host {self.leader} {has} nothing of it: all comes from host {host}")
            lines.append(f"returned: {_span(first, end)}, from host {host}")
            if self.unproved is not None:
                lines.append(
                    f"not proved: from {format_index(self.unproved)} on: a power cut may have torn"
                    f" it at host {host}, and no other copy has it: it goes on as it stands"
                )
        lines += [
            f"quarantined, when it follows: {_span(each.first, each.end)} of host {each.host}"
            for each in self.quarantined
        ]
        lines.append(f"fenced: {_hosts(self.fenced)}")
        if self.members:
            lines.append(f"members: {_hosts(tuple(sorted(self.members)))}")
        lines += [
            f"does not promise: {why}: what only that host has from {start} on goes to quarantine"
            " when it follows"
            for _, why in self.declined
        ]
        if self.unreached:
            lines.append(
                f"not reached: {_hosts(self.unreached)}: fenced when they come; what only they"
                f" have from {start} on goes to quarantine then"
            )
        lines += [
            f"not compared with host {self.farthest}: {_span(each.first, each.end)} of host"
            f" {each.host}: no epoch behind is known to both: promote host {self.farthest}, or"
            " --accept-loss"
            for each in self.uncompared
        ]
        if self.may_split:
            lines.append(
                f"may be led by two hosts in epoch {self.epoch}:"
                f" {promises(self.majority, 'host', len(self.fenced) + 1)}, host {self.leader}"
                " among them, and the others may promise it to another one: --accept-loss"
            )
        if self.may_lose:
            sure = {self.leader, *self.fenced} - self.unsure
            lines.append(
                f"may be lost to the queue: from {format_index(self.lost_from)} on, what was safe:"
                f" {promises(self.needed, 'copy', len(sure))}: --accept-loss"
            )
        return lines + ([f"refused: {self.refusal}"] if self.refusal else [])


def promises(wanted: int, noun: str, count: int) -> str:
    """The words for people on how many were to promise, and how many do.

    >>> promises(2, "copy", 1)
    '2 copies expected to promise, 1 does'
    """
    return f"{plural(wanted, noun)} expected to promise, {count} {'does' if count == 1 else 'do'}"


@dataclass(frozen=True, slots=True)
class _Votes:
    """The promises of one list of members: of those that are there, and so many that have to."""

    there: Set[int]
    needed: int
    majority: int

    @classmethod
    def of(
        cls,
        hosts: Set[int],
        positions: Mapping[int, CopyPosition],
        *,
        was: int,
        acks: int,
        last: int,
    ) -> "_Votes":
        needed = max(1, len(hosts - {was}) - max(acks, 1) + 1)
        return cls(positions.keys() & hosts, needed, _majority(hosts, positions, last, acks))


def _votes(
    lists: Iterable[Set[int]],
    positions: Mapping[int, CopyPosition],
    *,
    was: int,
    acks: int,
    last: int,
) -> list[_Votes]:
    """Those of each list that has hosts."""
    return [_Votes.of(e, positions, was=was, acks=acks, last=last) for e in lists if e]


def plan_promotion(
    queue: str,
    to: int,
    hosts: Set[int],
    positions: Mapping[int, CopyPosition],
    *,
    master: int,
    acks: int,
    also: Set[int] = frozenset(),
    renews: bool = False,
    declined: Mapping[int, str] = MappingProxyType({}),
    planned: Promotion | None = None,
) -> Promotion:
    """The plan of a promotion, from what the copies say.

    Args:
        to: the host that is to lead; its own position is among them.
        hosts: all that count: the members of the queue.
        positions: what those say that answer.
        master: the host that leads where there never was an epoch, and no copy knows which host has
            streamed the queue; 0: no host has.
        acks: the number of copies that a write waited for, at least 1.
        also: a further list, of which as many have to promise; empty for none.
        renews: also where it leads already.
        declined: hosts that answer, and do not promise, and why.
        planned: what was before the copies promised it.
    """
    heard = max(each.epochs.promised for each in positions.values())
    epoch = heard + 1 if planned is None else planned.epoch
    was, led = _who_led(positions, master) if planned is None else (planned.was, planned.led)
    positions, cannot = _who_can_promise(to, positions)
    declined = {**declined, **cannot}
    own = positions[to]
    best = _farthest(to, positions)
    start, history = positions[best].next_index, _held(positions[best])
    tails = {host: _tail(each, start, history) for host, each in sorted(positions.items())}
    unsure = _unsure(led & positions.keys(), positions, planned)
    away = (led - positions.keys()) | unsure  # the others have all that was safe
    last = _last_leader(to, hosts, positions, master, planned)
    votes = _votes((hosts, also), positions, was=was, acks=acks, last=last)
    lacks = own.next_index < start
    unproved = _unproved(own, positions[best]) if lacks else None
    has_tail, known = tails[to] is not None, 0 if renews else heard
    refusal = _cannot_lead(to, positions, heard=known, has_tail=has_tail)
    refusal = refusal or _cannot_be_taken(unproved, best, positions, tails)
    return Promotion(
        queue=queue,
        epoch=epoch,
        leader=to,
        was=was,
        start=start,
        returned=CopyStretch(host=best, first=own.next_index, end=start) if lacks else None,
        quarantined=_aside(positions, tails),
        fenced=tuple(sorted(positions.keys() - {to})),
        unreached=tuple(sorted((hosts | also) - positions.keys() - declined.keys())),
        declined=_of(declined, positions),
        needed=max(each.needed for each in votes),
        may_lose=any(len(each.there - {host}) < each.needed for each in votes for host in away),
        lost_from=start if number_of(history) == epoch - 1 else _last_start(history),
        majority=max(each.majority for each in votes),
        may_split=any(len(each.there) < each.majority for each in votes),
        refusal=refusal or _cannot_be_written(to, positions, lacks=lacks),
        led=led,
        unsure=unsure,
        last=last,
        history=history,
        unproved=unproved,
        farthest=best,
        uncompared=_uncompared(to, best, positions),
        streams=planned.streams if planned else _streams(to, positions),
        hosts=frozenset(hosts),
        also=frozenset(also),
        members=planned.members if planned else frozenset(),
    )


def _streams(to: int, positions: Mapping[int, CopyPosition]) -> int:
    """Another host than the one that is to lead that streams the queue; 0 for none."""
    return next((host for host, each in positions.items() if each.is_source and host != to), NOBODY)


def _leads(to: int, positions: Mapping[int, CopyPosition]) -> bool:
    """True when a host streams the queue, has heard of no promise that keeps it from that, and no
    copy has promised the same epoch to another host. Where a loss was accepted a copy may have done
    so: it follows no host in that epoch."""
    own = positions[to]
    if not (own.is_source and own.epochs.may_lead(to)):
        return False
    number, promised = own.epochs.promised, [each.epochs for each in positions.values()]
    return not number or {each.promised_to for each in promised if each.promised == number} == {to}


def _cannot_lead(
    to: int, positions: Mapping[int, CopyPosition], *, heard: int, has_tail: bool
) -> str:
    """The reason why a host begins no epoch after the latest one that was heard of; empty where it
    does."""
    # of two that lead, as after losses that were accepted on two sides, one is promoted once more;
    # and so is one that others have promised not to follow, for a host that has not begun to lead
    is_alone = _streams(to, positions) == NOBODY
    # where there is no epoch, one that leads begins the first
    if is_alone and heard == positions[to].epochs.promised != 0 and _leads(to, positions):
        return f"host {to} leads it already"
    if has_tail:
        return f"host {to} has excerpts that are not the queue's: it follows first"
    return "there is no higher epoch" if heard >= NUMBER_MAX else ""


def differing(
    plan: Promotion, positions: Mapping[int, CopyPosition], chains: Mapping[int, bytes]
) -> str:
    """The reason why what the new leader would take does not follow on what it has; empty where it
    does, or where that is not known.

    Args:
        chains: of the two copies, over what they have before it; empty for what is not known.
    """
    assert plan.returned is not None
    to, best, first = plan.leader, plan.returned.host, plan.returned.first
    if not chains[to] or not chains[best] or chains[to] == chains[best]:
        return ""
    for host, other in ((best, to), (to, best)):
        torn = positions[host].unproved
        if torn is not None and torn < first:
            return (
                f"a power cut may have torn what host {host} has from {format_index(torn)} on, and"
                f" host {other} has some of it otherwise: promote host {best}, which compares"
                " itself with the others first"
            )
    return (
        f"host {to} and host {best} hold other excerpts before {format_index(first)}: cqrepl verify"
        " shows where they differ"
    )


def _farthest(to: int, positions: Mapping[int, CopyPosition]) -> int:
    """The host whose copy is; of several the one that is to lead, else one that is whole."""
    ranked = {
        host: (each.next_index, host == to, each.unproved is None)
        for host, each in positions.items()
    }
    return max(_may_be_farthest(positions), key=lambda host: ranked[host])


def _may_be_farthest(positions: Mapping[int, CopyPosition]) -> list[int]:
    """The hosts whose copies may be. There are several that go by their ends alone where those of
    the latest epoch are as far, and where it is not known which epoch is the last that one holds
    something of."""
    surely = max(positions.values(), key=lambda each: (_number(each), each.next_index))
    return [
        host
        for host, each in sorted(positions.items())
        if _number(each) == _number(surely)
        or (number_of(_held(each)) > _number(surely) and not _is_known_same(each, surely))
    ]


def _number(position: CopyPosition) -> int:
    """The latest epoch that a copy is known to hold something of; 0 for none."""
    held = _held(position)
    return held[-1].number if held else 0


def _is_known_same(one: CopyPosition, other: CopyPosition) -> bool:
    """True when two copies hold the same up to the shorter end, by their histories."""
    found = parting(one.epochs.history, other.epochs.history)
    return found is None or found.at >= min(one.next_index, other.next_index)


def _uncompared(
    to: int, best: int, positions: Mapping[int, CopyPosition]
) -> tuple[CopyStretch, ...]:
    """The stretches of copies that are to be held against the farthest one."""
    stretches = []
    for host in sorted({to, *_may_be_farthest(positions)}):
        one, other = positions[host], positions[best]
        found = parting(one.epochs.history, other.epochs.history)
        end = min(one.next_index, other.next_index)
        if host != best and found is not None and not found.is_known and found.at < end:
            stretches.append(CopyStretch(host=host, first=found.at, end=end))
    return tuple(stretches)


def _aside(
    positions: Mapping[int, CopyPosition], tails: Mapping[int, Index | None]
) -> tuple[CopyStretch, ...]:
    return tuple(
        CopyStretch(host=host, first=first, end=positions[host].next_index)
        for host, first in tails.items()
        if first is not None
    )


def _unproved(own: CopyPosition, best: CopyPosition) -> Index | None:
    """From where on a power cut may have torn what a host is to take from the farthest copy."""
    if best.unproved is None or best.unproved >= best.next_index:
        return None
    return max(best.unproved, own.next_index)


def _cannot_be_taken(
    first: Index | None,
    best: int,
    positions: Mapping[int, CopyPosition],
    tails: Mapping[int, Index | None],
) -> str:
    """The reason why what a power cut may have torn from an index on is not taken from a copy:
    other copies have some of it whole, which would be none of the queue's then. Empty where none
    has."""
    if first is None:
        return ""
    whole = []
    for host, each in sorted(positions.items()):
        ends = (each.next_index, each.unproved, tails[host])
        if host != best and first < min(end for end in ends if end is not None):
            whole.append(host)
    if not whole:
        return ""
    return (
        f"a power cut may have torn what host {best} has from {format_index(first)} on, and some of"
        f" that is whole elsewhere ({_hosts(tuple(whole))}): promote host {best}, which compares"
        " itself with the others first"
    )


def _who_can_promise(
    to: int, positions: Mapping[int, CopyPosition]
) -> tuple[dict[int, CopyPosition], dict[int, str]]:
    """Those that can, and the host that is to lead; and why each other one cannot."""
    cannot = {
        host: f"host {host}: {each.unwritable}"
        for host, each in positions.items()
        if each.unwritable and host != to
    }
    return {host: each for host, each in positions.items() if host not in cannot}, cannot


def _who_led(positions: Mapping[int, CopyPosition], master: int) -> tuple[int, frozenset[int]]:
    """The host that led last, as far as that is known, and all that may have.

    A promise is no epoch that has begun: the host that it was made to may have failed on the way.
    Only that host knows for sure. Where it does not answer, it may have led; and where it has not
    begun, the host that led before it still counts.
    """
    if begun := _begun(positions):
        number, leader = max(begun)[:2]
        rivals = {each.leader for each in begun if each.number == number}  # losses accepted twice
    else:
        number, rivals = 0, _streamed(positions, master)
        leader = master if master in rivals else min(rivals)
    unsure = {
        each.epochs.promised: each.epochs.promised_to
        for each in positions.values()
        if each.epochs.promised > number and each.epochs.promised_to not in positions
    }
    was = unsure[max(unsure)] if unsure else leader
    return was, frozenset({leader, *rivals, *unsure.values()}) - {NOBODY}


def _streamed(positions: Mapping[int, CopyPosition], master: int) -> set[int]:
    """The hosts that stream the queue, or have last, as the copies know, where there was no epoch:
    not one that answers, and has followed another one since. By the file of the cluster only where
    no copy knows."""
    known = {each.epochs.streamed_by for each in positions.values()} - {NOBODY}
    known |= {host for host, each in positions.items() if each.is_source}
    follow = {
        host
        for host, each in positions.items()
        if not each.is_source and each.epochs.streamed_by not in (NOBODY, host)
    }
    return known - follow or known or {master}


def _last_leader(
    to: int,
    hosts: Set[int],
    positions: Mapping[int, CopyPosition],
    master: int,
    planned: Promotion | None,
) -> int:
    """The host that has led last, as those that answer know: that has begun the latest epoch, or,
    without any, has streamed the queue last; `NOBODY` where they do not agree.

    They may not know that another one has led since: then that one is not among them. A copy that
    has promised an epoch, which no host has begun, tells no more which host it knew before. One of
    two hosts may go on for all that: the other one does not without it.
    """
    if begun := _begun(positions):
        return max(begun).leader
    if planned is not None:  # all have promised since
        is_same = positions.keys() <= {planned.leader, *planned.fenced}
        return planned.last if is_same else NOBODY
    if any(each.epochs.promised for each in positions.values()):
        return master if hosts == {to, master} else NOBODY
    known = _streamed(positions, master)
    return known.pop() if len(known) == 1 else NOBODY


def _begun(positions: Mapping[int, CopyPosition]) -> list[Epoch]:
    return [each.epochs.history[-1] for each in positions.values() if each.epochs.history]


def _majority(hosts: Set[int], positions: Mapping[int, CopyPosition], last: int, acks: int) -> int:
    """The number of hosts that have to promise, so that any two sets that would do have a host in
    common."""
    of_all = len(hosts) // 2 + 1
    if last == NOBODY:
        return of_all
    if last not in positions:
        return len(hosts - {last}) // 2 + 1
    return of_all if acks > 1 else min(of_all, 2)


def _unsure(
    led: Set[int], positions: Mapping[int, CopyPosition], planned: Promotion | None
) -> frozenset[int]:
    """Those of hosts that led, or are said to have, that answer and may lack what was safe."""
    unsure = {host for host in led if positions[host].unproved is not None}
    if planned is not None:  # they have promised since, and stream nothing any more
        return planned.unsure | unsure
    if not any(each.epochs.promised for each in positions.values()):
        unsure |= {host for host in led if not positions[host].is_source}
    return frozenset(unsure)


def _of(
    declined: Mapping[int, str], positions: Mapping[int, CopyPosition]
) -> tuple[tuple[int, str], ...]:
    return tuple((host, declined[host]) for host in sorted(declined.keys() - positions.keys()))


def _cannot_be_written(to: int, positions: Mapping[int, CopyPosition], *, lacks: bool) -> str:
    """The reason why a host whose copy is to lead could not write it; empty where it can, or may.
    Where the leader is there, it offers the queue again and again: so the trouble is known to be
    there still. Else it may have passed meanwhile."""
    own = positions[to]
    if own.held:
        return f"host {to}: {own.held}"
    if own.unwritable:
        return f"host {to} can note no promise: {own.unwritable}"
    if lacks and not own.is_there:
        return f"host {to}: it was never taken in there: it follows first"
    if own.trouble and _streams(to, positions) != NOBODY:
        return f"host {to} cannot write its copy: {own.trouble}"
    return ""


def _last_start(history: History) -> Index:
    """The index where the last epoch begins that a copy with this history holds something of."""
    return history[-1].start if history else NEXT_OF_EMPTY


def _held(position: CopyPosition) -> History:
    return position.epochs.held(position.next_index)


def _tail(position: CopyPosition, start: Index, history: History) -> Index | None:
    """The first index of what a copy has, and the new leader will not; None where there is none.
    Where no epoch is known any more that both have had, only what is behind its end is known."""
    found = parting(position.epochs.history, history)
    first = min(found.at, start) if found is not None and found.is_known else start
    return first if first < position.next_index else None


def _span(first: Index, end: Index) -> str:
    return f"{format_index(first)} to before {format_index(end)}"


def _hosts(ids: tuple[int, ...]) -> str:
    return ", ".join(f"host {each}" for each in ids) or "no host"
