"""Single aligned loads and stores, and compare-and-set, on mapped memory that other processes use.

Theory of operation. Processes share a queue's files through memory alone. What one publishes, by
storing a header word or a lock word, the others must see whole, and after all stored before it.

    load        aligned, whole, acquiring: later reads see what was stored before that word
    store       sequentially consistent, hence a release of all stores before it
    exchange    compare-and-set, sequentially consistent
    put         an aligned store without order

The standard library has no compare-and-set. The native kernel has all of this; without it libatomic
(a part of gcc) is called through ctypes, about 0.8 us each: callers use it per batch, never per
excerpt. Loads are then plain ones through a cast memory view, with a `fence` behind, exact on x86
without it. Without kernel and library reading works and everything that writes raises
`AtomicsMissing`. Plain stores are never used for a word that other processes wait on: Python may
split them into bytes.
"""

import ctypes
import ctypes.util
from collections.abc import Iterator
from functools import cache
from typing import Final

from cqrepl.kernel.memory import atomic_words
from cqrepl.queue.format.errors import AtomicsMissing

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


_library = cache(_load)  # looked for when it is needed: a native kernel needs none


def require() -> None:
    """Does nothing where words can be exchanged.

    Raises:
        AtomicsMissing: the line that tells what to install.
    """
    if atomic_words() is None and _library() is None:
        raise AtomicsMissing(
            "writing needs the library libatomic (package libatomic1 or libatomic; comes with gcc)"
            " or the native kernel"
        )


def fence() -> None:
    """Keeps later reads behind the loads before; nothing without kernel and libatomic."""
    native = atomic_words()
    if native is not None:
        native.fence()
    elif (library := _library()) is not None:
        library.fence(_ACQUIRE)


class Words:
    """The aligned words of one mapped buffer. Positions are byte offsets in it.

    Hold no `Words` longer than the mapping: `release` before it closes.
    """

    def __init__(self, buffer: memoryview) -> None:
        native = atomic_words()
        self._words = _LibraryWords(buffer) if native is None else native(buffer)
        self._longs = buffer[: len(buffer) & ~7].cast("q")
        self._address = _address_of(buffer)

    @property
    def address(self) -> int | None:
        """The address of the buffer in memory; None when it is empty or may not be written."""
        return self._address

    def release(self) -> None:
        """Gives the buffer back; no access afterwards."""
        self._words.release()
        self._longs.release()
        self._address = None

    def load_4(self, position: int) -> int:
        """The unsigned 32-bit word there."""
        assert position & 3 == 0 <= position
        return self._words.load_4(position)

    def load_8(self, position: int) -> int:
        """The signed 64-bit word there."""
        assert position & 7 == 0 <= position
        return self._words.load_8(position)

    def store_4(self, position: int, value: int) -> None:
        """Stores an unsigned 32-bit word, behind all stores before."""
        assert position & 3 == 0 <= position
        self._words.store_4(position, value)

    def store_8(self, position: int, value: int) -> None:
        """Stores a signed 64-bit word, behind all stores before."""
        assert position & 7 == 0 <= position
        self._words.store_8(position, value)

    def put_8(self, position: int, value: int) -> None:
        """Stores a signed 64-bit word as one aligned access, without order or library.

        For words that tell something about another word, and are read with it being ordered.
        """
        assert position & 7 == 0 <= position
        self._longs[position >> 3] = value

    def exchange_4(self, position: int, expected: int, value: int) -> bool:
        """Stores `value` if `expected` stands there; true if it did."""
        assert position & 3 == 0 <= position
        return self._words.exchange_4(position, expected, value)

    def exchange_8(self, position: int, expected: int, value: int) -> bool:
        """Stores `value` if `expected` stands there; true if it did."""
        assert position & 7 == 0 <= position
        return self._words.exchange_8(position, expected, value)

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


class _LibraryWords:
    """The same as the native kernel's `AtomicWords`, by libatomic."""

    def __init__(self, buffer: memoryview) -> None:
        length = len(buffer)
        self._words = buffer[: length & ~3].cast("I")
        self._longs = buffer[: length & ~7].cast("q")
        self._address = _address_of(buffer)

    def release(self) -> None:
        self._words.release()
        self._longs.release()
        self._address = None

    def load_4(self, position: int) -> int:
        return self._words[position >> 2]

    def load_8(self, position: int) -> int:
        return self._longs[position >> 3]

    def store_4(self, position: int, value: int) -> None:
        library, at = self._writable(position, 4)
        library.store_4(at, value, _SEQUENTIAL)

    def store_8(self, position: int, value: int) -> None:
        library, at = self._writable(position, 8)
        library.store_8(at, value % _SPAN, _SEQUENTIAL)

    def exchange_4(self, position: int, expected: int, value: int) -> bool:
        library, at = self._writable(position, 4)
        was = ctypes.c_uint32(expected)
        done = library.exchange_4(at, ctypes.byref(was), value, _SEQUENTIAL, _SEQUENTIAL)
        return bool(done)

    def exchange_8(self, position: int, expected: int, value: int) -> bool:
        library, at = self._writable(position, 8)
        was = ctypes.c_uint64(expected % _SPAN)
        done = library.exchange_8(at, ctypes.byref(was), value % _SPAN, _SEQUENTIAL, _SEQUENTIAL)
        return bool(done)

    def _writable(self, position: int, width: int) -> tuple[_Library, int]:
        assert 0 <= position <= len(self._words) * 4 - width
        assert self._address is not None
        library = _library()
        if library is None:
            require()
        assert library is not None
        return library, self._address + position


def _address_of(buffer: memoryview) -> int | None:
    """The address of the buffer in memory; None when it is empty or may not be written."""
    if buffer.readonly or not buffer:
        return None
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
