"""The checker of histories, with mistakes planted in them."""

import random
from collections.abc import Callable, Hashable, Iterator
from itertools import permutations
from typing import Any

import pytest

from cqrepl.testing.history import Fate, History, Operation
from cqrepl.testing.linearizability import (
    NotLinearizable,
    Register,
    TooLongError,
    check_linearizable,
)

# a call begins, or returns, at its place in a list of these: (who, name, value or result)
Step = tuple[str, str, Any]


def history(*steps: Step) -> list[Operation]:
    """Each step begins a call of a process that has none, and ends that of one that has."""
    made, going = History(), dict[str, Any]()
    for who, name, value in steps:
        if who not in going:
            going[who] = made.call(who, name, "x", value)
            going[who] = (going[who], going[who].__enter__())
        else:
            block, call = going.pop(who)
            if name == "failed":
                call.failed()
            elif name != "unknown":
                call.returned(value)
            block.__exit__(None, None, None)
    return made.operations


def found(*steps: Step) -> NotLinearizable | None:
    return check_linearizable(history(*steps), Register(0))


GOOD: dict[str, list[Step]] = {
    "one after the other": [
        ("a", "write", 1), ("a", "ok", None), ("b", "read", None), ("b", "ok", 1)],
    "a read while a write goes on has the old value": [
        ("a", "write", 1), ("b", "read", None), ("b", "ok", 0), ("a", "ok", None)],
    "or the new one": [
        ("a", "write", 1), ("b", "read", None), ("b", "ok", 1), ("a", "ok", None)],
    "a write whose outcome is unknown has its effect later": [
        ("a", "write", 1), ("a", "unknown", None),
        ("b", "read", None), ("b", "ok", 0), ("b", "read", None), ("b", "ok", 1)],
    "or never": [
        ("a", "write", 1), ("a", "unknown", None), ("b", "read", None), ("b", "ok", 0)],
    "a call that never ends": [("a", "write", 1), ("b", "read", None), ("b", "ok", 1)],
    "a call that has failed counts for nothing": [
        ("a", "write", 1), ("a", "failed", None), ("b", "read", None), ("b", "ok", 0)],
    "of two that compare and set, one has it": [
        ("a", "cas", (0, 1)), ("b", "cas", (0, 2)), ("a", "ok", False), ("b", "ok", True)],
}  # fmt: skip

PLANTED: dict[str, list[Step]] = {
    "a stale read": [
        ("a", "write", 1), ("a", "ok", None), ("b", "read", None), ("b", "ok", 0)],
    "a lost write": [
        ("a", "write", 1), ("a", "ok", None), ("a", "write", 2), ("a", "ok", None),
        ("b", "read", None), ("b", "ok", 1)],
    "a read that goes back": [
        ("a", "write", 1), ("b", "read", None), ("b", "ok", 1),
        ("c", "read", None), ("c", "ok", 0), ("a", "ok", None)],
    "a value that nothing wrote": [("a", "read", None), ("a", "ok", 7)],
    "what has failed is read": [
        ("a", "write", 1), ("a", "failed", None), ("b", "read", None), ("b", "ok", 1)],
    "an unknown write has its effect twice": [
        ("a", "write", 1), ("a", "unknown", None), ("b", "read", None), ("b", "ok", 1),
        ("b", "write", 2), ("b", "ok", None), ("b", "read", None), ("b", "ok", 1)],
    "it is read before it was called": [
        ("b", "read", None), ("b", "ok", 1), ("a", "write", 1), ("a", "unknown", None)],
    "of two that compare and set, both have it": [
        ("a", "cas", (0, 1)), ("b", "cas", (0, 2)), ("a", "ok", True), ("b", "ok", True)],
    "two leaders": [
        ("a", "cas", (0, 1)), ("a", "ok", True), ("b", "cas", (0, 2)), ("b", "ok", True)],
}  # fmt: skip


@pytest.mark.parametrize("steps", GOOD.values(), ids=GOOD.keys())
def test_a_history_that_is_linearizable(steps: list[Step]) -> None:
    assert found(*steps) is None


@pytest.mark.parametrize("steps", PLANTED.values(), ids=PLANTED.keys())
def test_a_mistake_is_found(steps: list[Step]) -> None:
    assert found(*steps) is not None


def test_it_says_how_far_an_order_goes() -> None:
    text = str(found(*PLANTED["a stale read"]))
    assert text == (
        "key 'x': after a: write 'x' 1: gives None: none of these can be next: b: read 'x': gives 0"
    )


def test_keys_do_not_concern_each_other() -> None:
    made = History()
    for key, value in (("x", 1), ("y", 2)):
        with made.call("a", "write", key, value) as call:
            call.returned()
        with made.call("b", "read", key) as call:
            call.returned(value)
    assert check_linearizable(made.operations, Register()) is None
    with made.call("b", "read", "y") as call:
        call.returned(1)
    wrong = check_linearizable(made.operations, Register())
    assert wrong is not None
    assert wrong.key == "y"


def test_a_call_ends_once() -> None:
    with History().call("a", "read", "x") as call:
        call.returned(1)
        with pytest.raises(ValueError, match="expected a call that goes on, got a: read 'x'"):
            call.failed()


def test_a_call_that_an_error_ends_is_unknown() -> None:
    made = History()
    with pytest.raises(OSError), made.call("a", "write", "x", 1):
        raise OSError
    assert made.operations[0].fate is Fate.UNKNOWN


class Bag:
    """`put` adds a value, `take` gives any that is there: several states may follow one."""

    def start(self) -> Hashable:
        return frozenset[int]()

    def step(self, state: Any, operation: Operation) -> Iterator[Hashable]:
        if operation.name == "put":
            yield state | {operation.value}
        else:
            for each in state:
                if not operation.is_known or operation.result == each:
                    yield state - {each}


def test_a_model_may_have_several_states_to_follow() -> None:
    """The value of an unknown take is open, and shows itself later."""
    steps: list[Step] = [
        ("a", "put", 1), ("a", "ok", None), ("a", "put", 2), ("a", "ok", None),
        ("b", "take", None), ("b", "unknown", None),
        ("c", "take", None), ("c", "ok", 1)]  # fmt: skip
    assert check_linearizable(history(*steps), Bag()) is None
    twice: list[Step] = [*steps, ("c", "take", None), ("c", "ok", 1)]
    assert check_linearizable(history(*twice), Bag()) is not None


def drawn(rng: random.Random, count: int) -> list[Operation]:
    """Calls of three processes on a register, of which some return what they would not."""
    made, value = History(), 0
    going: dict[str, tuple[Any, Any, str, Any]] = {}
    left = count
    while left or going:
        who = rng.choice("abc")
        if who not in going and left:
            left -= 1
            name = rng.choice(("read", "write", "cas"))
            given = (rng.randrange(3), rng.randrange(3)) if name == "cas" else rng.randrange(3)
            block = made.call(who, name, "x", None if name == "read" else given)
            going[who] = (block, block.__enter__(), name, given)
        elif who in going:
            block, call, name, given = going.pop(who)
            old = value
            if rng.random() < 0.9:
                value = {"read": value, "write": given}.get(name, value)
                if name == "cas" and given[0] == old:
                    value = given[1]
            if rng.random() < 0.8:
                seen = old if rng.random() < 0.7 else rng.randrange(3)
                result = {"read": seen, "write": None}.get(name)
                call.returned(given[0] == seen if name == "cas" else result)
            block.__exit__(None, None, None)
    return made.operations


def by_trying_all_orders(operations: list[Operation], model: Register) -> bool:
    """The slow way: each order of each choice of the calls whose outcome is unknown."""
    known = [each for each in operations if each.is_known]
    unknown = [each for each in operations if not each.is_known]
    for choice in range(1 << len(unknown)):
        chosen = known + [each for nth, each in enumerate(unknown) if choice >> nth & 1]
        if any(_is_legal(order, model) for order in permutations(chosen)):
            return True
    return False


def _is_legal(order: tuple[Operation, ...], model: Register) -> bool:
    states = {model.start()}
    for nth, each in enumerate(order):
        if any(other.ended is not None and other.ended < each.began for other in order[nth + 1 :]):
            return False
        states = {after for state in states for after in model.step(state, each)}
    return bool(states)


def test_it_agrees_with_trying_all_orders() -> None:
    rng, model = random.Random(7), Register(0)
    verdicts = []
    for _ in range(300):
        operations = drawn(rng, 5)
        verdict = check_linearizable(operations, model) is None
        assert verdict == by_trying_all_orders(operations, model), [*map(str, operations)]
        verdicts.append(verdict)
    assert 60 < sum(verdicts) < 240


def test_long_histories_take_few_steps() -> None:
    """Without the memo calls at one time would take as many steps as they have orders."""
    made = History()
    blocks: list[tuple[Any, Callable[[Any], None]]] = []
    for nth in range(12):
        block = made.call(f"p{nth}", "write", "x", nth % 2)
        blocks.append((block, block.__enter__().returned))
    for block, returned in blocks:
        returned(None)
        block.__exit__(None, None, None)
    with made.call("a", "read", "x") as call:
        call.returned(7)
    assert check_linearizable(made.operations, Register(0), steps_max=60_000) is not None
    with pytest.raises(TooLongError, match="key 'x': 13 operations take too many steps"):
        check_linearizable(made.operations, Register(0), steps_max=10)
