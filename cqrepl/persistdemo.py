"""The demonstration of storages: a leader and two backups as processes; the leader is killed.

Eight sequences are appended to, each append waits for a backup. What each process was told by an
append stands in a log of its own, which a kill leaves as it is; when all is over that is held
against the copies on the disk.
"""

import json
import statistics
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from cqrepl.console.endings import held_back
from cqrepl.console.output import flush, write_text
from cqrepl.demofolder import demo_folder
from cqrepl.demohosts import DemoHosts, cluster_file
from cqrepl.persist.storage.records import Op, decode_record
from cqrepl.persist.storage.storagetable import StorageTable
from cqrepl.persistnode import GROUP
from cqrepl.queue import Queue

HOSTS: Final = (1, 2, 3)
SETTLE_SECONDS: Final = 60.0  # for a host to lead
_KILL: Final = 0.5  # of the time


@dataclass(slots=True)
class PersistResult:
    """The findings of a demonstration.

    Args:
        appended: appends that have returned.
        acknowledged: those of them that a backup had applied then.
        lost: of these, those that a copy lacks which is left.
        twice: numbers of a sequence that two acknowledged items have.
        warnings: appends that have returned without knowing.
        after_kill: those that have returned at the next leader.
        p50_us: median time of an append.
        epochs: in which hosts have led, by their numbers.
    """

    appended: int = 0
    acknowledged: int = 0
    lost: int = 0
    twice: int = 0
    warnings: int = 0
    after_kill: int = 0
    p50_us: float = 0.0
    epochs: dict[int, int] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """True where nothing was lost or used twice, and another host has gone on."""
        goes_on = bool(self.acknowledged) and bool(self.after_kill)
        return goes_on and not self.lost and not self.twice


def run_persist(seconds: float, keep: Path | None, *, as_json: bool) -> bool:
    """Runs the demonstration and prints its result; true where that is right.

    Raises:
        OSError: its files cannot be written, or no process be started.
    """
    with demo_folder(keep) as folder:
        demo = _PersistDemo(folder, seconds)
        with held_back():
            trio.run(demo.run)
        demo.judge()
    _print_findings(demo.result, as_json=as_json)
    return demo.result.is_right


class _PersistDemo:
    """One demonstration.

    Args:
        folder: for all that it writes.
        seconds: for so long items are appended.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.result = PersistResult()
        self._folder = folder
        self._hosts = DemoHosts("cqrepl.persistnode", folder, self._heard)
        self._seconds = seconds
        self._led = trio.Event()
        self._leader = self._killed = 0

    async def run(self) -> None:
        """Until the time is over, and all hosts that are left have ended."""
        groups = "  persist: {demo: {defaults: {mode: sync, ackTimeout: 1s}}}"
        self._hosts.file.write_text(cluster_file(self._folder, HOSTS, groups))
        async with self._hosts.running(HOSTS):
            with trio.move_on_after(SETTLE_SECONDS) as scope:
                await self._led.wait()
            if scope.cancelled_caught:
                raise OSError(f"no host leads within {SETTLE_SECONDS:g} s")
            began = self._hosts.begin()
            await trio.sleep_until(began + _KILL * self._seconds)
            self._killed = self._leader
            self._hosts.say(f"host {self._killed}, the leader, is killed")
            await self._hosts.kill(self._killed)
            await trio.sleep_until(began + self._seconds)
            with trio.move_on_after(SETTLE_SECONDS):
                await self._goes_on()
            await self._hosts.end(SETTLE_SECONDS)

    async def _goes_on(self) -> None:
        """Returns once another host has appended."""
        logs = [self._log(each) for each in HOSTS if each != self._killed]
        while not any(each.exists() and each.stat().st_size for each in logs):
            await trio.sleep(0.1)

    def _heard(self, host_id: int, change: dict[str, object]) -> None:
        epoch, epochs = change["epoch"], self.result.epochs
        if change["role"] == "leading" and isinstance(epoch, int) and epoch not in epochs:
            epochs[epoch] = self._leader = host_id
            self._hosts.say(f"host {host_id} leads, in epoch {epoch}")
            self._led.set()

    def _log(self, host_id: int) -> Path:
        return self._folder / f"appends-{host_id}.log"

    def judge(self) -> None:
        """Counts by the copies that are left, as they are on the disk."""
        left = [each for each in HOSTS if each != self._killed]
        copies = [items_of(self._folder / str(each) / GROUP) for each in left]
        longest = max(copies, key=len)
        numbers: Counter[tuple[str, int]] = Counter()
        times: list[int] = []
        for host_id in HOSTS:
            lines = self._log(host_id).read_text() if self._log(host_id).exists() else ""
            for line in lines.splitlines(keepends=True):
                if not line.endswith("\n"):
                    continue  # the kill came while it was written
                name, index, is_acked, taken, item = line.split()
                self.result.appended += 1
                times.append(int(taken))
                self.result.after_kill += host_id != self._killed
                if is_acked != "1":
                    self.result.warnings += 1
                    continue
                self.result.acknowledged += 1
                numbers[name, int(index)] += 1
                self.result.lost += longest.get((name, int(index))) != item
        self.result.twice = sum(each > 1 for each in numbers.values())
        self.result.p50_us = statistics.median(times) / 1000 if times else 0.0


def items_of(path: Path) -> dict[tuple[str, int], str]:
    """The items of all sequences of a copy, by name and logical index, as its state has them."""
    table, items = StorageTable(), dict[int, str]()
    with Queue.open(path) as queue, closing(queue.tailer()) as tailer:
        while (batch := tailer.next_batch()) is not None:
            for ref, data in batch:
                record = decode_record(data)
                table.apply(ref, record)
                if record.op is not Op.CREATE:
                    items[ref] = (record.item or b"").decode()
    return {
        (each.name, each.first + nth): items[ref]
        for each in table.storages.values()
        for nth, ref in enumerate(each.refs(each.first, each.next - 1))
    }


def _print_findings(result: PersistResult, *, as_json: bool) -> None:
    if as_json:
        fields = {
            "v": 1,
            "appended": result.appended,
            "acknowledged": result.acknowledged,
            "lost": result.lost,
            "twice": result.twice,
            "warnings": result.warnings,
            "after_kill": result.after_kill,
            "p50_us": round(result.p50_us, 1),
            "epochs": [{"number": n, "leader": host} for n, host in sorted(result.epochs.items())],
        }
        write_text(json.dumps(fields) + "\n")
    else:
        write_text(
            f"appended {result.appended:,}, acknowledged {result.acknowledged:,},"
            f" lost {result.lost:,}, numbers used twice {result.twice:,},"
            f" warnings {result.warnings:,}, p50 {result.p50_us:,.0f} us\n"
        )
        write_text(f"{result.after_kill:,} of them after the kill, at the next leader\n")
    flush()
