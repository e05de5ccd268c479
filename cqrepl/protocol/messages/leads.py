"""The messages by which a leader is heard, under the csp `/cluster`, between hosts that elect.

    leads    {number, queues: [name, epoch, safe, ...]}   the host leads these queues
    hears    {number, queues: [name, epoch, ...],         the answer: it hears that of these; the
              refuses: [name, promised, ...]}             others have promised another epoch

A registration tells the lease of the host that registers, in milliseconds: both sides have the same
one. Each `leads` has a number of its own, which its answer repeats: so the host that leads knows
when it sent what was heard.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wire import Reader, WireError, Writer

LEADS: Final = "leads"
HEARS: Final = "hears"
BODY_MAX: Final = 48 << 10  # bytes of queues in one document, which may have 64 KiB
QUEUE_BYTES: Final = 24  # at most, beside its name
_QUEUES_MAX: Final = 65_536  # of one document
_LEASE: Final = "lease"
_NUMBER: Final = "number"
_QUEUES: Final = "queues"
_REFUSES: Final = "refuses"


class Led(NamedTuple):
    """One queue that a host leads: its epoch, and up to which index it is safe (-1: nothing is)."""

    epoch: int
    safe: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leads:
    """The queues that a host leads, by their names."""

    number: int
    queues: Mapping[str, Led] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hears:
    """The queues whose leader is heard, and the epochs; and those whose is not, with the epochs
    that were promised."""

    number: int
    queues: Mapping[str, int] = field(default_factory=dict)
    refuses: Mapping[str, int] = field(default_factory=dict)


def write_lease(writer: Writer, lease_ms: int) -> None:
    """The field of a registration, into an open block."""
    writer.name(_LEASE)
    writer.integer(lease_ms)


def read_lease(fields: Mapping[str, Reader]) -> int:
    """The same, as it came.

    Raises:
        WireError: it is none.
    """
    try:
        return fields[_LEASE].read_int()
    except KeyError:
        raise WireError(
            f"expected the field {_LEASE!r}, got {', '.join(fields) or 'none'}"
        ) from None


def write_leads(leads: Leads) -> bytes:
    """The document, without its cid document."""
    return _written(LEADS, leads.number, {_QUEUES: leads.queues})


def write_hears(hears: Hears) -> bytes:
    """The document, without its cid document."""
    lists = {_QUEUES: hears.queues, _REFUSES: hears.refuses}
    ones = {field: {name: (each,) for name, each in of.items()} for field, of in lists.items()}
    return _written(HEARS, hears.number, ones)


def read_leads(reader: Reader) -> Leads:
    """The same, once its name was read.

    Raises:
        WireError: it is none.
    """
    fields = _fields(reader)
    queues = {name: Led(*each) for name, each in _read(fields[_QUEUES], 2).items()}
    return Leads(number=fields[_NUMBER].read_int(), queues=queues)


def read_hears(reader: Reader) -> Hears:
    """The same, once its name was read.

    Raises:
        WireError: it is none.
    """
    fields = _fields(reader)
    queues = {name: each for name, (each,) in _read(fields[_QUEUES], 1).items()}
    refuses = {}
    if _REFUSES in fields:
        refuses = {name: each for name, (each,) in _read(fields[_REFUSES], 1).items()}
    return Hears(number=fields[_NUMBER].read_int(), queues=queues, refuses=refuses)


def _written(name: str, number: int, lists: Mapping[str, Mapping[str, tuple[int, ...]]]) -> bytes:
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(name)
        with writer.block():
            writer.name(_NUMBER)
            writer.integer(number)
            for field_name, queues in lists.items():
                writer.name(field_name)
                with writer.block():
                    for queue, numbers in queues.items():
                        writer.text(queue)
                        for each in numbers:
                            writer.hex_int(each)
    return bytes(writer.data)


def _fields(reader: Reader) -> dict[str, Reader]:
    fields = reader.read_block().read_fields()
    if not fields.keys() >= {_NUMBER, _QUEUES}:
        got = ", ".join(fields) or "none"
        raise WireError(f"expected the fields {_NUMBER!r} and {_QUEUES!r}, got {got}")
    return fields


def _read(field_reader: Reader, count: int) -> dict[str, tuple[int, ...]]:
    items = field_reader.read_block()
    queues: dict[str, tuple[int, ...]] = {}
    while items.peek_code() is not None:
        if len(queues) >= _QUEUES_MAX:
            raise WireError(f"expected at most {_QUEUES_MAX} queues, got more")
        name = items.read_text() or ""
        queues[name] = tuple(items.read_int() for _ in range(count))
    return queues
