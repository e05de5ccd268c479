"""The selection of the documents that are shown.

--at POSITION        from the document whose header stands there
--from, --to INDEX   from one excerpt to another, and what stands between them; of a stream the
                     events and acknowledgements with these indexes
--grep RE            those whose text matches
--no-index-pages     not the meta-data that leads from sequences to positions
--max N              no more than so many, over all inputs
"""

import re
from dataclasses import dataclass

from cqrepl.dump.entries import Entry


class NotSelectable(Exception):
    """The documents that were asked for cannot be found in this input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The documents that the options ask for."""

    at: int | None = None
    index_first: int | None = None
    index_last: int | None = None
    pattern: re.Pattern[str] | None = None
    count_max: int | None = None
    index_pages: bool = True

    @property
    def is_all(self) -> bool:
        """True when every document is shown."""
        return self == Wanted()

    @property
    def has_range(self) -> bool:
        """True when indexes decide."""
        return self.index_first is not None or self.index_last is not None


class Selection:
    """Applies what is wanted to the documents of one input after the other."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._count = 0
        self._has_begun = False
        self._is_behind = False

    def next_input(self) -> None:
        """The documents that follow are those of another input."""
        self._has_begun = self._is_behind = False

    @property
    def is_full(self) -> bool:
        """True when as many as were wanted have been shown."""
        return self.wanted.count_max is not None and self._count >= self.wanted.count_max

    @property
    def is_done(self) -> bool:
        """True when no further document of this input is shown."""
        return self.is_full or self._is_behind

    def takes(self, entry: Entry) -> bool:
        """True when this document, the next of its input, is shown.

        Raises:
            NotSelectable: no document stands where the first one was wanted.
        """
        wanted = self.wanted
        if wanted.at is not None and entry.passage is not None:
            raise NotSelectable(
                "a file or stream was expected to begin at a position, not a capture"
            )
        if wanted.at is not None and not self._is_from(entry.document.position, wanted.at):
            return False
        if wanted.has_range and not self._is_in_range(entry):
            return False
        if entry.is_index_page and not wanted.index_pages:
            return False
        if wanted.pattern is not None and not wanted.pattern.search(entry.text()):
            return False
        self._count += 1
        return True

    def _is_from(self, position: int, at: int) -> bool:
        if position > at and not self._has_begun:
            raise NotSelectable(f"no document begins at position {at}, the next at {position}")
        self._has_begun = position >= at
        return self._has_begun

    def _is_in_range(self, entry: Entry) -> bool:
        first, last = self.wanted.index_first, self.wanted.index_last
        if entry.said is not None:
            index = entry.said.index
            return (
                index is not None
                and (first is None or index >= first)
                and (last is None or index <= last)
            )
        if entry.index is not None:
            self._has_begun = first is None or entry.index >= first
            self._is_behind = last is not None and entry.index > last
        elif entry.sequence is not None:
            raise NotSelectable("a name of a store file was expected, which tells its indexes")
        return (self._has_begun or first is None) and not self._is_behind
