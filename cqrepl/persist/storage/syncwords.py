"""The words by which a host that follows comes to what its storages lack. Pure.

Theory of operation. Items are in the log, which each host has; what a state lacks is where they
stand. So the data of an answer are indexes of excerpts, 8 bytes an item, and only of those that are
missing: the request says how far the storage is, and in which generation. Another generation, or a
storage that is further than the one that is asked, is told from its first item on.

    control, to the host that leads        back, on control          back, on data
    GET_ALL_RESOURCES whole                RESOURCE_LIST rows ...
    SYNC_REQ id index gen at pos                                     SYNC_REQ_ACCEPTED, or _REFUSED
                                                                     SEQUENCE_RESET gen at
                                                                     SYNC_DATA index refs ...
                                                                     SYNC_FINISHED pos

An answer is a storage as of one position of the log, `pos`. What comes in the log meanwhile is
applied after SYNC_FINISHED: records before `pos` are in the answer.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cqrepl.persist.storage.records import StorageKind
from cqrepl.persist.storage.storagetable import Storage
from cqrepl.service.fieldwords import FieldKinds, FieldWords, decode_words
from wire import WireError

FRAME_MAX: Final = 60_000  # bytes of rows or indexes in one word; a frame has 64 KiB
MESSAGE_MAX: Final = 1 << 17
_ROW: Final = struct.Struct("<qBqqqqqqHH")  # id, kind, gen ... next, timeout, name, damage
_KINDS: Final = (StorageKind.QUEUE, StorageKind.SEQUENCE)
_TEXT_MAX: Final = 1024
_FOR_GOOD, EARLY, _ASKS = range(3)  # of a refusal: it may be asked again, or asks others itself
_FIELDS: Final[FieldKinds] = {
    "whole": int,  # the whole state is wanted, as of one position
    "more": int,  # more words of the list follow
    "rows": bytes,
    "id": int,
    "index": int,
    "gen": int,
    "at": int,
    "since": int,
    "talk": int,  # of several conversations on one connection
    "epoch": int,
    "first": int,
    "next": int,
    "kind": str,
    "name": str,
    "refs": bytes,
    "pos": int,
    "crc": int,
    "why": str,
    "applied": str,  # ids of the backups that have applied all before `pos`, with blanks between
}


def decode_sync(data: bytes) -> FieldWords:
    """The word that these bytes are.

    Raises:
        WireError: they say nothing that can be read.
    """
    return decode_words(data, _FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the list of storages.

    Args:
        timeout_ms: so long the writes of the host that was asked wait for backups; 0: not at all;
            -1 where none of its programs has opened the storage.
    """

    id: int
    kind: StorageKind
    name: str
    gen: int
    at: int
    epoch: int
    first: int
    next: int
    timeout_ms: int
    damage: str = ""


def listed(
    storages: Iterable[Storage], pos: int, timeouts: Mapping[int, float] = MappingProxyType({})
) -> Iterator[FieldWords]:
    """The words of the list, each of at most `FRAME_MAX` bytes and a row.

    Args:
        timeouts: seconds that writes wait, by the ids of storages.
    """
    rows = bytearray()
    for each in storages:
        if len(rows) >= FRAME_MAX:
            yield FieldWords("RESOURCE_LIST", {"rows": bytes(rows), "more": 1, "pos": pos})
            rows.clear()
        name, damage = each.name.encode(), each.damage[: _TEXT_MAX // 4].encode()
        kind = _KINDS.index(each.kind)
        timeout_ms = round(timeouts.get(each.id, -0.001) * 1000)
        numbers = (each.id, kind, each.gen, each.at, each.epoch, each.first, each.next, timeout_ms)
        rows += _ROW.pack(*numbers, len(name), len(damage)) + name + damage
    yield FieldWords("RESOURCE_LIST", {"rows": bytes(rows), "more": 0, "pos": pos})


def rows_of(said: FieldWords) -> Iterator[Row]:
    """The rows of one word of the list.

    Raises:
        WireError: they cannot be read.
    """
    rows, at = said.data("rows"), 0
    try:
        while at < len(rows):
            *numbers, name, damage = _ROW.unpack_from(rows, at)
            id_, kind, gen, when, epoch, first, next_, timeout_ms = numbers
            at += _ROW.size
            texts = rows[at : at + name].decode(), rows[at + name : at + name + damage].decode()
            at += name + damage
            yield Row(
                id=id_,
                kind=_KINDS[kind],
                name=texts[0],
                gen=gen,
                at=when,
                epoch=epoch,
                first=first,
                next=next_,
                timeout_ms=timeout_ms,
                damage=texts[1],
            )
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise WireError(f"expected rows of storages, got {error}") from error


def request(id_: int, own: Storage | None, pos: int) -> FieldWords:
    """The request of a host whose storage stands so.

    Args:
        pos: the answer has to have all before this excerpt.
    """
    if own is None or not own.name:  # nothing of it is known
        return FieldWords("SYNC_REQ", {"id": id_, "index": 0, "gen": 0, "pos": pos})
    values: dict[str, int | str | bytes] = {"id": id_, "index": own.next, "gen": own.gen}
    if own.since < 0:  # items that it has may stand elsewhere by now
        values["index"] = 0
    elif own.since:
        values["since"] = own.since
    if own.kind is StorageKind.SEQUENCE:
        values["at"] = own.at
    return FieldWords("SYNC_REQ", values | {"pos": pos})


def answer(
    storage: Storage, asked: FieldWords, pos: int, bytes_max: int = FRAME_MAX
) -> Iterator[FieldWords]:
    """The words of the host that is asked.

    Args:
        storage: a copy, as of `pos`.
        bytes_max: of indexes in one word; at least 8.
    """
    if storage.damage:
        why = f"it is damaged there, too: {storage.damage}"
        yield refused(storage.id, why, _FOR_GOOD if storage.asked else _ASKS)
        return
    index = asked.number("index")
    is_same = asked.number("gen") == storage.gen and 0 < index <= storage.next
    begin = _moved(storage, index, asked.number("since")) if is_same else storage.first
    yield FieldWords(
        "SYNC_REQ_ACCEPTED",
        {
            "id": storage.id,
            "kind": storage.kind.value,
            "name": storage.name,
            "gen": storage.gen,
            "at": storage.at,
            "epoch": storage.epoch,
            "first": storage.first,
            "next": storage.next,
            "index": begin,
            "pos": pos,
        },
    )
    if storage.gen != asked.number("gen"):
        numbers = {"id": storage.id, "gen": storage.gen, "at": storage.at, "index": storage.first}
        yield FieldWords("SEQUENCE_RESET", numbers)
    for at in range(begin, storage.next, bytes_max // 8):
        refs = storage.refs(at, min(at + bytes_max // 8, storage.next) - 1)
        yield FieldWords("SYNC_DATA", {"id": storage.id, "index": at, "refs": refs.tobytes()})
    yield FieldWords("SYNC_FINISHED", {"id": storage.id, "pos": pos})


def _moved(storage: Storage, index: int, since: int) -> int:
    """The logical index of the first item before `index` that stands at an excerpt from `since` on;
    else that of the first one that is missing."""
    begin = max(index, storage.first)
    if since:
        refs = storage.refs(storage.first, begin - 1)
        return next((storage.first + n for n, at in enumerate(refs) if at >= since), begin)
    return begin


def refused(id_: int, why: str, more: int = _FOR_GOOD) -> FieldWords:
    """The answer of a host that cannot say; or not yet."""
    return FieldWords("SYNC_REFUSED", {"id": id_, "why": why[:_TEXT_MAX], "more": more})


class SyncAnswer:
    """The answer to one request, as it comes.

    Args:
        own: the storage as it was when it was asked for.

    Attributes:
        storage: the storage as the host that leads has it; None before it is finished.
        pos: it is as of this excerpt.
        why: it was refused; empty where it was not.
        is_early: it may be asked for again.
        is_asking: the host that was asked asks others for it.
    """

    def __init__(self, own: Storage | None) -> None:
        self.storage: Storage | None = None
        self.pos = 0
        self.why = ""
        self.is_early = self.is_asking = False
        self._own = own
        self._coming: Storage | None = None
        self._next = 0

    @property
    def is_over(self) -> bool:
        """Nothing more comes."""
        return self.storage is not None or bool(self.why)

    def take(self, said: FieldWords) -> None:
        """Takes a word of the answer.

        Raises:
            WireError: it does not follow the one before.
        """
        if said.name == "SYNC_REFUSED":
            self.why = said.text("why") or "no reason was given"
            self.is_early = said.number("more") == EARLY
            self.is_asking = said.number("more") == _ASKS
        elif said.name == "SYNC_REQ_ACCEPTED":
            self._accept(said)
        elif self._coming is None:
            raise WireError(f"expected SYNC_REQ_ACCEPTED, got {said.name}")
        elif said.name == "SYNC_DATA":
            self._take_data(self._coming, said)
        elif said.name == "SYNC_FINISHED":
            if self._coming.next != self._next:
                got = f"got {self._coming.next - 1}"
                raise WireError(f"expected items up to {self._next - 1}, {got}")
            self.storage = self._coming

    def _accept(self, said: FieldWords) -> None:
        try:
            kind = StorageKind(said.text("kind"))
        except ValueError as error:
            raise WireError(str(error)) from None
        gen, first, begin = said.number("gen"), said.number("first"), said.number("index")
        coming = Storage(
            said.number("id"),
            kind,
            said.text("name"),
            gen,
            said.number("at"),
            said.number("epoch"),
            first,
        )
        own = self._own
        if begin > first:
            if own is None or own.gen != gen or not own.first <= first or begin > own.next:
                raise WireError(f"expected items from {first} on, got {begin}")
            coming.add_refs(own.refs(first, begin - 1))
        self._coming, self._next, self.pos = coming, said.number("next"), said.number("pos")

    @staticmethod
    def _take_data(coming: Storage, said: FieldWords) -> None:
        refs = array("q")
        data = said.data("refs")
        if said.number("index") != coming.next or len(data) % 8:
            raise WireError(f"expected items from {coming.next} on, got {said.number('index')}")
        refs.frombytes(data)
        coming.add_refs(refs)
