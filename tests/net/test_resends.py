"""Threat T13: an index that no sink can need, and everything once more, again and again."""

from pathlib import Path

import pytest

from cqrepl.replicator.marks.resends import (
    FEW_EXCERPTS,
    RESEND_SECONDS,
    RESENDS_MAX,
    Resends,
    is_resend,
)
from tests.support import peer
from tests.support.replicas import acked, copied, eventually, live_sink, live_source
from tests.support.samples import fill, noon_index
from tests.support.scripted import scripted

SHIFT = 32
LAST = noon_index(sequence=3 * FEW_EXCERPTS)


@pytest.mark.parametrize(
    ("next_index", "acknowledged", "is_one"),
    [
        (0, -1, False),  # it never had anything
        (LAST + 1, LAST, False),
        (LAST, LAST, False),  # an acknowledgement that was lost
        (LAST - FEW_EXCERPTS + 1, LAST, False),  # what a power cut took
        (LAST - FEW_EXCERPTS, LAST, True),
        (noon_index(ahead=-1), LAST, True),
        (0, noon_index(), True),
    ],
)
def test_t13_what_counts_as_asking_again(next_index: int, acknowledged: int, is_one: bool) -> None:
    assert is_resend(next_index, acknowledged, SHIFT) == is_one


def test_t13_a_few_at_once_and_then_one_now_and_then() -> None:
    resends = Resends()
    due = [resends.next(100.0) - 100.0 for _ in range(RESENDS_MAX + 3)]
    assert due == [0.0] * RESENDS_MAX + [RESEND_SECONDS * nth for nth in (1, 2, 3)]
    due = [resends.next(9000.0) - 9000.0 for _ in range(RESENDS_MAX + 1)]
    assert due == [0.0] * RESENDS_MAX + [RESEND_SECONDS]


async def test_t13_everything_again_and_again(tmp_path: Path) -> None:
    """A few times it comes at once, then it waits; another sink does not, nor one that is further.

    The one that waits gets it all the same, in its time.
    """
    written = fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    first, last = written[0][0], written[-1][0]
    async with live_source(tmp_path / "q") as source:
        for _ in range(1 + RESENDS_MAX):
            async with scripted(source.port, 9, 1) as sink:
                _, cid = await sink.answer(0)
                await sink.send(peer.end_of_stream(cid))
                await sink.hear("re", 3)
                await sink.send(peer.acknowledgement(last, 1, cid))
                await eventually(lambda: source.queues["q"].marks[9].acknowledged == last)
            await eventually(lambda: not source.endpoint.sessions)
        async with scripted(source.port, 9, 1) as sink:
            _, cid = await sink.answer(0)
            await sink.send(peer.end_of_stream(cid))
            async with live_sink(tmp_path / "copy", source.port):
                await acked(source, last)
                await copied(tmp_path / "q", tmp_path / "copy")
            assert not sink.all("re")
            assert not source.stops
            await sink.hear("re", 3)
            assert [message["re"][0] for message in sink.all("re")] == [*range(first, last + 1)]
        await eventually(lambda: not source.endpoint.sessions)
        async with scripted(source.port, 9, 1) as sink:
            _, cid = await sink.answer(last)
            await sink.send(peer.end_of_stream(cid))
            assert [each["re"][0] for each in await sink.hear("re", 1)] == [last]
