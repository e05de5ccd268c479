"""The mistakes: the room and the module of each, the text that it replaces, the tests to find it.

A module is named by its file alone, which is the only one of that name: it may move. The tests of a
row stand in the order in which they are tried; the first file that fails has found the mistake.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("cqrepl", "wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One mistake.

    Args:
        name: of the row, for the command line.
        room: the part of the product that it is in.
        file: name of the module.
        text: stands there exactly once.
        wrong: stands there instead, in the copy.
        tests: paths of tests that are expected to find it.
    """

    name: str
    room: str
    file: str
    text: str
    wrong: str
    tests: tuple[str, ...]

    def path(self, root: Path = ROOT) -> Path:
        """The module, in a tree.

        Raises:
            LookupError: there is none of this name, or there are several.
        """
        found = [path for each in PACKAGES for path in (root / each).rglob(self.file)]
        if len(found) != 1:
            raise LookupError(f"{self.name}: expected one {self.file}, found {len(found)}")
        return found[0]


ROWS: Final = (
    Planted(
        name="slot-sealed-early",
        room="queue/files",
        file="markslots.py",
        text="""\
            self._mapping.write(slot, _NONE)
            self._mapping.words.store_8(seal, sealed)
""",
        wrong="""\
            self._mapping.words.store_8(seal, sealed)
            self._mapping.write(slot, _NONE)
""",
        tests=("tests/unit/queue/test_kept_marks.py", "tests/faults/test_mark_kills.py"),
    ),
    Planted(
        name="failed-sync-forgotten",
        room="queue/files",
        file="syncedmark.py",
        text="if boot is None and last is not None and last.has_failed:",
        wrong="if boot is not None and last is not None and last.has_failed:",
        tests=("tests/unit/queue/test_durability.py", "tests/faults/test_failed_syncs.py"),
    ),
    Planted(
        name="failed-sync-not-noted",
        room="queue/files",
        file="filesync.py",
        text="if error.filename is None:",
        wrong="if error.filename is not None:",
        tests=("tests/unit/queue/test_acceptance.py", "tests/unit/queue/test_durability.py"),
    ),
    Planted(
        name="promise-not-synced",
        room="queue/files",
        file="epochfile.py",
        text="data + _SUM.pack(zlib.crc32(data)), is_synced=True)",
        wrong="data + _SUM.pack(zlib.crc32(data)), is_synced=False)",
        tests=("tests/unit/queue/test_epochs.py", "tests/faults/test_power_cuts.py"),
    ),
    Planted(
        name="chain-of-a-later-place",
        room="queue/read",
        file="chainpoints.py",
        text="bisect_right(self._points, sequence, key=itemgetter(0)) - 1]",
        wrong="bisect_right(self._points[1:], sequence + 1, key=itemgetter(0))]",
        tests=("tests/unit/queue/test_chains.py",),
    ),
    Planted(
        name="torn-sector-shifted",
        room="queue/read",
        file="tornsectors.py",
        text="    first = -position % SECTOR_BYTES\n",
        wrong="    first = position % SECTOR_BYTES\n",
        tests=("tests/unit/queue/test_held_excerpts.py",),
    ),
    Planted(
        name="reader-in-the-cycle-not-counted",
        room="queue/write",
        file="retention.py",
        text="cycle_of(Index(one[1]), cycles.shift) <= cycle]",
        wrong="cycle_of(Index(one[1]), cycles.shift) < cycle]",
        tests=("tests/unit/queue/test_retention.py",),
    ),
    Planted(
        name="open-file-deleted",
        room="queue/write",
        file="retention.py",
        text="if not cycles.has_ended(cycle):",
        wrong="if not reasons and not cycles.has_ended(cycle) and last is None:",
        tests=("tests/unit/queue/test_retention.py",),
    ),
    Planted(
        name="deleted-before-it-is-unlisted",
        room="queue/write",
        file="retention.py",
        text="""\
            listing.renew([one.cycle for one in verdicts if not one.is_removable])
            try:
""",
        wrong="""\
            try:
""",
        tests=("tests/unit/queue/test_retention.py",),
    ),
    Planted(
        name="changed-note-believed",
        room="queue/inspection",
        file="closedfiles.py",
        text="elif now is not None and _is_kept(held, now):",
        wrong="elif now is not None:",
        tests=("tests/unit/queue/test_closed_files.py", "tests/net/test_lost_files.py"),
    ),
    Planted(
        name="changed-closed-file-not-read-again",
        room="queue/inspection",
        file="closedfiles.py",
        text="            self._sound[record.cycle] = file\n",
        wrong="            self._sound.setdefault(record.cycle, file)\n            before = None\n",
        tests=("tests/unit/queue/test_closed_files.py", "tests/net/test_audits.py"),
    ),
    Planted(
        name="epoch-promised-twice",
        room="queue/format",
        file="epochs.py",
        text=" or (number == self.promised and host_id != self.promised_to):",
        wrong=":",
        tests=("tests/unit/queue/test_epochs.py",),
    ),
    Planted(
        name="parting-behind-the-common-epoch",
        room="queue/format",
        file="epochs.py",
        text="for each in entries if each.number > latest.number]",
        wrong="for each in entries if each.number >= latest.number]",
        tests=("tests/unit/queue/test_epochs.py",),
    ),
    Planted(
        name="one-excerpt-too-many",
        room="kernel",
        file="plain.py",
        text="if len(offsets) >= count_max or (total > bytes_max and offsets):",
        wrong="if len(offsets) > count_max or (total > bytes_max and offsets):",
        tests=("tests/unit/wire/test_kernel.py", "tests/property/test_kernel_properties.py"),
    ),
    Planted(
        name="excerpt-at-the-very-end-not-found",
        room="kernel",
        file="plain.py",
        text="        if body + length > end:\n            return position, PAST_END, offsets",
        wrong="        if body + length >= end:\n            return position, PAST_END, offsets",
        tests=("tests/unit/wire/test_kernel.py", "tests/property/test_kernel_properties.py"),
    ),
    Planted(
        name="safe-with-the-fastest",
        room="protocol",
        file="ackpolicy.py",
        text="min(last, found[-wanted])",
        wrong="min(last, found[wanted - 1])",
        tests=("tests/unit/protocol/test_ackpolicy.py",),
    ),
    Planted(
        name="safe-beyond-what-the-policy-allows",
        room="replicator",
        file="counters.py",
        text="index if self._safe is None else min(index, self._safe())",
        wrong="index",
        tests=("tests/net/test_levels.py",),
    ),
    Planted(
        name="safe-told-by-the-next-look-alone",
        room="replicator",
        file="commitwatch.py",
        text="        if safe >= queue.board.risen_to:",
        wrong="        if safe < queue.board.risen_to:",
        tests=("tests/net/test_levels.py",),
    ),
    Planted(
        name="synced-beyond-appended",
        room="protocol",
        file="ackpolicy.py",
        text="return min(marks.get(level, NOTHING), marks.get(AckLevel.APPENDED, NOTHING))",
        wrong="return marks.get(level, NOTHING)",
        tests=("tests/property/test_ack_policies.py",),
    ),
    Planted(
        name="window-one-excerpt-early",
        room="protocol",
        file="sendwindow.py",
        text="if index >= run.index_last:",
        wrong="if index >= run.index_last - 1:",
        tests=("tests/unit/protocol/test_window.py",),
    ),
    Planted(
        name="budget-not-given-back",
        room="protocol",
        file="sendwindow.py",
        text="        self.budget.free += self._excerpts\n",
        wrong="",
        tests=("tests/unit/protocol/test_send_budget.py", "tests/unit/protocol/test_window.py"),
    ),
    Planted(
        name="heartbeat-owed-for-each-interval",
        room="protocol",
        file="heartbeat.py",
        text="self._next += (missed + 1) * self._interval",
        wrong="self._next += self._interval",
        tests=("tests/unit/protocol/test_heartbeat.py",),
    ),
    Planted(
        name="bucket-without-a-brim",
        room="net",
        file="tokenbucket.py",
        text="self._tokens = min(self._tokens + come, max(self._kept, self._tokens))",
        wrong="self._tokens = self._tokens + come",
        tests=("tests/net/test_limits.py",),
    ),
    Planted(
        name="mark-beyond-the-limit",
        room="replicator/marks",
        file="hostmarks.py",
        text="return min(index, self._limit)",
        wrong="return index",
        tests=("tests/net/test_host_marks.py",),
    ),
    Planted(
        name="first-excerpt-of-the-rest-resent",
        room="replicator/marks",
        file="resends.py",
        text="if next_index > acknowledged:",
        wrong="if next_index > acknowledged + 1:",
        tests=("tests/net/test_host_marks.py",),
    ),
    Planted(
        name="cycles-before-not-compared",
        room="replicator/agreement",
        file="lineage.py",
        text='        ("the cycles before", own.cycles, claimed.cycles),\n',
        wrong="",
        tests=("tests/net/test_lineage.py",),
    ),
    Planted(
        name="passed-over-not-looked-at",
        room="replicator/agreement",
        file="overlap.py",
        text="        if self._has_to_come:\n",
        wrong="        if not self._has_to_come:\n",
        tests=("tests/net/test_lineage.py",),
    ),
    Planted(
        name="fetched-file-not-held-against-its-note",
        room="replicator/lostcycles",
        file="fetcher.py",
        text="if not is_as_noted(cycles, record) or count_in(",
        wrong="if count_in(",
        tests=("tests/net/test_fetching.py", "tests/net/test_lost_files.py"),
    ),
    Planted(
        name="open-file-given",
        room="replicator/lostcycles",
        file="fetchkind.py",
        text="if not cycles.has_ended(self._cycle):",
        wrong="if not cycles.has(self._cycle):",
        tests=("tests/net/test_fetching.py", "tests/net/test_lost_files.py"),
    ),
    Planted(
        name="earlier-files-not-synced",
        room="replicator/disk",
        file="syncedfiles.py",
        text="for cycle in cycles.listing() if first < last else [last]:",
        wrong="for cycle in [last]:",
        tests=("tests/net/test_stored_thread.py", "tests/faults/test_power_cuts.py"),
    ),
    Planted(
        name="mark-of-a-queue-that-was-given-up",
        room="replicator/disk",
        file="syncedfiles.py",
        text="yield not self._is_given_up",
        wrong="yield True",
        tests=("tests/net/test_stored_thread.py",),
    ),
    Planted(
        name="applied-goes-back",
        room="replicator/incoming",
        file="copylevels.py",
        text="self.applied = max(index, self.applied)",
        wrong="self.applied = index",
        tests=("tests/net/test_stored_thread.py",),
    ),
    Planted(
        name="removed-file-acknowledged",
        room="replicator/incoming",
        file="copylevels.py",
        text="what a removed file holds is lost\n        return False\n",
        wrong="what a removed file holds is lost\n        pass\n",
        tests=("tests/net/test_stored_thread.py",),
    ),
    Planted(
        name="back-copy-above-its-limit",
        room="replicator/outgoing",
        file="backcopy.py",
        text="if self.returned + len(batch) > count_max:",
        wrong="if self.returned > count_max:",
        tests=("tests/net/test_consent.py", "tests/net/test_back_copy.py"),
    ),
    Planted(
        name="copy-without-its-begin-taken-for-other",
        room="replicator/queuestate",
        file="stops.py",
        text="if not isinstance(error, Diverged) or error.is_below_copy:",
        wrong="if not isinstance(error, Diverged):",
        tests=("tests/net/test_late_cycles.py", "tests/net/test_on_divergence.py"),
    ),
    Planted(
        name="loser-of-a-take-over-removes-the-winner",
        room="net",
        file="roster.py",
        text="if live is pump:",
        wrong="if live is not None:",
        tests=("tests/net/test_doorstep.py",),
    ),
    Planted(
        name="claim-taken-for-evidence",
        room="replicator/marks",
        file="hostmarks.py",
        text="return index <= max(self.acknowledged, self.sent)",
        wrong="return index >= 0",
        tests=("tests/net/test_claims.py",),
    ),
    Planted(
        name="overtaken-acknowledgement-takes-back",
        room="replicator/marks",
        file="hostmarks.py",
        text="        if index > self.acknowledged:\n",
        wrong="        if index != self.acknowledged:\n",
        tests=("tests/net/test_host_marks.py",),
    ),
    Planted(
        name="copy-of-another-queue-taken",
        room="replicator/agreement",
        file="identities.py",
        text="""\
    if own is not None and own != theirs:
        raise OtherQueue(
            f"this queue is {own}, and the source's""",
        wrong="""\
    if own is None and own != theirs:
        raise OtherQueue(
            f"this queue is {own}, and the source's""",
        tests=("tests/net/test_identities.py",),
    ),
    Planted(
        name="proved-in-part-taken-for-whole",
        room="replicator/disk",
        file="diskend.py",
        text="Index(end) if end < self._unproved_to else None",
        wrong="None",
        tests=("tests/net/test_power_cut_ends.py",),
    ),
    Planted(
        name="majority-of-one-too-few",
        room="cluster",
        file="promotion.py",
        text="    of_all = len(hosts) // 2 + 1\n",
        wrong="    of_all = (len(hosts) + 1) // 2\n",
        tests=("tests/unit/test_promotion_plan.py", "tests/unit/test_promotion_alone.py"),
    ),
    Planted(
        name="higher-end-before-later-epoch",
        room="cluster",
        file="promotion.py",
        text="key=lambda each: (_number(each), each.next_index))",
        wrong="key=lambda each: (each.next_index, _number(each)))",
        tests=("tests/unit/test_promotion_plan.py",),
    ),
    Planted(
        name="unknown-error-taken-for-expected",
        room="commands",
        file="outcome.py",
        text="        if not isinstance(one, _EXPECTED):\n            return None\n",
        wrong="        if not isinstance(one, _EXPECTED):\n            continue\n",
        tests=("tests/unit/cli/test_exit_codes.py", "tests/commands/test_endings.py"),
    ),
    Planted(
        name="end-of-cycle-taken-for-lost",
        room="spark",
        file="ranges.py",
        text="    if count < sequence:\n",
        wrong="    if count <= sequence:\n",
        tests=("tests/property/test_ranges.py", "tests/unit/spark"),
    ),
    Planted(
        name="archived-cycle-that-lost-some",
        room="spark",
        file="archiveplan.py",
        text="    if found.held.index_last < archived.index_last:\n        return True\n",
        wrong="",
        tests=("tests/unit/spark/test_archive_plan.py",),
    ),
    Planted(
        name="stop-bit-beyond-64-bits",
        room="wire",
        file="stopbit.py",
        text="elif group >= _LONGEST_POSITIVE:",
        wrong="elif group > _LONGEST_POSITIVE:",
        tests=("tests/unit/wire/test_stopbit.py",),
    ),
    Planted(
        name="document-one-byte-too-long",
        room="wire",
        file="document.py",
        text="word & LENGTH_MASK > self.length_max\n",
        wrong="word & LENGTH_MASK > self.length_max + 1\n",
        tests=("tests/unit/wire/test_document.py",),
    ),
    Planted(
        name="document-given-before-it-is-whole",
        room="wire",
        file="document.py",
        text="if pending >= HEADER_BYTES + length else",
        wrong="if pending >= length else",
        tests=("tests/unit/wire/test_document.py", "tests/property/test_wire_properties.py"),
    ),
    Planted(
        name="mark-of-the-next-sequence",
        room="kernel",
        file="plain.py",
        text="if sequence % index_spacing == 0:",
        wrong="if (sequence + 1) % index_spacing == 0:",
        tests=("tests/property/test_kernel_properties.py",),
    ),
    Planted(
        name="cycle-before-the-epoch-rounded-down",
        room="queue/format",
        file="rollcycle.py",
        text="Cycle(since // length_ms if since >= 0 else -(-since // length_ms))",
        wrong="Cycle(since // length_ms)",
        tests=("tests/property/test_rollcycle.py",),
    ),
    Planted(
        name="hole-at-the-start-of-a-cycle-taken",
        room="queue/format",
        file="index.py",
        text="return sequence_of(index, shift) == 0 and cycle_of",
        wrong="return cycle_of",
        tests=("tests/unit/protocol/test_intake.py", "tests/unit/queue/test_index.py"),
    ),
    Planted(
        name="one-too-far-from-behind",
        room="queue/read",
        file="count.py",
        text="return Index(end - nth)",
        wrong="return Index(end - nth - 1)",
        tests=("tests/unit/queue/test_goldens.py",),
    ),
    Planted(
        name="equal-time-passed-over",
        room="queue/read",
        file="timesearch.py",
        text="if found is not None and found >= time:",
        wrong="if found is not None and found > time:",
        tests=("tests/unit/queue/test_seeking.py", "tests/property/test_reading_properties.py"),
    ),
    Planted(
        name="header-taken-for-one-that-was-read",
        room="queue/files",
        file="storefile.py",
        text="all(data[at : at + len(own)] == own for at, own in known.fixed)",
        wrong="True",
        tests=("tests/unit/queue/test_storage.py",),
    ),
    Planted(
        name="page-taken-for-one-that-was-read",
        room="queue/files",
        file="indextable.py",
        text="if known is not None and data[begin : begin + known.length] == known.data:",
        wrong="if known is not None:",
        tests=("tests/unit/queue/test_storage.py",),
    ),
    Planted(
        name="known-excerpt-appended-again",
        room="protocol",
        file="intake.py",
        text="max(0, self.next_index - batch.index_first))",
        wrong="max(0, self.next_index - batch.index_first - 1))",
        tests=("tests/unit/protocol/test_intake.py",),
    ),
    Planted(
        name="leader-waits-for-itself",
        room="config",
        file="hostplan.py",
        text="hosts=(policy.hosts - {host_id}) | ({master_id} - {NO_HOST}))",
        wrong="hosts=policy.hosts | ({master_id} - {NO_HOST}))",
        tests=("tests/unit/config/test_cluster_file.py",),
    ),
    Planted(
        name="one-promise-too-few",
        room="cluster",
        file="promotion.py",
        text="needed = max(1, len(hosts - {was}) - max(acks, 1) + 1)",
        wrong="needed = max(1, len(hosts - {was}) - max(acks, 1))",
        tests=("tests/unit/test_promotion_sets.py",),
    ),
    Planted(
        name="majority-of-half",
        room="cluster",
        file="promotion.py",
        text="    of_all = len(hosts) // 2 + 1\n",
        wrong="    of_all = (len(hosts) + 1) // 2\n",
        tests=("tests/unit/test_promotion_sets.py",),
    ),
    Planted(
        name="other-members-ignored",
        room="cluster",
        file="memberlists.py",
        text="if members != latest[host]:",
        wrong="if not members:",
        tests=("tests/unit/cluster/test_member_lists.py", "tests/net/test_members.py"),
    ),
    Planted(
        name="list-before-ignored",
        room="cluster",
        file="memberlists.py",
        text="return _NONE if older == members else older",
        wrong="return _NONE if older != members else older",
        tests=("tests/unit/cluster/test_member_lists.py",),
    ),
    Planted(
        name="lease-from-the-answer",
        room="cluster",
        file="hostelections.py",
        text="self.queues[name].answered(host_id, epoch, sent)",
        wrong="self.queues[name].answered(host_id, epoch, now)",
        tests=("tests/property/test_elections.py", "tests/unit/cluster/test_queue_election.py"),
    ),
    Planted(
        name="read-after-a-thaw",
        room="cluster",
        file="queueelection.py",
        text="return self.lease is not None and now >= self._serves_from and self.lease.holds(now)",
        wrong="return self.lease is not None and now >= self._serves_from",
        tests=("tests/property/test_elections.py", "tests/unit/cluster/test_queue_election.py"),
    ),
    Planted(
        name="lease-by-the-wall-clock",
        room="cluster",
        file="electiondesk.py",
        text="return surroundings().boottime()",
        wrong="return surroundings().wall_ns() / 1e9",
        tests=("tests/net/test_election_clocks.py",),
    ),
    Planted(
        name="one-answer-too-few",
        room="cluster",
        file="lease.py",
        text="self._needed = (len(others) + 1) // 2",
        wrong="self._needed = (len(others) + 1) // 2 - 1",
        tests=("tests/unit/cluster/test_queue_election.py", "tests/property/test_elections.py"),
    ),
    Planted(
        name="member-forgets-that-it-heard",
        room="cluster",
        file="queueelection.py",
        text="        self._heard_until = now + electors.lease_seconds\n        if len",
        wrong="        self._heard_until = now\n        if len",
        tests=("tests/unit/cluster/test_queue_election.py", "tests/property/test_elections.py"),
    ),
    Planted(
        name="exclusive-not-held",
        room="replicator/outgoing",
        file="sourceopener.py",
        text="                queue.hold.take()\n",
        wrong="                queue.hold.give_back()\n",
        tests=("tests/net/test_exclusive_queues.py",),
    ),
    Planted(
        name="old-epoch-goes-on",
        room="replicator",
        file="hostroles.py",
        text="    if not settings.sink.masters or settings.awaits_leader:\n        return streamed",
        wrong="    if not settings.sink.masters:\n        return streamed",
        tests=("tests/net/test_awaited_leaders.py",),
    ),
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
        name="lead-told-to-programs-beyond-its-lease",
        room="cluster",
        file="queueelection.py",
        text="        if self.lease is None or not self.may_read(now):\n",
        wrong="        if self.lease is None:\n",
        tests=("tests/unit/cluster/test_queue_election.py",),
    ),
    Planted(
        name="checkpoint-above-what-is-safe",
        room="cluster",
        file="checkpoints.py",
        text="            if self._waiting[0].index - 1 <= committed:\n",
        wrong="            if self._waiting is not None:\n",
        tests=("tests/net/test_checkpoints.py",),
    ),
    Planted(
        name="checkpoint-with-other-bytes-taken",
        room="queue/files",
        file="checkpointfile.py",
        text="if digest.digest() != os.pread(descriptor, _SUM_BYTES, end):",
        wrong="if not digest.digest():",
        tests=("tests/unit/queue/test_checkpoint_files.py",),
    ),
    Planted(
        name="store-file-gone-behind-the-newest-checkpoint",
        room="queue/files",
        file="checkpointfile.py",
        text="    next(good, None)  # the newest one may be found damaged when it is needed\n",
        wrong="",
        tests=("tests/unit/queue/test_checkpoint_files.py",),
    ),
    Planted(
        name="state-not-taken-back-after-a-quarantine",
        room="replicator",
        file="followfeed.py",
        text="if to is not None and self.position.index <= to.index:",
        wrong="if to is not None:",
        tests=("tests/net/test_followfeed.py",),
    ),
    Planted(
        name="copy-without-its-start-replayed",
        room="replicator",
        file="followfeed.py",
        text="        if begin and (first is None or first >= begin):\n",
        wrong="        if begin and first is None:\n",
        tests=("tests/net/test_joins.py",),
    ),
    Planted(
        name="window-of-one-never-opens",
        room="protocol",
        file="sendwindow.py",
        text="least = 0 if held else min(self.free, 1)",
        wrong="least = 0",
        tests=("tests/unit/protocol/test_send_budget.py",),
    ),
    Planted(
        name="unfit-host-stands-for-election",
        room="cluster/election",
        file="electiondesk.py",
        text="self._candidacy.look_at(name, each, now)",
        wrong="pass",
        tests=("tests/net/test_elections.py",),
    ),
    Planted(
        name="any-epoch-of-a-leader-believed",
        room="cluster/election",
        file="queueelection.py",
        text="can_be = epoch <= promised + EPOCHS_AHEAD_MAX and leader in",
        wrong="can_be = leader in",
        tests=("tests/unit/cluster/test_queue_election.py",),
    ),
    Planted(
        name="leader-that-lost-its-power-is-sure",
        room="cluster",
        file="fencedesk.py",
        text="        return taken.disk.lacks_from if unproved is None else unproved\n",
        wrong="        return unproved\n",
        tests=("tests/laboratory/test_elected.py",),
    ),
    Planted(
        name="two-words-for-one-option-taken",
        room="cli",
        file="options.py",
        text="if len(options) > 1:",
        wrong="if len(options) > 2:",
        tests=("tests/unit/cli/test_defaults.py",),
    ),
    Planted(
        name="repeated-bytes-given-again",
        room="dump",
        file="reassembly.py",
        text="return self._give(payload[-distance:])",
        wrong="return self._give(payload)",
        tests=("tests/unit/dump/test_captures.py",),
    ),
    Planted(
        name="certificate-of-another-host-taken",
        room="net",
        file="certificates.py",
        text="        if host_id in self.hosts:\n            return None\n",
        wrong="        if self.hosts:\n            return None\n",
        tests=("tests/net/test_tls.py",),
    ),
    Planted(
        name="revoked-certificate-taken",
        room="net",
        file="tlscredentials.py",
        text="context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF",
        wrong="context.verify_flags |= ssl.VERIFY_DEFAULT",
        tests=("tests/net/test_tls.py",),
    ),
    Planted(
        name="tls-1-2-spoken",
        room="net",
        file="tlscredentials.py",
        text="context.minimum_version = ssl.TLSVersion.TLSv1_3",
        wrong="context.minimum_version = ssl.TLSVersion.TLSv1_2",
        tests=("tests/net/test_tls.py",),
    ),
    Planted(
        name="right-of-another-queue-counts",
        room="net",
        file="rights.py",
        text="if fnmatchcase(queue, each.queues) and each.names(subject)",
        wrong="if each.names(subject)",
        tests=("tests/net/test_rights.py",),
    ),
    Planted(
        name="leader-without-right-taken",
        room="replicator",
        file="offergate.py",
        text='refusal("lead", queue.name)',
        wrong='refusal("follow", queue.name)',
        tests=("tests/net/test_rights.py",),
    ),
    Planted(
        name="half-open-of-all-not-bounded",
        room="net",
        file="doorstep.py",
        text="if len(self._machines) > self.all_max:",
        wrong="if len(self._machines) > 100 * self.all_max:",
        tests=("tests/net/test_doorstep.py",),
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
    Planted(
        name="page-without-its-token",
        room="page",
        file="app.py",
        text="        if not self._is_known(headers):",
        wrong="        if not self._is_known(headers) and not self._token:",
        tests=("tests/net/test_page.py",),
    ),
    Planted(
        name="alarm-not-cleared",
        room="page",
        file="monitor.py",
        text="for key in sorted(self.alarms.keys() - found.keys()):",
        wrong="for key in sorted(found.keys() - found.keys()):",
        tests=("tests/net/test_page.py",),
    ),
    Planted(
        name="retention-of-what-a-host-lacks",
        room="service",
        file="retentionrules.py",
        text="        members=members,\n    )\n    with Queue.open(path) as queue:",
        wrong="    )\n    with Queue.open(path) as queue:",
        tests=("tests/net/test_retention.py",),
    ),
)
