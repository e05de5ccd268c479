"""Judges what a pair of FIX engines has said, against the copy of the host that led last.

An engine says a line for each message that its store has kept, and for each that has come in
(`tools/java/fix`, `pair.Engine`). Lines are read as they come, each once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.persist.storage.records import Op, correlation_id, decode_record
from cqrepl.queue import Queue

_TOO_LOW: Final = "MsgSeqNum too low"
_UNKNOWN: Final = "no backup has said"  # of a store, in a warning
_NUMBER_BYTES: Final = 4  # of an item, before its message
Texts = dict[int, dict[int, set[str]]]  # of messages, by session and number


def _texts() -> Texts:
    return defaultdict(lambda: defaultdict(set))


@dataclass(slots=True)
class FixFindings:
    """The counts of a judgement.

    Args:
        kept: messages that a store has said to be kept, in all sessions.
        lost: those of them that the copy has not, or that never came to the initiator.
        twice: numbers of a session that stand for two messages.
        resent: messages that came to the initiator once more, from a store.
        unheard: messages of the initiator that no acceptor has had.
        set_back: times that an end said that a number is too low, or asked for a reset.
        warnings: messages that a store has kept without knowing whether a backup has them.
    """

    kept: int = 0
    lost: int = 0
    twice: int = 0
    resent: int = 0
    unheard: int = 0
    set_back: int = 0
    warnings: int = 0

    @property
    def is_right(self) -> bool:
        """True where nothing is missing or doubled, and something was kept at all."""
        wrong = self.lost, self.twice, self.unheard, self.set_back
        return bool(self.kept) and not any(wrong)


class EngineLines:
    """The lines of one engine, or of several in turn.

    Attributes:
        kept: messages of programs and of sessions that its store has kept.
        came: messages of programs that have come in.
        labels: the sessions on which messages with a label have come.
        resent: messages that have come in once more.
        set_back: as `FixFindings` has it.
    """

    def __init__(self) -> None:
        self.kept: Final = _texts()
        self.came: Final = _texts()
        self.labels: Final[dict[str, set[int]]] = defaultdict(set)
        self.resent = 0
        self.set_back = 0
        self._offsets: dict[Path, int] = {}

    def read(self, path: Path) -> None:
        """Takes the lines in that a file has got since."""
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._offsets[path] = self._offsets.get(path, 0) + whole
        for line in data[:whole].decode(errors="replace").splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        session, _, rest = rest.partition(" ")
        if word == "KEPT":
            number, _, message = rest.partition(" ")
            self.kept[int(session)][int(number)].add(essence(message))
        elif word == "IN":
            self._take_message(int(session), rest)

    def _take_message(self, session: int, message: str) -> None:
        fields = _fields(message)
        is_gap_fill = fields.get("123") == "Y"
        is_reset = (fields["35"] == "4" and not is_gap_fill) or fields.get("141") == "Y"
        self.set_back += is_reset or _TOO_LOW in fields.get("58", "")
        if fields["35"] == "B":
            self.resent += fields.get("43") == "Y"
            self.came[session][int(fields["34"])].add(essence(message))
            self.labels[fields.get("148", "").partition(":")[0]].add(session)


def judged(acceptors: EngineLines, initiator: EngineLines, copy: Path, errors: str) -> FixFindings:
    """Compares what both ends have said, and the copy.

    Args:
        errors: what the engines have logged.
    """
    found = FixFindings(resent=initiator.resent)
    there = messages_of(copy, len(initiator.kept))
    for session, number, texts in _each(acceptors.kept):
        found.kept += 1
        came = initiator.came[session].get(number, set())
        is_there = there[session].get(number) in texts
        found.lost += not is_there or (_is_of_program(texts) and not came)
        found.twice += len(texts | came) > 1
    for session, number, texts in _each(initiator.kept):
        is_before = number < max(acceptors.came[session], default=0)
        is_missing = number not in acceptors.came[session]
        found.unheard += is_before and is_missing and _is_of_program(texts)
        found.twice += len(texts | acceptors.came[session].get(number, set())) > 1
    found.set_back = initiator.set_back + acceptors.set_back
    found.warnings = errors.count(_UNKNOWN)
    return found


def undelivered(acceptors: EngineLines, initiator: EngineLines) -> list[tuple[int, int]]:
    """The messages that were kept and have not come to the initiator, by session and number."""
    return [
        (session, number)
        for session, number, texts in _each(acceptors.kept)
        if _is_of_program(texts) and number not in initiator.came[session]
    ]


def _each(found: Texts) -> Iterator[tuple[int, int, set[str]]]:
    for session, numbers in list(found.items()):
        for number, texts in numbers.items():
            yield session, number, texts


def _fields(message: str) -> Mapping[str, str]:
    """The fields of a message, the first of each tag."""
    pairs: Iterable[tuple[str, str, str]] = (each.partition("=") for each in message.split("|"))
    return {tag: value for tag, _, value in reversed(list(pairs)) if tag}


def essence(message: str) -> str:
    """The part of a message that is the same when it comes once more."""
    fields = _fields(message)
    return f"{fields.get('35', '')}:{fields.get('148', '')}"


def _is_of_program(texts: set[str]) -> bool:
    return any(each.startswith("B:") for each in texts)


def messages_of(path: Path, sessions: int) -> dict[int, dict[int, str]]:
    """The messages that go out, by session and number, as a copy has them."""
    count = range(1, sessions + 1)
    names = {correlation_id(f"FIX.4.4:A{each}->B{each}.out"): each for each in count}
    found: dict[int, dict[int, str]] = {each: {} for each in count}
    with Queue.open(path) as queue, closing(queue.tailer()) as tailer:
        while (batch := tailer.next_batch()) is not None:
            for _, payload in batch:
                record = decode_record(payload)
                if record.op is not Op.APPEND or record.id not in names or record.item is None:
                    continue
                number = int.from_bytes(record.item[:_NUMBER_BYTES], "little")
                message = record.item[_NUMBER_BYTES:].decode("latin-1").replace("\x01", "|")
                if message:
                    found[names[record.id]][number] = essence(message)
    return found
