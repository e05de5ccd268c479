"""Numbers and messages of a FIX session, in storages: for any engine in Python.

Theory of operation. A session has four storages, named after it:

    NAME.out          a sequence: what it has sent. An item is a number, and its message
    NAME.in           a sequence: what has come. An item is a number, the generation of NAME.out,
                      and the message, if the engine wants that kept
    NAME.outq         a queue: what is to be sent
    NAME.properties   a queue of one item: values of the session, as JSON

An item of a number N says that the next number is N + 1. One without a message says that alone: so
a number is set. The last item counts, whatever its number. A reset is *one* record, of NAME.out:
items of NAME.in that were written before it say another generation, and count no more. Nothing is
between a message and its number, and nothing between the two numbers of a reset, where a host could
die. What goes out is waited for. What came is not: a session that has lost the end of it asks for
it once more, as FIX has it. Java's store (`tools/java/fix`) has the same items in the same bytes.
"""

import struct
import threading
from array import array
from bisect import bisect_left, bisect_right
from typing import Any, Final, NamedTuple

from cqrepl.persist.factory import PersistenceFactory
from cqrepl.persist.storage.storages import (
    BytesSerializer,
    JsonSerializer,
    PersistentQueue,
    PersistentSequence,
    StoredIndex,
)

NUMBER_MAX: Final = (1 << 31) - 1
_NUMBER: Final = struct.Struct("<I")
_CAME: Final = struct.Struct("<II")  # the number, the generation of what goes out
_GEN_MASK: Final = (1 << 32) - 1
_AT_ONCE: Final = 1000  # items that are read in one step


class Sent(NamedTuple):
    """A message that was sent, by its number."""

    number: int
    message: bytes


class FixSessionStore:
    """The store of one session. Threads may share it; its calls may wait.

    Args:
        factory: of the host that leads, or of one directory.
        session_id: the name of its storages, as `FIX.4.4:A->B`.
        timeout: seconds that what goes out is waited for; 0: not at all; None: as the factory says.

    Raises:
        NotLeader: this host does not lead, and has no such session.
        StorageDamaged, ValueError, QueueError, OSError: as the factory.
    """

    def __init__(
        self, factory: PersistenceFactory, session_id: str, timeout: float | None = None
    ) -> None:
        self.session_id: Final = session_id
        self._guard = threading.RLock()
        data = BytesSerializer()
        name = f"{session_id}.out"
        self._out = factory.get_or_create_sequence(name, None, data, timeout)
        self._in = factory.get_or_create_sequence(f"{session_id}.in", None, data, 0)
        self._waiting = factory.get_or_create_queue(f"{session_id}.outq", data, timeout)
        name = f"{session_id}.properties"
        self._values = factory.get_or_create_queue(name, JsonSerializer(), timeout)
        self._sent = _SentIndex()
        self._came = _Came()
        if self._out.generation == 0:
            self._out.reset()  # its time is that of the session
        self._look()

    @property
    def created_at(self) -> int:
        """The time of the last reset, ms since 1970; at first that when the session was made."""
        return self._out.reset_at

    @property
    def next_sender(self) -> int:
        """The number of the next message that is sent."""
        with self._guard:
            self._look()
            return self._sent.last + 1

    @property
    def next_target(self) -> int:
        """The number of the next message that is to come."""
        with self._guard:
            self._look()
            is_current = self._came.gen == self._out.generation & _GEN_MASK
            return self._came.last + 1 if is_current else 1

    def set_message(self, number: int, message: bytes) -> StoredIndex:
        """Keeps a message that is to be sent, and with it its number; `is_acked` where a backup
        has it.

        Raises:
            ValueError: it is no number of a message, or the message is empty.
            NotLeader, StorageDamaged, QueueError, OSError: it is not to be sent.
        """
        if not message:
            raise ValueError(f"session {self.session_id!r}: expected a message, got no bytes")
        return self._put(self._checked(number), message)

    def set_next_sender(self, number: int) -> StoredIndex:
        """The next message that is sent has this number.

        Raises:
            ValueError, NotLeader, StorageDamaged, QueueError, OSError: as `set_message`.
        """
        return self._put(self._checked(number) - 1, b"")

    def set_next_target(self, number: int) -> None:
        """The next message that is to come has this number.

        Raises:
            ValueError, NotLeader, StorageDamaged, QueueError, OSError: as `set_message`.
        """
        self._note(self._checked(number) - 1, b"")

    def received(self, number: int, message: bytes = b"") -> None:
        """A message has come, and was dealt with; it is kept where it is given.

        Raises:
            ValueError, NotLeader, StorageDamaged, QueueError, OSError: as `set_message`.
        """
        self._note(self._checked(number), message)

    def messages(self, first: int, last: int = 0) -> list[Sent]:
        """The messages that were sent, from one number to another; 0: to the last one. Numbers of
        which there is none are left out.

        Raises:
            QueueError, OSError: the log cannot be read.
        """
        with self._guard:
            self._look()
            places = self._sent.places(first, last if last else NUMBER_MAX)
            items = [self._out.read(place) for place in places]
        return [Sent(_NUMBER.unpack_from(each)[0], each[_NUMBER.size :]) for each in items]

    def reset(self) -> StoredIndex:
        """Both numbers are 1 again, and no message is there. What is to be sent stays.

        Raises:
            NotLeader, StorageDamaged, QueueError, OSError: as `set_message`.
        """
        with self._guard:
            stored = self._out.reset()
            self._in.reset()
            self._look()
            return stored

    @property
    def timeout_s(self) -> float:
        """For so long what goes out is waited for; 0: not at all."""
        return self._out.timeout_s

    @property
    def waiting(self) -> PersistentQueue[bytes]:
        """The messages that are to be sent."""
        return self._waiting

    @property
    def properties(self) -> dict[str, Any]:
        """The values of the session."""
        *_, values = ({}, *(each for _, each in self._values))
        return dict(values)

    def set_properties(self, values: dict[str, Any]) -> StoredIndex:
        """Has the session have these values, and no other ones.

        Raises:
            TypeError: JSON does not have them.
            NotLeader, StorageDamaged, QueueError, OSError: as `set_message`.
        """
        with self._guard:
            stored = self._values.append(values)
            if stored > 1:
                self._values.remove(stored - 1)
            return stored

    def _checked(self, number: int) -> int:
        if not 1 <= number <= NUMBER_MAX:
            where = f"session {self.session_id!r}"
            raise ValueError(f"{where}: expected a number from 1 to {NUMBER_MAX}, got {number}")
        return number

    def _put(self, number: int, message: bytes) -> StoredIndex:
        with self._guard:
            self._look()
            stored = self._out.append(_NUMBER.pack(number) + message)
            if stored == self._sent.next:
                self._sent.take(int(stored), number, has_message=bool(message))
            return stored  # else another store of the session has written: the next look has all

    def _note(self, number: int, message: bytes) -> None:
        with self._guard:
            self._look()
            gen = self._out.generation & _GEN_MASK
            stored = self._in.append(_CAME.pack(number, gen) + message)
            self._came.take(int(stored), number, gen)

    def _look(self) -> None:
        """Takes what has come into the storages since: from another host, before this one led."""
        self._sent.look(self._out)
        self._came.look(self._in)


class _SentIndex:
    """The places of the messages by their numbers, and the last number."""

    def __init__(self) -> None:
        self.last = 0
        self.next = 1  # logical index
        self._gen = -1
        self._numbers = array("I")  # ascending
        self._places = array("q")

    def look(self, out: PersistentSequence[bytes]) -> None:
        """Takes what is new in the sequence."""
        if self._gen != out.generation:
            self._gen, self.next, self.last = out.generation, out.first_index, 0
            self._numbers, self._places = array("I"), array("q")
        end = out.next_index
        while self.next < end:
            for item in out.read_range(self.next, min(self.next + _AT_ONCE, end) - 1):
                (number,) = _NUMBER.unpack_from(item)
                self.take(self.next, number, has_message=len(item) > _NUMBER.size)

    def take(self, place: int, number: int, *, has_message: bool) -> None:
        """An item of the sequence, the next one."""
        self.next, self.last = place + 1, number
        if not has_message:
            return
        at = bisect_left(self._numbers, number)
        if at < len(self._numbers) and self._numbers[at] == number:
            self._places[at] = place
        else:
            self._numbers.insert(at, number)
            self._places.insert(at, place)

    def places(self, first: int, last: int) -> "array[int]":
        """The logical indexes of messages."""
        begin, end = bisect_left(self._numbers, first), bisect_right(self._numbers, last)
        return self._places[begin:end]


class _Came:
    """The last number that has come, and the generation in which it did."""

    def __init__(self) -> None:
        self.last = 0
        self.gen = 0
        self._next = 1
        self._resets = -1

    def look(self, came: PersistentSequence[bytes]) -> None:
        """Takes what is new in the sequence."""
        if self._resets != came.generation:
            self.last = self.gen = 0
            self._resets, self._next = came.generation, came.first_index
        if self._next < came.next_index:
            place = came.next_index - 1
            self.take(place, *_CAME.unpack_from(came.read(place)))

    def take(self, place: int, number: int, gen: int) -> None:
        """An item of the sequence, the next one."""
        self._next, self.last, self.gen = place + 1, number, gen
