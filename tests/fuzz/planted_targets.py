"""Targets with a defect each: a campaign that does not find them finds nothing else either."""

import time
from typing import Final

from tests.fuzz.families import Family
from tests.fuzz.target import Target, only
from wire.errors import WireError
from wire.reader import Reader

_PIECE_BYTES: Final = 64 << 20
_PIECES_MAX: Final = 10
_held: list[bytes] = []


def _is_met(data: bytes) -> bool:
    """True for a nested block that holds a negative number; no seed does."""
    number = 0
    with only(WireError):
        number = Reader(data).read_block().read_int()
    return number < 0


def error(data: bytes) -> None:
    """Turns an announced error into another one."""
    try:
        Reader(data).read_block().read_bool()
    except WireError as reason:
        if "true or false" in reason.reason:
            raise ValueError("planted") from reason


def hang(data: bytes) -> None:
    while _is_met(data):
        time.sleep(0.01)


def memory(data: bytes) -> None:
    """Keeps more than is allowed."""
    if _is_met(data):
        while len(_held) < _PIECES_MAX:
            _held.append(bytes([1]) * _PIECE_BYTES)
        time.sleep(3)  # until libFuzzer looks, once in a second


def output(data: bytes) -> None:
    if _is_met(data):
        print("planted")


def _seeds() -> list[bytes]:
    return [b"\xc1a\xa1\x05", b"\xb1\xb0\xb1\xb0", b"\xa5\xff\xff"]


TARGETS: Final[Family] = {
    "planted-error": Target(run=error, seeds=_seeds),
    "planted-hang": Target(run=hang, seeds=_seeds),
    "planted-memory": Target(run=memory, seeds=_seeds),
    "planted-output": Target(run=output, seeds=_seeds),
}
