"""Finds which hosts count when a host is to lead a queue: its members, as the copies name them.

Theory of operation. A list of members belongs to an epoch, and is promised with it; it goes before
the file of the cluster. Of the lists that copies name the one of the latest epoch counts. The epoch
of that list may not have begun: its leader may have failed on the way. Where no copy that answers
knows that it has begun, a majority of the list before it has to promise, too. So two hosts that
count by different lists need one host in common, as long as the lists differ by one host.

Where no copy names any list, the members are those of the file.
"""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from cqrepl.protocol.messages.fences import CopyPosition
from cqrepl.queue.format.epochs import number_of
from cqrepl.replicator.settings import HostSettings

_NONE: Final = frozenset[int]()


class NewMembers(NamedTuple):
    """Other members that a queue is to have.

    Args:
        was: those by the file before.
        now: those by the newer one.
    """

    was: frozenset[int]
    now: frozenset[int]

    @classmethod
    def between(cls, old: HostSettings, new: HostSettings, name: str) -> "NewMembers":
        """Those of a queue by two versions of the settings of a host; all hosts where a version
        names none."""
        everyone = old.protocol.remote_ids | {old.protocol.host_id}
        return cls(old.members.get(name, everyone), new.members.get(name, everyone))

    @property
    def came(self) -> frozenset[int]:
        """The hosts that come in."""
        return self.now - self.was


class MemberLists(NamedTuple):
    """The members that count.

    Args:
        hosts: a majority of these has to promise.
        also: a majority of these, too; empty for no further list.
        members: in the epoch that is made; empty where the queue names none.
        refusal: why no host can be promoted; empty where one can.
    """

    hosts: frozenset[int]
    also: frozenset[int] = _NONE
    members: frozenset[int] = _NONE
    refusal: str = ""


def members_of(
    positions: Mapping[int, CopyPosition],
    hosts: Set[int],
    named: Set[int],
    wanted: Set[int] = _NONE,
) -> MemberLists:
    """The members that count, as the copies that answer name them.

    Args:
        hosts: all of the cluster.
        named: the members by the file; empty where it names none.
        wanted: the members that the next epoch is to have; empty: the same.
    """
    file, wanted = frozenset(named or hosts), frozenset(wanted)
    lists = {
        host: (each.epochs.listed, each.epochs.members)
        for host, each in positions.items()
        if each.epochs.members
    }
    if not lists:
        if not wanted or wanted == file:
            return MemberLists(file, members=wanted or frozenset(named))
        return MemberLists(wanted, file, wanted, _too_many(file, wanted))
    number, members = max(lists.values(), key=lambda each: each[0])
    also = _not_begun(positions, lists, number, members)
    promised = max(each.epochs.promised for each in positions.values())
    refusal = _differing(lists, number)
    if not refusal and promised > number:
        refusal = f"members of epoch {promised} are not known: no copy that answers names them"
    if not refusal and also and not _follow_each_other(members, also):
        refusal = f"members differ: {shown(members)} in epoch {number}, {shown(also)} before"
    if not refusal and wanted and wanted != members:
        if also:
            refusal = f"members differ: {shown(members)} in epoch {number}, {shown(also)} before"
        else:
            refusal = _too_many(members, wanted)
        return MemberLists(wanted, members, wanted, refusal)
    return MemberLists(members, also, also or members, refusal)


def shown(members: Set[int]) -> str:
    """The ids, for people."""
    return ", ".join(map(str, sorted(members)))


def _follow_each_other(one: Set[int], other: Set[int]) -> bool:
    return len(one ^ other) == 1


def _too_many(members: Set[int], wanted: Set[int]) -> str:
    """The reason why the next epoch cannot have other members; empty where it can."""
    if _follow_each_other(members, wanted):
        return ""
    expected = f"expected {shown(members)} and one more or one less"
    return f"members change one host at a time: {expected}, got {shown(wanted)}"


def _differing(lists: Mapping[int, tuple[int, frozenset[int]]], number: int) -> str:
    """The reason why the members of one epoch are not known; empty where they are."""
    latest = {host: members for host, (listed, members) in lists.items() if listed == number}
    host = min(latest)
    for other, members in sorted(latest.items()):
        if members != latest[host]:
            return (
                f"members differ: host {host} names {shown(latest[host])} in epoch {number}, host"
                f" {other} names {shown(members)}"
            )
    return ""


def _not_begun(
    positions: Mapping[int, CopyPosition],
    lists: Mapping[int, tuple[int, frozenset[int]]],
    number: int,
    members: frozenset[int],
) -> frozenset[int]:
    """The list before the latest one, where it is not known that the latest one's epoch has begun;
    empty where it is, or both are the same."""
    if any(number_of(each.epochs.history) >= number for each in positions.values()):
        return _NONE
    before = [each for each in lists.values() if each[0] < number]
    older = max(before, key=lambda each: each[0])[1] if before else members
    return _NONE if older == members else older
