"""The pauses between two words of what is safe."""

import time

import pytest
import trio

from cqrepl.replicator.marks.ackboard import AckBell
from cqrepl.replicator.outgoing import commitwatch
from cqrepl.replicator.outgoing.commitwatch import CommitWatch
from cqrepl.replicator.outgoing.sourcequeue import SourceQueue

BUSY_SECONDS = 0.05


class Interrupted(dict[str, SourceQueue]):
    """Queues of a host whose thread has no core for a while, whenever one is looked up."""

    # of all that a dict gives it only ever gives nothing
    def get(self, name: str, default: object = None) -> None:  # type: ignore[override]
        time.sleep(BUSY_SECONDS)


async def test_what_other_processes_take_of_a_core_makes_no_pause_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bell, pauses, sleep = AckBell(), list[float](), trio.sleep
    board = bell.board("q")

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        bell.look_again(board)
        await sleep(0)

    monkeypatch.setattr(trio, "sleep", noted)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(CommitWatch(Interrupted(), list, bell).work)
            bell.look_again(board)
            while len(pauses) < 3:
                await sleep(0)
            nursery.cancel_scope.cancel()
    assert max(pauses) < commitwatch.PAUSE_SHARE * BUSY_SECONDS / 2
