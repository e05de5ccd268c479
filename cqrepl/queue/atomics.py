"""Single aligned loads and stores, and compare-and-set, on mapped memory that other processes use.

Theory of operation. Processes share a queue's files through memory alone. What one publishes, by
storing a header word or a lock word, others must see whole, and after everything stored before it.

    load        one aligned machine access through a cast memory view; needs no library
    store       libatomic, sequentially consistent, hence a release of all stores before it
    exchange    libatomic's compare-and-set
    fence       libatomic; makes the loads before it acquiring. On x86 loads are so anyway

The standard library has no compare-and-set, so libatomic (a part of gcc) is called through ctypes,
about 0.8 us each: callers use it per batch, never per excerpt. Without it reading works (without a
fence: exact on x86) and everything that writes raises `AtomicsMissing`. Plain stores are never
used for a word that others wait on: Python may split them into bytes.
"""

import ctypes
import ctypes.util
from collections.abc import Iterator
from typing import Final

from cqrepl.queue.errors import AtomicsMissing

_SEQUENTIAL: Final = 5  # memory order of the C library's atomic functions
_ACQUIRE: Final = 2
_SIGN: Final = 1 << 63
_SPAN: Final = 1 << 64
INT64_MIN: Final = -_SIGN
INT64_MAX: Final = _SIGN - 1
_SONAME: Final = "libatomic.so.1"


class _Library:
    """The functions of libatomic that are used, typed once."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, order = ctypes.c_void_p, ctypes.c_int
        self.store_4 = library["__atomic_store_4"]
        self.store_4.argtypes = (pointer, ctypes.c_uint32, order)
        self.store_8 = library["__atomic_store_8"]
        self.store_8.argtypes = (pointer, ctypes.c_uint64, order)
        self.exchange_4 = library["__atomic_compare_exchange_4"]
        self.exchange_4.argtypes = (pointer, pointer, ctypes.c_uint32, order, order)
        self.exchange_8 = library["__atomic_compare_exchange_8"]
        self.exchange_8.argtypes = (pointer, pointer, ctypes.c_uint64, order, order)
        for store in (self.store_4, self.store_8):
            store.restype = None
        for exchange in (self.exchange_4, self.exchange_8):
            exchange.restype = ctypes.c_bool
        self.fence = library["atomic_thread_fence"]
        self.fence.argtypes = (order,)
        self.fence.restype = None


def _names() -> Iterator[str | None]:
    yield _SONAME
    # this starts other programs to look: only where the usual name fails
    yield ctypes.util.find_library("atomic")


def _load() -> _Library | None:
    for name in _names():
        try:
            return None if name is None else _Library(ctypes.CDLL(name))
        except (OSError, AttributeError):
            continue
    return None


_library = _load()


def require() -> None:
    """Does nothing where words can be exchanged.

    Raises:
        AtomicsMissing: the line that tells what to install.
    """
    if _library is None:
        raise AtomicsMissing(
            "writing needs the library libatomic (package libatomic1 or libatomic; comes with gcc)"
        )


def fence() -> None:
    """Keeps later reads behind the loads before; nothing without libatomic."""
    if _library is not None:
        _library.fence(_ACQUIRE)


class Words:
    """The aligned words of one mapped buffer. Positions are byte offsets in it.

    Hold no `Words` longer than the mapping: `release` before it closes.
    """

    def __init__(self, buffer: memoryview) -> None:
        length = len(buffer)
        self._words = buffer[: length & ~3].cast("I")
        self._longs = buffer[: length & ~7].cast("q")
        self._address = _address_of(buffer)

    @property
    def address(self) -> int | None:
        """Where the buffer lies in memory; None when it is empty or may not be written."""
        return self._address

    def release(self) -> None:
        """Gives the buffer back; no access afterwards."""
        self._words.release()
        self._longs.release()
        self._address = None

    def load_4(self, position: int) -> int:
        """The unsigned 32-bit word there."""
        assert position & 3 == 0 <= position
        return self._words[position >> 2]

    def load_8(self, position: int) -> int:
        """The signed 64-bit word there."""
        assert position & 7 == 0 <= position
        return self._longs[position >> 3]

    def store_4(self, position: int, value: int) -> None:
        """Stores an unsigned 32-bit word, behind all stores before."""
        library, at = self._writable(position, 4)
        library.store_4(at, value, _SEQUENTIAL)

    def store_8(self, position: int, value: int) -> None:
        """Stores a signed 64-bit word, behind all stores before."""
        library, at = self._writable(position, 8)
        library.store_8(at, value % _SPAN, _SEQUENTIAL)

    def put_8(self, position: int, value: int) -> None:
        """Stores a signed 64-bit word as one aligned access, without order or library.

        For words that tell something about another word, and are read with it being ordered.
        """
        assert position & 7 == 0 <= position
        self._longs[position >> 3] = value

    def exchange_4(self, position: int, expected: int, value: int) -> bool:
        """Stores `value` if `expected` stands there; true if it did."""
        library, at = self._writable(position, 4)
        was = ctypes.c_uint32(expected)
        done = library.exchange_4(at, ctypes.byref(was), value, _SEQUENTIAL, _SEQUENTIAL)
        return bool(done)

    def exchange_8(self, position: int, expected: int, value: int) -> bool:
        """Stores `value` if `expected` stands there; true if it did."""
        library, at = self._writable(position, 8)
        was = ctypes.c_uint64(expected % _SPAN)
        done = library.exchange_8(at, ctypes.byref(was), value % _SPAN, _SEQUENTIAL, _SEQUENTIAL)
        return bool(done)

    def raise_8(self, position: int, value: int) -> None:
        """Makes the signed 64-bit word at least `value`."""
        while (now := self.load_8(position)) < value:
            self.exchange_8(position, now, value)

    def lower_8(self, position: int, value: int) -> None:
        """Makes the signed 64-bit word at most `value`."""
        while (now := self.load_8(position)) > value:
            self.exchange_8(position, now, value)

    def add_8(self, position: int, amount: int) -> None:
        """Adds to the signed 64-bit word."""
        while not self.exchange_8(position, now := self.load_8(position), now + amount):
            pass

    def _writable(self, position: int, width: int) -> tuple[_Library, int]:
        assert position & (width - 1) == 0
        assert 0 <= position <= len(self._words) * 4 - width
        assert self._address is not None
        if _library is None:
            require()
        assert _library is not None
        return _library, self._address + position


def _address_of(buffer: memoryview) -> int | None:
    """Where the buffer lies in memory; None when it may not be written."""
    if buffer.readonly or not buffer:
        return None
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
