"""Storages lose nothing that was acknowledged while leaders are killed, frozen, cut off."""

import pytest

from tests.laboratory.storageruns import storage_run
from tests.support.schedules import seeds


@pytest.mark.parametrize("seed", seeds(2))
def test_storages_keep_their_word(seed: int) -> None:
    outcome, writes = storage_run(seed)
    assert outcome.broken is None, outcome.broken
    assert len(writes.done) > 3
