"""The positions of a queue's named tailers as they go to its copies, and are kept in a copy.

Theory of operation. At a source they are read where their readers move them, at any time and
without the lock of a name: first the version, then the index, then the version once more, until
both agree. A reader that is in between has the older version with the newer index; the newer
version follows with the next look.

In a copy only the session that takes it in writes them: a name that begins `replicated:` cannot be
opened while the append lock is held. The higher version stands, also with a lower index; with the
same version what comes stands; a name without versions takes what comes. A key is made for a name
that has none, where it ends within the first 32,768 bytes (`keptmarks`): the version first, as a
name without one would count no moves.

What was moved is in memory that all processes share, so a kill takes nothing. After a power cut a
position may be an older one: excerpts are read once more then, and none is left out.
"""

from typing import Final

from cqrepl.queue.files.chroniclemarks import ChronicleMarks
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.tablestore import TableStore, TableValue
from cqrepl.queue.format.index import NEXT_OF_EMPTY
from cqrepl.queue.format.tailerposition import (
    VERSION_NONE,
    VERSION_SUFFIX,
    TailerPosition,
    is_replicated,
    is_tailer_name,
)
from cqrepl.queue.read.namedtailer import TAILER_KEY, lower_named_tailers

_TRIES: Final = 8  # to read a name that is just moved; the next look does it else


class TailerPositions:
    """Those of one queue.

    Args:
        chronicle: has its table store open.
    """

    def __init__(self, chronicle: ChronicleMarks) -> None:
        self._chronicle = chronicle
        self._looked_to = 0  # the end of the keys, at the last look for names
        self._found: dict[str, _Place] = {}

    def look(self, *, all_names: bool) -> list[TailerPosition]:
        """The positions of the names now; none where the table store cannot be opened for writing.

        Args:
            all_names: also names that do not begin `replicated:`.

        Raises:
            QueueError: the table store is damaged.
        """
        table = self._chronicle.table()
        if table is None:
            return []
        if not table.ends_at(self._looked_to) and (end := table.keys_end()) != self._looked_to:
            self._find_all(table)
            self._looked_to = end
        places = self._found.values()
        found = (place.load() for place in places if all_names or place.is_replicated)
        return [each for each in found if each is not None]

    def has(self, name: str) -> bool:
        """True for a name that was taken before: `take` waits for no lock."""
        return name in self._found

    def take(self, position: TailerPosition) -> bool:
        """Keeps a position in a copy, where its own is no later one; false where there is no room
        for its keys, or they cannot be written.

        Raises:
            QueueError: another process keeps the lock of the table store, or it is damaged.
        """
        table = self._chronicle.table()
        if table is None:
            return False
        place = self._found.get(position.name) or _added(table, position)
        if place is None:
            return position.index == NEXT_OF_EMPTY  # nothing is lost of that
        self._found[position.name] = place
        place.take(position)
        return True

    def lower_to(self, index: int) -> None:
        """Takes names back that stand behind what the queue has, which ends before `index`: other
        excerpts may get the indexes that they have read. Nothing where it cannot be written.

        Raises:
            QueueError: the table store is damaged.
        """
        table = self._chronicle.table()
        if table is not None:
            lower_named_tailers(table, index)

    def _find_all(self, table: TableStore) -> None:
        for key in list(table.keys()):
            written = table.written(key)
            name = written[len(TAILER_KEY) :]
            if written.startswith(TAILER_KEY) and is_tailer_name(name):
                value = table.find(key)
                assert value is not None
                version = table.find(key + VERSION_SUFFIX) if is_replicated(name) else None
                self._found[name] = _Place(name, value, version)


class _Place:
    """The words of the table store that keep the position of one name."""

    def __init__(self, name: str, value: TableValue, version: TableValue | None) -> None:
        self._name = name
        self._value = value
        self._version = version  # of a name that begins `replicated:`, once it was moved

    @property
    def is_replicated(self) -> bool:
        return is_replicated(self._name)

    def load(self) -> TailerPosition | None:
        """None while it is moved all the time."""
        if not self.is_replicated:
            return TailerPosition(name=self._name, index=self._value.load())
        for _ in range(_TRIES):
            version = self._load_version()
            index = self._value.load()
            if self._load_version() == version:
                return TailerPosition(name=self._name, index=index, version=version)
        return None

    def take(self, position: TailerPosition) -> None:
        if self._version is None or position.version is None:
            self._value.store(position.index)
        elif position.version >= self._version.load():
            self._value.store(position.index)
            self._version.store(position.version)

    def _load_version(self) -> int:
        return VERSION_NONE if self._version is None else self._version.load()


def _added(table: TableStore, position: TailerPosition) -> _Place | None:
    """The keys of a name in a copy; None for one that has none and never will, as it was not moved,
    and where there is no room."""
    key, version = TAILER_KEY + position.name, None
    if position.index == NEXT_OF_EMPTY and table.find(key) is None:
        return None
    if is_replicated(position.name):
        version = table.value_within(key + VERSION_SUFFIX, VERSION_NONE, KEY_END_MAX)
        if version is None:
            return None
    value = table.value_within(key, NEXT_OF_EMPTY, KEY_END_MAX)
    return None if value is None else _Place(position.name, value, version)
