"""Submits tasks to a board, prints them, and runs commands for them."""

import math
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio

from cqrepl.broker.client import TaskClient, TasksRefused
from cqrepl.broker.fields import DATA_MAX, TaskWords
from cqrepl.commands import outcome
from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.payload import content_of
from cqrepl.net.address import Address
from cqrepl.net.errors import Unreachable
from cqrepl.net.tlssettings import NO_TLS, TlsSettings
from cqrepl.queue.format.index import format_index, parse_index
from cqrepl.surroundings import surroundings

_WHY_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class BoardPlace:
    """The board, and where it is looked for.

    Args:
        wait_seconds: for a host that serves it.
        tls: by which hosts are met.
    """

    hosts: str
    board: str
    wait_seconds: float
    as_json: bool = False
    tls: TlsSettings = NO_TLS

    def client(self) -> TaskClient:
        """A client of it.

        Raises:
            BadArguments: an address is none.
        """
        try:
            found = [Address.parse(each.strip()) for each in self.hosts.split(",") if each.strip()]
        except ValueError as error:
            raise BadArguments(f"--at: {error}") from None
        if not found:
            raise BadArguments("--at: expected HOST:PORT, got nothing")
        return TaskClient(found, self.board, tls=self.tls)


def submit(
    place: BoardPlace,
    type_: str,
    payload: str | None,
    key: str | None,
    limits: Mapping[str, int],
    deadline_ms: int | None,
) -> int:
    """Submits a task, and prints its id; the exit code.

    Args:
        payload: None: what standard input has.
        deadline_ms: from now on.
    """

    async def ask(client: TaskClient) -> None:
        data = sys.stdin.buffer.read() if payload is None else payload.encode()
        if len(data) > DATA_MAX:
            raise BadArguments(f"expected a payload of at most {DATA_MAX} bytes, got {len(data)}")
        more = dict(limits)
        if deadline_ms is not None:
            more["deadline"] = surroundings().wall_ms() + deadline_ms
        task = await client.submit(type_, data, key, **more)
        name = format_index(task)
        output.write_text(
            output.json_line({"v": 1, "task": name}) if place.as_json else f"{name}\n"
        )

    return _asked("submit", place, ask)


def show_tasks(place: BoardPlace, status: str, type_: str, count: int) -> int:
    """Prints tasks; the exit code."""

    async def ask(client: TaskClient) -> None:
        _, *rows = await client.ask("list", {"status": status, "type": type_, "count": count})
        for row in rows:
            output.write_text(_json(row) if place.as_json else _line(row))

    return _asked("list", place, ask)


def show_task(place: BoardPlace, task: str) -> int:
    """Prints a task; the exit code."""

    async def ask(client: TaskClient) -> None:
        try:
            number = parse_index(task)
        except ValueError:
            wanted = "expected the id of a task, as `list` shows it"
            raise BadArguments(f"{wanted}, got {task!r}") from None
        _, *rows = await client.ask("show", {"task": number})
        if not rows:
            raise TasksRefused(f"expected a task of board {place.board!r}, got {task}")
        output.write_text(_json(rows[0]) if place.as_json else _page(rows[0]))

    return _asked("show", place, ask)


def show_workers(place: BoardPlace) -> int:
    """Prints the workers; the exit code."""

    async def ask(client: TaskClient) -> None:
        _, *rows = await client.ask("workers", {})
        for row in rows:
            line = f"{row.text('worker')}  {row.text('types')}  "
            line += f"{row.number('count')} of {row.number('slots')}\n"
            output.write_text(_json(row) if place.as_json else line)

    return _asked("workers", place, ask)


def work(
    place: BoardPlace,
    types: Sequence[str],
    command: str,
    slots: int,
    worker: str | None,
    once: int | None,
) -> int:
    """Runs a command for each task; the exit code.

    Args:
        once: after so many it ends; None: it goes on.
    """
    name = worker or f"worker-{surroundings().random_bytes(6).hex()}"

    async def ask(client: TaskClient) -> None:
        words = _words(command)
        received = await client.work(name, types, slots)
        left = math.inf if once is None else once
        async with trio.open_nursery() as nursery:
            free = trio.Semaphore(slots)
            while left > 0:
                task = await received.receive()
                await free.acquire()
                left -= 1
                nursery.start_soon(_do, client, task, words, free)
        await client.ask("leave", {})

    return _asked("work", place, ask, is_long=True)


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadArguments(f"--exec: expected a command, got {command!r}: {error}") from None
    if not words:
        raise BadArguments("--exec: expected a command, got nothing")
    return words


async def _do(
    client: TaskClient, task: TaskWords, words: Sequence[str], free: trio.Semaphore
) -> None:
    """Runs the command for one task, and says what came of it."""
    name = format_index(task.number("task"))
    try:
        try:
            ran = await trio.run_process(
                [*words],
                stdin=task.data("payload"),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
        except OSError as error:
            await client.fail(task, f"{words[0]}: {error.strerror}")
            return
        if ran.returncode == 0 and len(ran.stdout) <= DATA_MAX:
            await client.finish(task, ran.stdout)
            output.write_text(f"{name} done\n")
        else:
            await client.fail(task, _why(ran))
            output.write_text(f"{name} failed: exit code {ran.returncode}\n")
    except TasksRefused as error:
        output.write_error(f"cqrepl tasks: {name}: {error}")
    finally:
        free.release()
        output.flush()


def _why(ran: "subprocess.CompletedProcess[bytes]") -> str:
    if ran.returncode == 0:
        return f"expected a result of at most {DATA_MAX} bytes, got {len(ran.stdout)}"
    said = ran.stderr.decode("utf-8", "replace").strip()[-_WHY_MAX:]
    return f"exit code {ran.returncode}" + (f": {said}" if said else "")


def _asked(
    verb: str,
    place: BoardPlace,
    ask: Callable[[TaskClient], Awaitable[None]],
    *,
    is_long: bool = False,
) -> int:
    """Asks a board, within a time limit that ends for what `is_long` once it has been reached."""

    async def run() -> None:
        client = place.client()
        async with client.running():
            with trio.move_on_after(place.wait_seconds) as limit:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_end_if_absent, client)
                    if is_long:
                        nursery.start_soon(_lift, client, limit)
                    await ask(client)
                    nursery.cancel_scope.cancel()
            if limit.cancelled_caught:
                text = f"no host served board {place.board!r} within {place.wait_seconds:g} s"
                raise Unreachable(f"{text}: {client.why or 'none was reached'}")
        output.flush()

    def guarded() -> int:
        trio.run(run)
        return exitcodes.OK

    return outcome.guarded(f"cqrepl tasks {verb}", partial(guarded))


async def _end_if_absent(client: TaskClient) -> None:
    """Ends what is asked of a board that no host has.

    Raises:
        TasksRefused: each host that answers says so.
    """
    await client.absent.wait()
    raise TasksRefused(f"no host that answers has board {client.board!r}: {client.why}")


async def _lift(client: TaskClient, limit: trio.CancelScope) -> None:
    await client.answered.wait()
    limit.deadline = math.inf


def _json(row: TaskWords) -> str:
    fields: dict[str, object] = {"v": 1, "kind": row.name}
    for name, value in row.values.items():
        if name == "task":
            fields[name] = format_index(row.number(name))
        elif isinstance(value, bytes):
            fields[name] = content_of(memoryview(value)).value if value else ""
        elif name != "ask":
            fields[name] = value
    return output.json_line(fields)


def _line(row: TaskWords) -> str:
    attempts = f"{row.number('attempt')}/{row.number('attempts')}"
    why = f"  {row.text('why')}" if row.text("why") else ""
    worker = f"  {row.text('worker')}" if row.text("worker") else ""
    name = format_index(row.number("task"))
    return f"{name}  {row.text('type')}  {row.text('status')}  {attempts}{worker}{why}\n"


def _page(row: TaskWords) -> str:
    lines = [f"task: {format_index(row.number('task'))}"]
    for name, value in row.values.items():
        if name not in ("ask", "task") and value not in ("", 0, b""):
            shown = content_of(memoryview(value)).value if isinstance(value, bytes) else value
            lines.append(f"{name}: {shown}")
    return "\n".join(lines) + "\n"
