"""A FIX session of an engine in Python, whose host dies: the next host goes on with the right
numbers, and has every message that was acknowledged."""

from functools import partial
from pathlib import Path

import simplefix

from cqrepl.net.threads import in_thread
from cqrepl.persist.factory import PersistenceFactory
from cqrepl.persist.fix import FixSessionStore
from tests.support.persisted import persisted

SESSION = "FIX.4.4:A->B"


def order(number: int, text: str) -> bytes:
    """A message as the engine sends it."""
    message = simplefix.FixMessage()
    for tag, value in ((8, "FIX.4.4"), (35, "D"), (34, number), (49, "A"), (56, "B"), (11, text)):
        message.append_pair(tag, value)
    return bytes(message.encode())


def said(data: bytes) -> tuple[int, str]:
    """The number and the text of a message."""
    parser = simplefix.FixParser()
    parser.append_buffer(data)
    message = parser.get_message()
    return int(message.get(34)), message.get(11).decode()


def send(factory: PersistenceFactory, host: int, count: int) -> list[tuple[int, str]]:
    """So many orders go out, and as many reports come in; those that were acknowledged."""
    store = FixSessionStore(factory, SESSION, timeout=10)
    acked = []
    for nth in range(count):
        number = store.next_sender
        text = f"{host}:{nth}"
        if store.set_message(number, order(number, text)).is_acked:
            acked.append((number, text))
        store.received(store.next_target)
    return acked


async def test_the_next_host_goes_on_with_the_next_number_and_all_messages(tmp_path: Path) -> None:
    async with persisted(tmp_path, 3) as made:
        acked = await in_thread(partial(send, await made.factory(1), 1, 20))
        assert [number for number, _ in acked] == list(range(1, 21))
        await made.kill(1)
        await made.promote(2)
        two = await made.factory(2)
        again = await in_thread(partial(FixSessionStore, two, SESSION))
        assert await in_thread(lambda: again.next_sender) == 21
        # what came in is not waited for: the end of it is asked for once more
        assert 1 <= await in_thread(lambda: again.next_target) <= 21
        acked += await in_thread(partial(send, two, 2, 5))
        messages = await in_thread(partial(again.messages, 1))
        assert [said(each.message) for each in messages] == acked
        assert await in_thread(lambda: again.next_sender) == 26


async def test_a_reset_at_one_host_counts_at_the_next_one(tmp_path: Path) -> None:
    async with persisted(tmp_path, 3) as made:
        one = await made.factory(1)
        await in_thread(partial(send, one, 1, 3))
        store = await in_thread(partial(FixSessionStore, one, SESSION))
        assert (await in_thread(store.reset)).is_acked
        await made.kill(1)
        await made.promote(2)
        again = await in_thread(partial(FixSessionStore, await made.factory(2), SESSION))
        numbers = await in_thread(lambda: (again.next_sender, again.next_target))
        assert numbers == (1, 1)
        assert await in_thread(lambda: again.created_at) == await in_thread(
            lambda: store.created_at
        )
