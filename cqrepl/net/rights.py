"""The rights that hosts and guests have at a host, queue by queue.

Without rules hosts of the file may do what replication takes, and guests may read; what changes
something they may from this machine alone. With rules only what they name is allowed. A host that
is met without TLS by one with TLS never leads, gives back or administers unless a rule names it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final

GUESTS: Final = "guests"  # in the place of a name: every guest
HOSTS: Final = "hosts"  # every host


class Right(Enum):
    """One thing that a peer may do with a queue, or with the service whose log the queue is."""

    READ = "read"
    """Take snapshots of a service, and excerpts."""
    FOLLOW = "follow"
    """Be streamed the queue, and keep a copy."""
    RETURN = "return"
    """Give back what this host has lost of it."""
    LEAD = "lead"
    """Stream the queue to this host, and ask it for promises."""
    FETCH = "fetch"
    """Take closed store files."""
    ADMINISTER = "administer"
    """Tell this host what to do."""
    SUBMIT = "submit"
    """Submit tasks."""
    WORK = "work"
    """Do tasks."""
    WRITE = "write"
    """Change what a service holds."""
    OBSERVE = "observe"
    """Look at what a service holds."""


OF_HOSTS: Final = frozenset(
    {Right.READ, Right.FOLLOW, Right.RETURN, Right.LEAD, Right.FETCH, Right.OBSERVE}
)
OF_GUESTS: Final = frozenset({Right.READ, Right.FETCH})
OF_LOCAL_GUESTS: Final = OF_GUESTS | {Right.SUBMIT, Right.WORK, Right.WRITE, Right.OBSERVE}
_ONLY_NAMED: Final = frozenset({Right.LEAD, Right.RETURN, Right.ADMINISTER})
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A peer.

    Args:
        host_id: 0 for a guest.
        guest: name of a guest, by its certificate where it has one.
        is_local: it is on this machine.
        is_plain: it has come without TLS to a host with TLS.
        has_tls: its name was proved by a certificate.
    """

    host_id: int = 0
    guest: str = ""
    is_local: bool = False
    is_plain: bool = False
    has_tls: bool = False

    def __str__(self) -> str:
        return f"host {self.host_id}" if self.host_id else f"guest {self.guest[:_SHOWN]!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rights of some peers for some queues.

    Args:
        queues: name of a queue, or a pattern.
        of: the id of a host, the name of a guest, `hosts` or `guests`.
    """

    queues: str
    of: str
    rights: frozenset[Right]

    def names(self, subject: Subject) -> bool:
        """True where it is about this peer."""
        if subject.host_id:
            return self.of in (HOSTS, str(subject.host_id))
        return self.of in (GUESTS, subject.guest) and self.of != HOSTS


@dataclass(frozen=True, slots=True)
class Rights:
    """All rules of a host.

    Args:
        rules: None: there is no section of them.
    """

    rules: Sequence[Rule] | None = None

    def refusal(self, subject: Subject, right: Right, queue: str) -> str:
        """The reason that a peer may not do something with a queue, in one sentence; empty where it
        may."""
        if right is Right.ADMINISTER and not subject.has_tls and not subject.is_local:
            return f"{subject} lacks the right '{right.value}' for {queue!r}: it takes TLS"
        if right in self._of(subject, queue):
            return ""
        where = ""
        if self.rules is None and not subject.host_id and right in OF_LOCAL_GUESTS:
            where = ": without `rights` a guest has it on this machine alone"
        return f"{subject} lacks the right '{right.value}' for {queue!r}{where}"

    def _of(self, subject: Subject, queue: str) -> frozenset[Right]:
        if self.rules is not None:
            return frozenset[Right]().union(
                *(
                    each.rights - (_ONLY_NAMED if subject.is_plain and each.of == HOSTS else set())
                    for each in self.rules
                    if fnmatchcase(queue, each.queues) and each.names(subject)
                )
            )
        if subject.host_id:
            return OF_HOSTS - _ONLY_NAMED if subject.is_plain else OF_HOSTS
        return OF_LOCAL_GUESTS if subject.is_local else OF_GUESTS

    def __str__(self) -> str:
        found: dict[str, list[str]] = {}
        for each in self.rules or ():
            words = "+".join(sorted(right.value for right in each.rights)) or "none"
            found.setdefault(each.queues, []).append(f"{each.of}={words}")
        return ", ".join(f"{queues}={' '.join(peers)}" for queues, peers in found.items())


ALL_USUAL: Final = Rights()


def rights_of(named: Mapping[str, Mapping[str, Sequence[str]]]) -> Rights:
    """The rules of a file: by queue or pattern, by peer, the words of rights.

    Raises:
        ValueError: a word is no right; one sentence says which there are.
    """
    known = {each.value: each for each in Right}
    rules = []
    for queues, peers in named.items():
        for of, words in peers.items():
            for word in words:
                if word not in known:
                    wanted = ", ".join(known)
                    raise ValueError(f"expected a right ({wanted}), got {word[:_SHOWN]!r}")
            rights = frozenset(known[word] for word in words)
            rules.append(Rule(queues=queues, of=of, rights=rights))
    return Rights(tuple(rules))
