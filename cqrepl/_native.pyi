# the functions of batches are those of the reference, so these are their types too
from array import array
from collections.abc import Sequence
from typing import Final, final

from cqrepl.kernel.interface import MarkRow
from cqrepl.kernel.pen import PenTerms
from cqrepl.kernel.plain import _extend_chain as extend_chain
from cqrepl.kernel.plain import find_excerpts as find_excerpts
from cqrepl.kernel.plain import frame_excerpts as frame_excerpts
from cqrepl.kernel.plain import gather_payloads as gather_payloads
from cqrepl.kernel.plain import join_payloads as join_payloads
from cqrepl.kernel.plain import laid_size as laid_size
from cqrepl.kernel.plain import lay_excerpts as lay_excerpts
from cqrepl.kernel.plain import measure_lengths as measure_lengths
from cqrepl.kernel.plain import number_from as number_from
from cqrepl.kernel.plain import scan_frames as scan_frames
from cqrepl.kernel.plain import wide_gaps as wide_gaps
from cqrepl.kernel.plainruns import run_length as run_length
from cqrepl.kernel.plainruns import split_run as split_run

__all__ = [
    "INTERFACE",
    "NAME",
    "AtomicWords",
    "Bell",
    "Board",
    "BoardRow",
    "FileMap",
    "FoundRuns",
    "LiveControl",
    "Pen",
    "QueueRuns",
    "SendBudget",
    "SinkLane",
    "SourceLane",
    "StoredBell",
    "WordLooks",
    "extend_chain",
    "find_excerpts",
    "frame_excerpts",
    "gather_payloads",
    "give_time",
    "join_payloads",
    "laid_size",
    "lane_tables",
    "lay_excerpts",
    "measure_lengths",
    "name_cut_files",
    "number_from",
    "populate_pages",
    "run_length",
    "run_live",
    "scan_frames",
    "split_run",
    "wide_gaps",
]

INTERFACE: Final[int]
NAME: Final[str]

def name_cut_files(speaker: str, code_cut: int, code_full: int) -> None: ...
def give_time(time: tuple[int, int] | None) -> None: ...
def populate_pages(buffer: memoryview, start: int, end: int) -> None: ...

@final
class AtomicWords:
    def __new__(cls, buffer: memoryview) -> AtomicWords: ...
    @staticmethod
    def fence() -> None: ...
    def release(self) -> None: ...
    def load_4(self, position: int) -> int: ...
    def load_8(self, position: int) -> int: ...
    def store_4(self, position: int, value: int) -> None: ...
    def store_8(self, position: int, value: int) -> None: ...
    def exchange_4(self, position: int, expected: int, value: int) -> bool: ...
    def exchange_8(self, position: int, expected: int, value: int) -> bool: ...

@final
class FileMap:
    def __new__(cls, descriptor: int, length: int, reserved: int, is_writable: bool) -> FileMap: ...
    def extend(self, descriptor: int, length: int) -> bool: ...
    def comes_singly(self, position: int) -> None: ...
    def view(self) -> memoryview: ...
    def close(self) -> None: ...

@final
class WordLooks:
    def __new__(
        cls,
        words: Sequence[memoryview],
        values: bytes,
        pause_seconds: float,
        later_pause_seconds: float,
        count: int,
    ) -> WordLooks: ...
    def until_changed(self) -> bool: ...
    def cancel(self) -> None: ...

@final
class Bell:
    def __new__(cls) -> Bell: ...
    def board(self) -> Board: ...
    def fileno(self) -> int: ...
    def ring(self) -> None: ...
    def clear(self) -> None: ...

@final
class Board:
    def row(self, host: int) -> BoardRow: ...
    def marks(self, level: int) -> list[tuple[int, int]]: ...
    def has(self, index: int, count: int, level: int, hosts: Sequence[int] | None) -> bool: ...
    def wait(
        self,
        index: int,
        count: int,
        level: int,
        hosts: Sequence[int] | None,
        seconds: float | None,
    ) -> int: ...
    def watch(self, index: int, count: int, level: int, hosts: Sequence[int] | None) -> int: ...
    def unwatch(self, watch: int) -> None: ...
    def end(self) -> None: ...
    def go_on(self) -> None: ...

@final
class BoardRow:
    def raise_to(self, level: int, index: int) -> None: ...
    def lower_to(self, level: int, index: int) -> None: ...
    def mark(self, level: int) -> int: ...

@final
class Pen:
    def __new__(
        cls,
        store: memoryview,
        table: memoryview,
        turn: memoryview,
        terms: PenTerms,
        sequence: int,
        position: int,
    ) -> Pen: ...
    @property
    def next_index(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    def append_one(self, payload: bytes | memoryview, now_ms: int | None = None) -> int: ...
    def append_many(
        self, payloads: Sequence[bytes | memoryview], now_ms: int | None = None
    ) -> int: ...
    def append_at(
        self,
        data: bytes | memoryview,
        offsets: array[int],
        lengths: array[int],
        index_first: int,
    ) -> int: ...

@final
class LiveControl:
    def __new__(cls) -> LiveControl: ...
    def interrupt(self) -> None: ...
    def reset(self) -> None: ...
    def send(self, data: bytes) -> None: ...
    def put_tokens(self, bytes_per_s: int, tokens: int, goes_on: bool) -> None: ...
    def take_tokens(self) -> int | None: ...
    def take(self) -> bytes: ...
    @property
    def bell(self) -> int: ...
    def take_handed(self) -> bytes: ...

@final
class SendBudget:
    def __new__(cls, free: int) -> SendBudget: ...
    @property
    def free(self) -> int: ...
    def set(self, free: int) -> None: ...

@final
class FoundRuns:
    def __new__(cls) -> FoundRuns: ...
    def of_queue(self) -> QueueRuns: ...

@final
class QueueRuns: ...

@final
class SourceLane:
    def __new__(
        cls,
        store: memoryview,
        place: tuple[int, int, int, int],
        cid_document: bytes,
        payload_max: int,
        recorded: tuple[int, tuple[int, int] | None, tuple[int, int, int, int] | None, int | None],
        room: tuple[int, int],
        is_logged: bool,
        row: MarkRow,
        index_sent: int,
        target: int,
        index_held: int,
        has_runs: bool = False,
        has_much: bool = False,
        budget: SendBudget | None = None,
        held: int = 0,
        runs: tuple[QueueRuns, int] | None = None,
    ) -> SourceLane: ...
    @property
    def has_much(self) -> bool: ...
    @property
    def position(self) -> int: ...
    @property
    def position_last(self) -> int: ...
    def add_room(self, excerpts: int, payload_bytes: int) -> None: ...
    def go_on(
        self,
        room: tuple[int, int],
        index_sent: int,
        target: int,
        index_held: int,
        held: int,
        has_much: bool,
    ) -> None: ...
    def let_go(self) -> None: ...
    @property
    def state(self) -> int: ...
    def take_moves(self) -> int: ...
    def mute(self) -> None: ...
    def take_sent(self) -> tuple[array[int], tuple[int, int], array[int]]: ...

@final
class StoredBell:
    def __new__(cls) -> StoredBell: ...
    def wait(self) -> list[tuple[int, int]]: ...
    def ring(self) -> None: ...

@final
class SinkLane:
    def __new__(
        cls,
        pen: Pen,
        cid_document: bytes,
        payload_max: int,
        is_acknowledged: bool,
        is_logged: bool,
        acknowledged: int,
        has_runs: bool = False,
    ) -> SinkLane: ...
    @property
    def told(self) -> tuple[int, int, int]: ...
    def await_stored(self, bell: StoredBell, number: int) -> None: ...
    def say_level(self, level: int, index: int) -> None: ...
    def take_stored(self) -> tuple[int, int, bytes]: ...
    @property
    def state(self) -> int: ...
    def take_moves(self) -> int: ...

_LaneTable = tuple[list[str], list[str], list[tuple[int, int, int]]]

def lane_tables() -> tuple[_LaneTable, _LaneTable]: ...
def run_live(
    socket: int,
    control: LiveControl,
    sources: Sequence[SourceLane],
    sinks: Sequence[SinkLane],
    pausing: int,
    is_idle: bool,
    slice_ms: int,
    received: bytes,
    waited: WordLooks | None = None,
) -> tuple[int, bytes, bytes, tuple[int | None, int | None]]: ...
