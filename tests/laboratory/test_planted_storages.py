"""Faults put into storages on purpose: the laboratory finds each."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio

from cqrepl.net.errors import Refused
from cqrepl.persist.storage.records import Op, StorageRecord
from cqrepl.persist.storage.storagecore import WrittenRecord
from cqrepl.persist.storage.storagenumbers import Numberer
from cqrepl.persist.storage.storageservice import StorageService
from cqrepl.persist.storage.storagetable import Storage, StorageTable
from cqrepl.persist.storage.syncwords import SyncAnswer
from cqrepl.queue import Queue, QueueError
from cqrepl.replicator.followfeed import FollowFeed
from cqrepl.service.fieldwords import FieldWords
from tests.laboratory.storageruns import storage_run

SEEDS = 60
LATE_SECONDS = 0.05

Patch = pytest.MonkeyPatch


def numbers_come_from_memory(patch: Patch) -> None:
    """A host that leads again goes on behind what it numbered when it led before."""
    write = StorageService.write
    kept: dict[StorageService, Numberer] = {}

    def remembering(
        self: StorageService, make: Callable[[Numberer], StorageRecord | None]
    ) -> WrittenRecord | None:
        if self._lead is not None:
            self._lead.numbering = kept.setdefault(self, self._lead.numbering)
        return write(self, make)

    patch.setattr(StorageService, "write", remembering)


def applied_is_told_before_it_is_applied(patch: Patch) -> None:
    """The feed tells what it has found, and the service takes it a little later."""
    take = FollowFeed._take_step

    async def early(self: FollowFeed) -> None:
        with suppress(QueueError, OSError, Refused), Queue.open(self.path) as queue:
            last = queue.last_index()
            if last is not None:
                self._host_queue.applied(last)
        await trio.sleep(LATE_SECONDS)
        await take(self)

    patch.setattr(FollowFeed, "_take_step", early)


def a_reset_raises_no_generation(patch: Patch) -> None:
    """And each reset is taken."""
    number, apply = Numberer.reset, StorageTable._apply

    def reset(self: Numberer, id_: int, next_index: int, now: int) -> StorageRecord:
        record = number(self, id_, next_index, now)
        return replace(record, gen=record.gen - 1)

    def taken(self: StorageTable, storage: Storage, ref: int, record: StorageRecord) -> Any:
        if record.op is Op.RESET:
            storage.gen = record.gen - 1
        return apply(self, storage, ref, record)

    patch.setattr(Numberer, "reset", reset)
    patch.setattr(StorageTable, "_apply", taken)


def a_reset_counts_by_its_time(patch: Patch) -> None:
    """And not by its generation: clocks go back."""
    apply = StorageTable._apply

    def taken(self: StorageTable, storage: Storage, ref: int, record: StorageRecord) -> Any:
        if record.op is Op.RESET and record.at <= storage.at:
            record = replace(record, gen=storage.gen)
        return apply(self, storage, ref, record)

    patch.setattr(StorageTable, "_apply", taken)


def an_answer_counts_before_it_is_finished(patch: Patch) -> None:
    """The storage that is told counts with the first word of it."""
    take = SyncAnswer.take

    def early(self: SyncAnswer, said: FieldWords) -> None:
        take(self, said)
        if said.name == "SYNC_REQ_ACCEPTED":
            self.storage = self._coming

    patch.setattr(SyncAnswer, "take", early)


PLANTED: list[Callable[[Patch], None]] = [
    numbers_come_from_memory,
    applied_is_told_before_it_is_applied,
    a_reset_raises_no_generation,
    a_reset_counts_by_its_time,
    an_answer_counts_before_it_is_finished,
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda each: each.__name__)
def test_it_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        outcomes = (storage_run(seed)[0] for seed in range(SEEDS))
        found = next((each for each in outcomes if each.broken is not None), None)
    assert found is not None, "not found"
    print(found.plan.seed, found.broken)
    assert found.check == "storages", found.broken
    whole, _ = storage_run(found.plan.seed)
    assert whole.broken is None, f"also without the fault: {whole.broken}"
