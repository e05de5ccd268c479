"""Sinks refuse a source that leads no longer, and the source stops everywhere."""

from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.protocol import StopReason, greeting, uber
from cqrepl.protocol.capabilities import EPOCHS_CAPABILITY, MERGED_CAPABILITY
from cqrepl.queue import Queue
from cqrepl.queue.files.epochfile import EPOCH_FILE_NAME, load_epochs, store_epochs
from cqrepl.queue.format.epochs import Epoch, Epochs, History, has_merged, unmerged
from cqrepl.replicator.leadership import SteppedDown
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.copies import assert_same
from tests.support.replicas import (
    acked,
    at,
    eventually,
    joined,
    last_of,
    live_sink,
    live_source,
    more_excerpts,
    opened_by_another_process,
    sink_stopped,
    stopped,
)
from tests.support.samples import fill, noon_index, read


def epoch(number: int, leader: int, sequence: int) -> Epoch:
    return Epoch(number, leader, noon_index(sequence=sequence))


def led(path: Path, *history: Epoch) -> None:
    """A queue has had these leaders."""
    latest = history[-1]
    store_epochs(path, Epochs(promised=latest.number, promised_to=latest.leader, history=history))


def promised(path: Path, number: int, host_id: int, *history: Epoch) -> None:
    store_epochs(path, Epochs(promised=number, promised_to=host_id, history=history))


def reason_of(replicator: Source | Sink) -> tuple[StopReason, str]:
    (stop,) = replicator.stops
    return stop.reason, stop.message


async def test_without_epochs_no_file_is_made(tmp_path: Path) -> None:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
    assert not (tmp_path / "q" / EPOCH_FILE_NAME).exists()
    assert not (tmp_path / "copy" / EPOCH_FILE_NAME).exists()


async def test_a_copy_takes_on_what_its_source_says(tmp_path: Path) -> None:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    led(tmp_path / "q", epoch(1, 2, 2), epoch(3, 1, 5))
    for _ in range(2):
        async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
            await acked(source, last)
            assert not sink.stops
            assert load_epochs(tmp_path / "copy") == load_epochs(tmp_path / "q")
    assert_same(tmp_path / "q", tmp_path / "copy")


async def test_a_source_of_a_lower_epoch_stops_on_both_sides_and_for_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink was streamed to before, so what it says counts for all that the source does."""
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
    promised(tmp_path / "copy", 4, 3)
    more_excerpts(tmp_path / "q", 5, 3)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        await stopped(source)
        reason, why = reason_of(source)
        assert reason is StopReason.FENCED
        assert "host 2 says that host 3 leads it in epoch 4: nothing of it goes out" in why
        told = (
            "queue 'q' refused: epoch 4 was promised to host 3: host 1, with epoch 0, leads it no"
        )
        assert told in caplog.text
        await eventually(lambda: load_epochs(tmp_path / "q").promised == 4)
        assert not sink.queues["q"].received_excerpts
    assert len(read(tmp_path / "copy")) == 5
    async with live_source(tmp_path / "q") as source:  # and another sink gets nothing either
        async with live_sink(tmp_path / "new", source.port, host_id=3):
            await stopped(source)
            reason, why = reason_of(source)
            assert (reason, "host 3 leads it in epoch 4" in why) == (StopReason.FENCED, True)
    assert not (tmp_path / "new").exists()


async def test_whoever_has_no_copy_fences_only_itself(tmp_path: Path) -> None:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    promised(tmp_path / "liar", 4, 3)
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "liar", source.port, host_id=3):
            await eventually(lambda: bool(source.stops))
            assert (source.stops[0].reason, source.stops[0].host_id) == (StopReason.FENCED, 3)
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, last)
    assert_same(tmp_path / "q", tmp_path / "copy")
    assert load_epochs(tmp_path / "q") == Epochs()


async def test_a_running_source_that_is_fenced_stops_for_the_sink_that_it_streams_to(
    tmp_path: Path,
) -> None:
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    async with live_source(tmp_path / "q") as source:
        async with live_sink(tmp_path / "two", source.port):
            await acked(source, last)
            async with live_sink(tmp_path / "three", source.port, host_id=3):
                await eventually(lambda: last_of(tmp_path / "three") == last)
            promised(tmp_path / "three", 1, 3)
            async with live_sink(tmp_path / "three", source.port, host_id=3):
                await stopped(source)
        more_excerpts(tmp_path / "q", 5, 3)
        leading = source.queues["q"].leading
        assert leading.has_stepped_down
        with pytest.raises(SteppedDown, match="host 3 leads it in epoch 1"):
            leading.lead_again()
        with pytest.raises(SteppedDown, match="host 3 leads it in epoch 1"):
            await trio.to_thread.run_sync(leading.append, [b"is not written"])
    assert len(read(tmp_path / "two")) == 5


async def test_a_copy_that_was_copied_to_another_host_does_not_lead_there(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    led(tmp_path / "q", epoch(1, 2, 3))
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await stopped(source)
        assert reason_of(source)[0] is StopReason.FENCED


async def test_a_source_that_knows_of_no_epochs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of an older release, or Java's."""
    (*_, (last, _)) = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await acked(source, last)
    led(tmp_path / "copy", epoch(1, 1, 3))
    led(tmp_path / "q", epoch(1, 1, 3))
    without(monkeypatch, EPOCHS_CAPABILITY)
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, _):
        await eventually(lambda: bool(source.stops))
        reason, why = reason_of(source)
        assert reason is StopReason.FENCED
        assert "epoch 1 was promised to host 1, which comes with epoch 0" in why


def without(monkeypatch: pytest.MonkeyPatch, capability: str) -> None:
    """Hosts are as those of a version that does not know this yet."""
    for module in (greeting, uber):
        known = module.CORE_CAPABILITIES - {capability}
        monkeypatch.setattr(module, "CORE_CAPABILITIES", known)


TAILS: dict[str, tuple[int, int, History]] = {
    # excerpts of the source, of the copy, and the epochs of the source
    "behind the source's end": (5, 9, (epoch(1, 1, 5),)),
    "before the source's end": (9, 7, (epoch(1, 1, 5),)),
    "of an epoch of its own": (9, 7, (epoch(2, 1, 3),)),
    "all of it": (4, 6, (epoch(1, 1, 0),)),
}


async def shared(folder: Path, count: int, copy: int, start: int) -> None:
    """A source's queue and a copy that have the first `start` excerpts in common."""
    path = folder / "q"
    if start:
        (*_, (last, _)) = fill(path, "FAST_DAILY", {0: start})
        async with joined(path, folder / "copy") as (source, _):
            await acked(source, last)
        if count > start:
            more_excerpts(path, start, count - start, seed=7)
        if copy > start:
            more_excerpts(folder / "copy", start, copy - start, seed=8)
    else:
        fill(path, "FAST_DAILY", {0: count})
        with Queue.open_for_append(folder / "copy", create="FAST_DAILY"):
            pass
        more_excerpts(folder / "copy", 0, copy, seed=8)


@pytest.mark.parametrize("case", TAILS)
async def test_what_a_copy_has_beyond_the_leaders_goes_to_quarantine(
    tmp_path: Path, case: str
) -> None:
    count, copy, history = TAILS[case]
    start = history[-1].start - noon_index()
    await shared(tmp_path, count, copy, start)
    tail = read(tmp_path / "copy", noon_index(sequence=start))
    led(tmp_path / "q", *history)
    if case == "of an epoch of its own":
        led(tmp_path / "copy", epoch(1, 2, 3))
    last = last_of(tmp_path / "q")
    async with joined(tmp_path / "q", tmp_path / "copy") as (source, sink):
        assert last is not None
        await eventually(lambda: last_of(tmp_path / "copy") == last)
        await acked(source, last)
        assert not sink.stops
    assert_same(tmp_path / "q", tmp_path / "copy")
    (folder,) = (tmp_path / "copy" / "quarantine").iterdir()
    assert (folder / "report.json").exists()
    assert read(folder) == tail
    assert load_epochs(tmp_path / "copy").history == history


async def test_a_tail_waits_for_whoever_has_the_queue_open(tmp_path: Path) -> None:
    await shared(tmp_path, 5, 9, 5)
    led(tmp_path / "q", epoch(1, 1, 5))
    async with serve_sink({"q": tmp_path / "copy"}, listen="127.0.0.1:0") as sink:
        async with joined_to(sink, tmp_path / "q"):
            with opened_by_another_process(tmp_path / "copy"):
                await eventually(lambda: sink.queues["q"].life.trouble is not None)
                trouble = sink.queues["q"].life.trouble
                assert trouble is not None
                assert "no other process expected" in trouble.message
                assert len(read(tmp_path / "copy")) == 9
            await eventually(lambda: last_of(tmp_path / "copy") == noon_index(sequence=4))
            assert not sink.stops


def joined_to(sink: Sink, path: Path) -> Any:
    return serve_source({"q": path}, connect=at(sink.port), accept_returns=(2,))


async def test_nothing_is_cut_where_what_is_before_differs(tmp_path: Path) -> None:
    """It may be another queue altogether."""
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    with Queue.open_for_append(tmp_path / "copy", create="FAST_DAILY"):
        pass
    before = more_excerpts(tmp_path / "copy", 0, 9, seed=3)
    led(tmp_path / "q", epoch(1, 1, 5))
    async with joined(tmp_path / "q", tmp_path / "copy") as (_, sink):
        await sink_stopped(sink, "q")
        assert reason_of(sink)[0] is StopReason.DIVERGED
    assert read(tmp_path / "copy") == before
    assert not (tmp_path / "copy" / "quarantine").exists()


# away for more promotions than a history has entries: the source has these, each of its last
# excerpts in its own
MANY = 70


@pytest.mark.parametrize("count", [MANY, 200])
@pytest.mark.parametrize("knows", ["merged epochs", "none that have merged"])
@pytest.mark.parametrize(
    ("source", "copy", "same", "quarantined_from"),
    [
        (90, 15, 15, None),  # it has only what the source has
        (90, 15, 12, 12),  # its leader wrote on after it had lost the lead
        (90, 15, 3, 3),  # from the first excerpt of the only epoch that it knows on
        (71, 80, 71, 71),  # more than the source has, behind what both have
        (71, 80, 12, 12),
    ],
)
async def test_of_a_copy_that_was_away_for_many_epochs_only_what_differs_goes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: int,
    copy: int,
    same: int,
    quarantined_from: int | None,
    knows: str,
    count: int,
) -> None:
    """No epoch is left that both have, but one that others have merged into: what the copy holds is
    compared before any of it goes. So it is where one side has an older version."""
    if knows != "merged epochs":
        without(monkeypatch, MERGED_CAPABILITY)
    path, other = tmp_path / "q", tmp_path / "copy"
    await shared(tmp_path, source, copy, same)
    tail = read(other, noon_index(sequence=same)) if quarantined_from is not None else []
    led(path, *history_of(count, source))
    led(other, epoch(1, 1, 3), epoch(2, 2, 4))
    history = load_epochs(path).history
    assert has_merged(history)
    expected = history if knows == "merged epochs" else unmerged(history)
    (last, _) = read(path)[-1]
    async with joined(path, other) as (leader, sink):
        await eventually(lambda: load_epochs(other).history == expected)
        await eventually(lambda: last_of(other) == last)
        await acked(leader, last)
        assert not sink.stops + leader.stops
    assert_same(path, other)
    if quarantined_from is None:
        assert not (other / "quarantine").exists()
    else:
        (folder,) = (other / "quarantine").iterdir()
        assert folder.name == f"{noon_index(sequence=quarantined_from):#x}-1"
        assert read(folder, noon_index(sequence=quarantined_from)) == tail


async def test_who_led_before_there_were_epochs_comes_back_after_many(tmp_path: Path) -> None:
    """The first epoch began where its own excerpt is, and that is still known."""
    await shared(tmp_path, 90, 4, 3)
    own = read(tmp_path / "copy", noon_index(sequence=3))
    led(tmp_path / "q", *history_of(200, 90))
    async with joined(tmp_path / "q", tmp_path / "copy") as (leader, sink):
        await eventually(lambda: last_of(tmp_path / "copy") == noon_index(sequence=89))
        assert not sink.stops + leader.stops
    assert_same(tmp_path / "q", tmp_path / "copy")
    (folder,) = (tmp_path / "copy" / "quarantine").iterdir()
    assert read(folder, noon_index(sequence=3)) == own


async def test_what_differs_before_the_epochs_could_have_parted_stops_both_sides(
    tmp_path: Path,
) -> None:
    await shared(tmp_path, 90, 15, 2)
    led(tmp_path / "q", *history_of(MANY, 90))
    led(tmp_path / "copy", epoch(1, 2, 3))
    before = read(tmp_path / "copy")
    async with joined(tmp_path / "q", tmp_path / "copy") as (_, sink):
        await sink_stopped(sink, "q")
        assert reason_of(sink)[0] is StopReason.DIVERGED
    assert read(tmp_path / "copy") == before
    assert not (tmp_path / "copy" / "quarantine").exists()


def history_of(count: int, end: int) -> History:
    """So many epochs of host 1, of which the oldest ones have merged. The first one begins at 3."""
    epochs = Epochs()
    for number in range(1, count + 1):
        at = noon_index(sequence=3 + number * (end - 3) // count if number > 1 else 3)
        epochs = epochs.promise(number, 1).opened(at)
    return epochs.history
