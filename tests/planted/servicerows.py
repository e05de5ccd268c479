"""The mistakes in services: the rows of `rows` that are about them."""

from typing import Final

from tests.planted.plantedmistake import Planted

SERVICE_ROWS: Final = (
    Planted(
        name="number-of-a-storage-from-memory",
        room="persist",
        file="storage/storageservice.py",
        text="        self._lead = lead = _Lead(leading, Numberer(self._stored, leading.epoch))\n",
        wrong="""\
        kept = self.__dict__.setdefault("_kept", Numberer(self._stored, leading.epoch))
        self._lead = lead = _Lead(leading, kept)
""",
        tests=("tests/net/test_storages.py",),
    ),
    Planted(
        name="kept-item-is-not-told",
        room="persist",
        file="storage/syncwords.py",
        text="    if since:\n",
        wrong="    if since < 0:\n",
        tests=("tests/unit/persist/test_storage_state.py",),
    ),
    Planted(
        name="old-answer-undoes-a-reset",
        room="persist",
        file="persistdesk.py",
        text="            if is_same and storage.damage:",
        wrong="            if service.table.storages.get(storage.id) is storage:",
        tests=("tests/net/test_storage_faults.py",),
    ),
    Planted(
        name="files-go-while-a-storage-is-damaged",
        room="persist",
        file="storage/storageservice.py",
        text="        if is_whole:",
        wrong="        if is_whole is not None:",
        tests=("tests/net/test_storage_faults.py",),
    ),
    Planted(
        name="damaged-storage-keeps-hosts-out",
        room="persist",
        file="persistdesk.py",
        text="        if row.damage:",
        wrong="        if row.damage is None:",
        tests=("tests/net/test_storage_faults.py",),
    ),
    Planted(
        name="item-that-is-too-long-ends-the-lead",
        room="persist",
        file="storage/storageservice.py",
        text="            except ExcerptTooLarge as error:",
        wrong="            except ZeroDivisionError as error:",
        tests=("tests/net/test_storage_faults.py",),
    ),
    Planted(
        name="report-under-the-lock",
        room="persist",
        file="storage/storages.py",
        text="                others.append((record.index, said))\n",
        wrong="                self._on_report(record.index, said)\n",
        tests=("tests/unit/persist/test_local_storages.py",),
    ),
    Planted(
        name="late-state-passes-over-items",
        room="persist",
        file="storage/storageservice.py",
        text="            if not has_all:",
        wrong="            if has_all is None:",
        tests=("tests/net/test_storage_faults.py",),
    ),
    Planted(
        name="reset-of-a-sequence-by-its-time",
        room="persist",
        file="storage/storagetable.py",
        text="            if record.gen > storage.gen:\n                storage.clear",
        wrong="            if record.at > storage.at:\n                storage.clear",
        tests=("tests/unit/persist/test_storage_state.py",),
    ),
    Planted(
        name="answer-that-counts-before-it-is-finished",
        room="persist",
        file="storage/syncwords.py",
        text="self._coming, self._next, self.pos = coming, ",
        wrong="""\
self.storage = self._coming = coming
        self._next, self.pos = """,
        tests=("tests/unit/persist/test_storage_state.py",),
    ),
    Planted(
        name="applied-is-told-before-it-is-applied",
        room="replicator",
        file="followfeed.py",
        text="""\
        self._call(partial(self._follower.apply, batch, self.committed()))
        self.records += len(batch)
""",
        wrong="""\
        with suppress(Refused):
            self._host_queue.applied(batch.index_last)
        surroundings().sleep(0.02)
        self._call(partial(self._follower.apply, batch, self.committed()))
        self.records += len(batch)
""",
        tests=("tests/net/test_storages.py",),
    ),
    Planted(
        name="jump-of-a-logical-index-is-taken",
        room="persist",
        file="storage/storagetable.py",
        text="        if record.index > storage.next:\n",
        wrong="        if record.index > storage.next + 99:\n",
        tests=("tests/net/test_storages.py",),
    ),
    Planted(
        name="record-of-a-board-takes-the-time-of-the-host",
        room="broker",
        file="service.py",
        text="effect = self.board.apply(index, said)",
        wrong="""\
now = surroundings().wall_ms()
                said = TaskWords(said.name, dict(said.values) | {"now": now})
                effect = self.board.apply(index, said)""",
        tests=("tests/property/test_board_snapshots.py",),
    ),
    Planted(
        name="finish-taken-from-a-worker-that-lost-the-task",
        room="broker",
        file="taskboard.py",
        text="if (task.worker, task.attempt) != (name, attempt):",
        wrong="if not attempt:",
        tests=("tests/unit/broker/test_board.py",),
    ),
    Planted(
        name="numbers-before-a-reset-counted",
        room="persist",
        file="fix.py",
        text="            return self._came.last + 1 if is_current else 1\n",
        wrong="            return self._came.last + 1 if is_current else self._came.last + 1\n",
        tests=("tests/unit/persist/test_fix_sessions.py",),
    ),
    Planted(
        name="synchronous-without-a-time",
        room="persist",
        file="properties.py",
        text="    if is_synchronous and timeout_ms == 0:\n",
        wrong="    if is_synchronous and timeout_ms < 0:\n",
        tests=("tests/unit/persist/test_properties.py",),
    ),
)
