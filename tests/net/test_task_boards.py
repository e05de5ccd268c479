"""Clients and workers of a task board whose leader changes."""

import logging
from pathlib import Path

import pytest
import trio

from cqrepl.broker.client import TasksRefused
from cqrepl.broker.fields import DATA_MAX, TaskWords
from cqrepl.broker.service import BoardService
from cqrepl.broker.taskboard import Status
from cqrepl.queue import Queue
from cqrepl.replicator.rolelog import Role
from tests.support.boards import boards
from tests.support.replicas import SECONDS, eventually


async def test_a_task_is_done_once_and_its_result_is_there(tmp_path: Path) -> None:
    async with boards(tmp_path, 2) as made, made.client(1).running() as client:
        task = await client.submit("mail", b"to Ann", key="1")
        assert await client.submit("mail", b"to Ann again", key="1") == task
        async with made.client(1).running() as other:
            work = await other.work("w1", ["mail"])
            got = await work.receive()
            assert (got.number("task"), got.data("payload"), got.number("attempt")) == (
                task,
                b"to Ann",
                1,
            )
            await other.finish(got, b"sent")
            await other.finish(got, b"sent")  # the answer may have been lost
        _, row = await client.ask("show", {"task": task})
        assert (row.text("status"), row.data("result")) == ("done", b"sent")
        follower = made.board(2)
        await eventually(
            lambda: (
                (held := follower.board.tasks.get(task)) is not None and held.status is Status.DONE
            )
        )


async def test_a_host_that_follows_names_the_one_that_leads(tmp_path: Path) -> None:
    async with boards(tmp_path, 2) as made, made.client(2).running() as client:
        assert await client.submit("mail", b"")
        assert not made.board(2).led.is_serving
    assert "host 2 does not serve board 'jobs': host 1 leads it" in client.why


async def test_tasks_go_on_with_the_next_leader(tmp_path: Path) -> None:
    """A worker that has a task finishes it there; nothing that was acknowledged is lost."""
    async with boards(tmp_path, 3) as made, made.client(1, 2, 3).running() as client:
        tasks = [await client.submit("mail", b"%d" % n) for n in range(5)]
        async with made.client(1, 2, 3).running() as other:
            work = await other.work("w1", ["mail"], slots=2)
            first, second = await work.receive(), await work.receive()
            await made.kill(1)
            await made.hosts.hosts[2].leaders.promote("a")
            await other.finish(first, b"one")
            await other.finish(second, b"two")
            for _ in range(3):
                got = await work.receive()
                await other.finish(got, got.data("payload"))
        rows = await client.ask("list", {"status": "done"})
        assert sorted(row.number("task") for row in rows[1:]) == tasks
        assert {row.number("attempt") for row in rows[1:]} == {1}


async def test_a_worker_that_is_silent_loses_its_tasks(tmp_path: Path) -> None:
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        board = made.board(1)
        async with made.client(1).running() as client:
            task = await client.submit("mail", b"")
            lost = made.client(1)
            async with lost.running():
                got = await (await lost.work("w1", ["mail"])).receive()
            board.heard["w1"] -= 60.0
            async with made.client(1).running() as other:
                work = await other.work("w2", ["mail"])
                again = await work.receive()
                assert (again.number("task"), again.number("attempt")) == (task, 2)
                with pytest.raises(TasksRefused, match="expected a worker that has joined"):
                    await client.ask("finish", got.values)
                await other.finish(again, b"done")


async def test_a_task_that_fails_is_tried_again(tmp_path: Path) -> None:
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        async with made.client(1).running() as client:
            task = await client.submit("mail", b"", attempts=2)
            work = await client.work("w1", ["mail"])
            await client.fail(await work.receive(), "no network")
            await client.fail(await work.receive(), "no network either")
            _, row = await client.ask("show", {"task": task})
            assert (row.text("status"), row.text("why")) == ("failed", "no network either")


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("submit", {"type": "two words"}, "expected a type without blanks, got 'two words'"),
        ("submit", {"type": "t", "payload": bytes(DATA_MAX + 1)}, "payload of at most 1048576"),
        ("join", {"worker": "w"}, "expected a worker with a name and at least one type"),
        ("join", {"worker": "w", "types": "t", "slots": 0}, "expected 1 to 1000 slots, got 0"),
        ("submit", {"type": "t", "backoff": -1}, "expected a backoff of at least 0, got -1"),
        ("list", {"count": -1}, "expected a count of at least 0, got -1"),
        ("dance", {}, "expected a request of a task board, got 'dance'"),
    ],
)
async def test_bad_requests_are_told(
    tmp_path: Path, name: str, values: dict[str, int | str | bytes], problem: str
) -> None:
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        async with made.client(1).running() as client:
            with pytest.raises(TasksRefused, match=problem):
                await client.ask(name, values)


async def test_a_client_writes_no_other_fields_of_a_record(tmp_path: Path) -> None:
    """Nor the time, which would never go back."""
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        async with made.client(1).running() as client:
            later = 1 << 62
            await client.ask("submit", {"type": "mail", "now": later, "result": b"forged"})
            await client.ask("list", {"now": later})
            task = await client.submit("mail", b"")
            _, row = await client.ask("show", {"task": task})
            assert row.number("submitted") < later
            assert not any(each.result for each in made.board(1).board.tasks.values())


async def test_a_board_that_has_not_begun_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A host lets clients in before its boards begin."""
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        await made.kill(1)
        await made.begin_hosts(1)
        async with made.client(1).running() as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.submit, "mail", b"")
            await eventually(lambda: "board 'jobs' is about to begin" in client.why)
            await made.run_board(1)
    assert "has failed" not in caplog.text


async def test_a_board_whose_queue_closes_before_its_first_record_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As at the end of its host: it has come to lead, and the append comes too late."""
    caplog.set_level(logging.INFO, "cqrepl.service.ledservice")
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        await made.kill(1)
        await made.begin_hosts(1)
        leading = made.hosts.hosts[1].queue("a").leading
        opened = BoardService.opened

        def closes(board: BoardService, epoch: int, leader: int) -> bytes:
            leading.close()
            return opened(board, epoch, leader)

        monkeypatch.setattr(BoardService, "opened", closes)
        await made.run_board(1)
        await eventually(lambda: "serves it no longer" in caplog.text)
        assert not made.board(1).led.is_serving
    assert "queue 'a': its source has closed" in caplog.text


async def test_a_board_whose_queue_is_removed_waits_no_longer_for_its_first_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No copy is there, so the record is not safe when the queue goes."""
    caplog.set_level(logging.INFO, "cqrepl.service.ledservice")
    async with boards(tmp_path, 2) as made:
        for each in (2, 1):
            await made.kill(each)
        with Queue.open(made.hosts.path(1)) as queue:
            before = queue.next_index()
        await made.begin(1)
        board = made.board(1)
        await eventually(lambda: board.led.feed.position.index > before)
        with trio.fail_after(SECONDS):
            await made.hosts.remove(1)
            await eventually(lambda: "its source has closed" in caplog.text)
        assert not board.led.is_serving


async def test_a_board_whose_queue_is_removed_serves_no_longer(tmp_path: Path) -> None:
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        async with made.client(1).running() as client, trio.open_nursery() as nursery:
            await client.submit("mail", b"")
            await made.hosts.remove(1)
            nursery.start_soon(client.submit, "mail", b"")
            await eventually(lambda: "host 1 does not serve board 'jobs'" in client.why)
            nursery.cancel_scope.cancel()


async def test_a_client_that_takes_no_answers_ends(tmp_path: Path) -> None:
    """Its host keeps no more of them than so much; what a worker is given does not count."""
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        async with made.client(1).running() as client:
            await client.submit("mail", b"", key="1")
            (half,) = made.board(1)._halves
            half._unread_max = 100_000
            for _ in range(3):
                half.say(TaskWords("work", {"payload": bytes(DATA_MAX)}), counts=False)
            half.say(TaskWords("task", {"payload": bytes(60_000)}))
            half.say(TaskWords("task", {"payload": bytes(60_000)}))
            assert half.produce(1 << 16)
            half.say(TaskWords("answer"))
            assert half.produce(1 << 16) == b""
            await client.submit("mail", b"")  # on another one
    assert "expected a client that takes its answers, got one that has left 12" in client.why


async def test_long_payloads_and_results_go_in_pieces(tmp_path: Path) -> None:
    async with boards(tmp_path, 1, "level=appended from=none") as made:
        async with made.client(1).running() as client:
            data = bytes(range(256)) * (DATA_MAX // 256)
            task = await client.submit("mail", data)
            work = await client.work("w1", ["mail"])
            await client.finish(await work.receive(), data)
            _, row = await client.ask("show", {"task": task})
            assert row.data("payload") == row.data("result") == data


async def test_a_host_whose_board_has_ended_gives_up_the_lead(tmp_path: Path) -> None:
    """An excerpt that is no record ends it; a later version on another host may read it."""
    async with boards(tmp_path, 2) as made:
        await eventually(lambda: made.board(1).led.is_serving)
        await made.hosts.hosts[1].queue("a").append(b"\xff\xff no record")
        await eventually(lambda: made.board(1).led.fault is not None)
        await eventually(lambda: made.hosts.hosts[1].position("a").role is Role.FOLLOWING)
        assert "the service has failed" in str(made.board(1).led.fault)
