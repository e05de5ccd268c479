"""A run as text: what happened, and every document that went over a link as `wire-dump` has it."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from cqrepl.dump.captures import CapturedConnection
from cqrepl.dump.entries import Entry
from cqrepl.dump.recording import RecordedConnection, Recording
from cqrepl.testing.labmachine import WALL_NS
from cqrepl.testing.laboratory import Outcome
from cqrepl.testing.story import Carried

_NS = 1_000_000_000


class CarriedDocument(NamedTuple):
    """One that has come to the end of a link, or what `wire-dump` says of bytes that are none; way
    0 is that from the dialler."""

    seconds: float
    link: int
    way: int
    text: str


def told(outcome: Outcome) -> Iterator[str]:
    """The story of a run, one line for each happening."""
    return (str(entry) for entry in outcome.story)


def transcript(outcome: Outcome) -> Iterator[str]:
    """The same, with all documents in between."""
    lines = [(entry.seconds, 0, str(entry)) for entry in outcome.story]
    lines += [(each.seconds, 1, each.text) for each in documents(outcome.carried)]
    lines.sort(key=lambda line: line[:2])
    return (text for _, _, text in lines)


def record(outcome: Outcome, file: BinaryIO) -> None:
    """All that went over links, as a capture that `wire-dump` and Wireshark read."""
    recording = Recording(file)
    links: dict[int, RecordedConnection] = {}
    for seconds, number, ends, way, data in outcome.carried:
        now_ns = WALL_NS + int(seconds * _NS)
        if number not in links:
            links[number] = RecordedConnection(recording, *ends, now_ns)
        if data:
            links[number].data(way, data, now_ns)
        else:
            links[number].end(way, now_ns)


def documents(carried: Iterable[Carried]) -> Iterator[CarriedDocument]:
    """All that went over links, each at the time of its last byte."""
    links: dict[int, CapturedConnection] = {}
    for packet, (seconds, number, ends, way, data) in enumerate(carried, 1):
        if number not in links:
            links[number] = CapturedConnection(number, *ends)
        now_ns = WALL_NS + int(seconds * _NS)
        for each in links[number].add_bytes(way, data, now_ns, packet):
            text = each.text() if isinstance(each, Entry) else str(each)
            yield CarriedDocument(seconds, number, way, text.rstrip("\n"))
