"""The store of a FIX session in one directory: its numbers and messages, as an engine sees them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import simplefix
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cqrepl.persist.fix import NUMBER_MAX, FixSessionStore, Sent
from cqrepl.persist.localfactory import LocalPersistenceFactory
from cqrepl.persist.storage.storages import JsonSerializer

SESSION = "FIX.4.4:A->B"


def news(number: int, text: str) -> bytes:
    """A message as an engine sends it."""
    message = simplefix.FixMessage()
    for tag, value in ((8, "FIX.4.4"), (35, "B"), (34, number), (49, "A"), (56, "B"), (148, text)):
        message.append_pair(tag, value)
    return bytes(message.encode())


def parsed(data: bytes) -> tuple[int, bytes]:
    parser = simplefix.FixParser()
    parser.append_buffer(data)
    message = parser.get_message()
    return int(message.get(34)), message.get(148)


def test_an_engine_that_starts_again_has_the_next_numbers_and_all_messages(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        store = FixSessionStore(factory, SESSION)
        assert (store.next_sender, store.next_target) == (1, 1)
        for number in (1, 2, 3):
            store.set_message(number, news(number, f"n{number}"))
        store.received(1, b"logon")
        store.received(2)
        store.waiting.append(b"to be sent")
        store.set_properties({"heartbeat": 30})
        created = store.created_at
        assert created > 0
    with LocalPersistenceFactory(tmp_path) as factory:
        store = FixSessionStore(factory, SESSION)
        assert (store.next_sender, store.next_target, store.created_at) == (4, 3, created)
        assert [parsed(each.message) for each in store.messages(2)] == [(2, b"n2"), (3, b"n3")]
        assert [each.number for each in store.messages(2, 2)] == [2]
        assert [item for _, item in store.waiting] == [b"to be sent"]
        assert store.properties == {"heartbeat": 30}


def test_of_properties_the_last_ones_count(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        store = FixSessionStore(factory, SESSION)
        assert store.properties == {}
        for value in range(5):
            store.set_properties({"value": value})
        assert store.properties == {"value": 4}
        assert len(factory.build_queue(f"{SESSION}.properties", JsonSerializer())) == 1


def test_numbers_are_set_forwards_and_back(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        store = FixSessionStore(factory, SESSION)
        store.set_message(1, b"one")
        store.set_next_sender(10)
        store.set_message(10, b"ten")
        store.set_next_sender(1)
        store.set_next_target(7)
        assert (store.next_sender, store.next_target) == (1, 7)
        store.set_message(1, b"another")
        assert store.messages(1) == [Sent(1, b"another"), Sent(10, b"ten")]
        assert FixSessionStore(factory, SESSION).messages(1) == store.messages(1)


def test_a_reset_is_one_record_for_both_numbers(tmp_path: Path) -> None:
    """A host that dies behind it: what came before counts no more all the same."""
    with LocalPersistenceFactory(tmp_path) as factory:
        store = FixSessionStore(factory, SESSION)
        store.set_message(1, b"one")
        store.received(1)
        store._out.reset()  # as `reset` begins
        for each in (store, FixSessionStore(factory, SESSION)):
            assert (each.next_sender, each.next_target, each.messages(1)) == (1, 1, [])
        store.received(1)
        assert store.next_target == 2
        store.reset()
        assert (store.next_sender, store.next_target) == (1, 1)


def test_a_session_of_another_name_has_its_own_numbers(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        one, other = FixSessionStore(factory, SESSION), FixSessionStore(factory, "FIX.4.4:A->C")
        one.set_message(1, b"one")
        assert (one.next_sender, other.next_sender) == (2, 1)


@pytest.mark.parametrize("number", [0, -1, NUMBER_MAX + 1])
def test_numbers_that_are_none_are_refused(tmp_path: Path, number: int) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        store = FixSessionStore(factory, SESSION)
        for call in (store.set_next_sender, store.set_next_target, store.received):
            with pytest.raises(ValueError, match=f"from 1 to {NUMBER_MAX}, got {number}"):
                call(number)
        with pytest.raises(ValueError, match="expected a message"):
            store.set_message(1, b"")
        assert store.next_sender == 1


numbers = st.integers(1, 12)


class AnySession(RuleBasedStateMachine):
    """A session and its model, over starts at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.factory = LocalPersistenceFactory(Path(self.folder.name))
        self.store = FixSessionStore(self.factory, SESSION)
        self.sender = self.target = 1
        self.sent: dict[int, bytes] = {}

    @rule(message=st.binary(min_size=1, max_size=5))
    def send(self, message: bytes) -> None:
        self.store.set_message(self.sender, message)
        self.sent[self.sender] = message
        self.sender += 1

    @rule(number=numbers)
    def set_sender(self, number: int) -> None:
        self.store.set_next_sender(number)
        self.sender = number

    @rule(number=numbers, message=st.binary(max_size=3))
    def receive(self, number: int, message: bytes) -> None:
        self.store.received(number, message)
        self.target = number + 1

    @rule(number=numbers)
    def set_target(self, number: int) -> None:
        self.store.set_next_target(number)
        self.target = number

    @rule()
    def reset(self) -> None:
        self.store.reset()
        self.sender = self.target = 1
        self.sent.clear()

    @rule()
    def start_again(self) -> None:
        self.factory.close()
        self.factory = LocalPersistenceFactory(Path(self.folder.name))
        self.store = FixSessionStore(self.factory, SESSION)

    @invariant()
    def is_as_the_model(self) -> None:
        assert (self.store.next_sender, self.store.next_target) == (self.sender, self.target)

    @precondition(lambda self: self.sent)
    @rule(first=numbers, last=st.integers(0, 12))
    def read(self, first: int, last: int) -> None:
        wanted = [n for n in sorted(self.sent) if first <= n <= (last or NUMBER_MAX)]
        assert self.store.messages(first, last) == [Sent(n, self.sent[n]) for n in wanted]

    def teardown(self) -> None:
        self.factory.close()
        self.folder.cleanup()


TestAnySession = AnySession.TestCase
TestAnySession.settings = settings(TestAnySession.settings, max_examples=30)


@given(st.binary(min_size=1, max_size=200))
def test_messages_are_bytes_and_come_back_as_they_were(message: bytes) -> None:
    with TemporaryDirectory() as name, LocalPersistenceFactory(Path(name)) as factory:
        FixSessionStore(factory, SESSION).set_message(1, message)
        assert FixSessionStore(factory, SESSION).messages(1) == [Sent(1, message)]
