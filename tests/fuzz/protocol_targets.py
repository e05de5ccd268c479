"""Our side of a connection against a peer that says anything, at any pace.

The first byte of an input chooses the state in which our side begins, the second how its bytes are
cut into pieces. The rest is a stream; or its parts are documents with right lengths and moments of
silence in between.
"""

from collections.abc import Callable, Iterator
from typing import Final

from cqrepl.protocol import events as ev
from cqrepl.protocol.messages import write_cid
from tests.fuzz.corpus import acceptor_cases, spread
from tests.fuzz.families import Family
from tests.fuzz.target import SEPARATOR, Run, Target, framed, parts_of, unframed
from tests.property.test_protocol_garbage import (
    ITEMS,
    RECORDED,
    SIDES,
    Victim,
    dialling_source,
    greeting_sink,
)
from tests.support.peer import (
    CID,
    CSP,
    NAME,
    Ours,
    Role,
    acknowledgement,
    end_of_stream,
    excerpts,
    heartbeat,
    heartbeats,
    index,
    offer_queue,
    register,
    select,
    sink_handler,
    source_handler,
    terminator,
    uber,
)

_SILENCE: Final = 0x80  # in the first byte of a part: the lower bits are the half seconds
Make = Callable[[], Ours]
Told = list[object]


def greeting_source() -> Ours:
    return Ours(Role.SOURCE)


def dialling_sink() -> Ours:
    return Ours(Role.SINK, is_dialler=True)


def greeted_dialling_sink() -> Ours:
    return dialling_sink().greeted(heartbeats())


def greeted_dialling_source() -> Ours:
    ours = dialling_source().greeted(heartbeats())
    offer_queue(ours, index(2))
    return ours


ACCEPTORS: Final[list[Make]] = [
    greeting_sink,
    greeting_source,
    *(make for make in SIDES if make not in (greeting_sink, dialling_source)),
    *(make for make, _ in RECORDED if not make().config.is_dialler),
]
DIALLERS: Final[list[Make]] = [
    dialling_sink,
    dialling_source,
    greeted_dialling_sink,
    greeted_dialling_source,
    *(make for make, _ in RECORDED if make().config.is_dialler),
]


class Witness(Victim):
    """A victim that remembers what it was told, in a form that does not depend on pieces."""

    def __init__(self, ours: Ours) -> None:
        super().__init__(ours)
        self.told: Told = []

    def act(self, event: ev.Event) -> None:
        if isinstance(event, ev.AppendExcerpts | ev.CompareExcerpts):
            kind = type(event)
            self.told += [(kind, event.cid, at, bytes(each)) for at, each in event.batch]
        else:
            self.told.append(event)
        super().act(event)


def against(sides: list[Make]) -> Run:
    """A target whose inputs are what a peer says to one of these."""

    def run(data: bytes) -> None:
        head, rest = data[:2].ljust(2, b"\0"), data[2:]
        make = sides[head[0] % len(sides)]
        size = head[1] or len(rest) + 1
        whole = hear(make, [rest])
        assert hear(make, cut(rest, size)) == whole
        converse(make, rest, size)

    return run


def hear(make: Make, said: Iterator[bytes] | list[bytes]) -> tuple[Told, bool]:
    """The events that a stream tells our side, and whether that ends the connection."""
    victim = Witness(make())
    for piece in said:
        victim.feed(piece)
    return victim.told, victim.is_over


def converse(make: Make, data: bytes, size: int) -> None:
    """Documents with right lengths, and silence in between; then the stream ends."""
    victim = Witness(make())
    for part in parts_of(data):
        if part[:1] >= bytes([_SILENCE]):
            victim.tick((part[0] & ~_SILENCE) / 2)
            victim.ours.connection.data_to_send()
            part = part[1:]
        for piece in cut(framed(part), size):
            victim.feed(piece)
    deadline = victim.ours.connection.next_deadline()
    assert deadline >= 0
    victim.ours.connection.receive_end(victim.ours.now)
    victim.ours.events()


def cut(stream: bytes, size: int) -> Iterator[bytes]:
    """Pieces of this length."""
    return (stream[at : at + size] for at in range(0, len(stream), size))


def _conversations() -> list[bytes]:
    """The streams that good peers send to each kind of side."""
    shaped = register(CSP, CID, sink_handler(index(2), name=NAME))
    answer = register(CSP, CID, source_handler(index(7)))
    last = heartbeat() + terminator()
    return [
        uber(1, 2) + heartbeats() + shaped + excerpts(index(2), b"a", b"bc") + last,
        uber(2, 1) + heartbeats() + answer + end_of_stream() + acknowledgement(index(0)) + last,
        shaped + excerpts(index(0), b"", b"x" * 40) + select() + heartbeat(),
        answer + end_of_stream() + acknowledgement(index(1)) + acknowledgement(index(3)),
    ]


def _seeds(sides: list[Make]) -> Callable[[], Iterator[bytes]]:
    """Every stream for each of the first sides, and the recorded ones for theirs."""

    def made() -> Iterator[bytes]:
        streams = [*_conversations(), *acceptor_cases()]
        for place, make in enumerate(sides):
            fitting = [stream for known, stream in RECORDED if known is make] or streams
            for stream in fitting:
                yield bytes([place, 0]) + stream[:_LENGTH_MAX]
                yield bytes([place, 40]) + unframed(stream)[:_LENGTH_MAX]

    return made


_LENGTH_MAX: Final = 1536
_TOKENS: Final = (
    SEPARATOR,
    SEPARATOR + bytes([_SILENCE | 60]),
    SEPARATOR + b"\x01" + write_cid(CID)[4:],
    *ITEMS,
)
TARGETS: Final[Family] = {
    "acceptor": Target(
        run=against(ACCEPTORS),
        seeds=spread(_seeds(ACCEPTORS), 250, length_max=_LENGTH_MAX + 2),
        tokens=_TOKENS,
        length_max=_LENGTH_MAX,
    ),
    "dialler": Target(
        run=against(DIALLERS),
        seeds=spread(_seeds(DIALLERS), 250, length_max=_LENGTH_MAX + 2),
        tokens=_TOKENS,
        length_max=_LENGTH_MAX,
    ),
}
