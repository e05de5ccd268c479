"""A fault put into storages on purpose: the laboratory finds it."""

from collections.abc import Callable

import pytest

from cqrepl.persist.storage.records import StorageRecord
from cqrepl.persist.storage.storagecore import WrittenRecord
from cqrepl.persist.storage.storagenumbers import Numberer
from tests.laboratory.storageruns import Records, storage_run

FOUND_BY = 4  # the first seed whose host leads a second time, without a start between


class Remembering(Records):
    """Numbers items by what it remembers of the time when it led before, not by its log."""

    kept: Numberer | None = None

    def write(self, make: Callable[[Numberer], StorageRecord | None]) -> WrittenRecord | None:
        if self._lead is not None:
            self.kept = self._lead.numbering = self.kept or self._lead.numbering
        return super().write(make)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_numbers_from_memory_are_found() -> None:
    outcome, _ = storage_run(FOUND_BY, make=Remembering)
    assert "another item has the number of" in str(outcome.broken)
