"""The main promise as one property, over two joined protocol cores and model queues.

After any schedule of cuts, restarts, losses at the source, repeats and local writes in the way of a
back
copy: once both sides are quiet they hold the same (index, payload) list, unless a divergence was
    reported; and no index was ever acknowledged that the sink did not hold.
"""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cqrepl.protocol import StopReason
from cqrepl.queue.format.index import Index, cycle_of
from tests.stateful.model import SHIFT, World

EXAMPLES = int(os.environ.get("CQREPL_STATEFUL_EXAMPLES", "250"))
STEPS = 60
COUNTED_MIN = 15
SEEN: Counter[str] = Counter()

payloads = st.binary(min_size=1, max_size=40)


class Replication(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(SEEN)
        self.cycle = 1000
        self.in_the_way: set[int] = set()  # indexes that a local writer used again
        SEEN["example"] += 1

    @initialize(source_dials=st.booleans(), already=st.lists(payloads, max_size=5))
    def start(self, source_dials: bool, already: list[bytes]) -> None:
        self.world.source_dials = source_dials
        for payload in already:
            self.world.source.queue.append(payload, self.cycle)

    @precondition(lambda self: not self.world.source.queue.is_locked)
    @rule(new=st.lists(payloads, min_size=1, max_size=20))
    def append(self, new: list[bytes]) -> None:
        SEEN["rule append"] += 1
        for payload in new:
            self.world.source.queue.append(payload, self.cycle)

    @rule(cycles=st.integers(1, 3))
    def roll(self, cycles: int) -> None:
        SEEN["rule roll"] += 1
        self.cycle += cycles

    @precondition(lambda self: not self.world.is_connected)
    @rule()
    def connect(self) -> None:
        SEEN["rule connect"] += 1
        self.world.connect()

    @precondition(lambda self: self.world.is_connected)
    @rule(from_source=st.booleans(), size=st.integers(1, 400))
    def deliver(self, from_source: bool, size: int) -> None:
        SEEN["rule deliver"] += 1
        world = self.world
        world.deliver(world.source if from_source else world.sink, size)

    @precondition(lambda self: self.world.is_connected)
    @rule(size=st.integers(1, 1 << 16))
    def deliver_both(self, size: int) -> None:
        SEEN["rule deliver both"] += 1
        for side in (self.world.source, self.world.sink):
            self.world.deliver(side, size)

    @rule(count=st.integers(1, 10), ns=st.integers(0, (1 << 63) - 1))
    def stream(self, count: int, ns: int) -> None:
        SEEN["rule stream"] += 1
        self.world.source.stream(count, ns)
        self.world.sink.stream(count, ns)

    @precondition(lambda self: self.world.is_connected)
    @rule()
    def cut(self) -> None:
        SEEN["rule cut"] += 1
        self.world.cut()

    @precondition(lambda self: self.world.source.queue.excerpts)
    @rule(count=st.integers(1, 8))
    def lose_power_at_source(self, count: int) -> None:
        """The source restarts without its newest excerpts; what the sink has must come back."""
        SEEN["rule lose power at source"] += 1
        self.world.cut()
        queue = self.world.source.queue
        for index in sorted(queue.excerpts)[-count:]:
            # what never reached a sink is gone for good; no acknowledgement was given for it
            del queue.excerpts[index]
        # the sink's copy is now ahead, or the lost excerpts were never replicated
        end = Index(self.world.sink.queue.next_index)
        self.cycle = max(self.cycle, cycle_of(end, SHIFT))

    @precondition(lambda self: self.world.sink.queue.excerpts)
    @rule(count=st.integers(1, 3), same=st.booleans())
    def write_in_the_way(self, count: int, same: bool) -> None:
        """A local writer uses a lost index again after the offer and before the back copy locks."""
        SEEN["rule write in the way"] += 1
        world = self.world
        self.check_quiet()
        self.lose_power_at_source(count)
        world.connect()
        dialler = world.source if world.source_dials else world.sink
        world.deliver(dialler, len(dialler.out))
        if world.source_dials:
            world.deliver(world.sink, len(world.sink.out))
        index = world.source.queue.next_index
        lost = world.sink.queue.excerpts.get(index, b"")
        if world.source.cid is not None and index:
            world.source.queue.excerpts[index] = lost if same else b"other"
            self.in_the_way.add(index)

    @precondition(lambda self: self.world.source.tail is not None)
    @rule(back=st.integers(1, 5))
    def rewind(self, back: int) -> None:
        """A source that starts too early: the sink compares and acknowledges again."""
        SEEN["rule rewind"] += 1
        known = sorted(self.world.source.queue.excerpts)
        tail = self.world.source.tail
        earlier = [index for index in known if tail is not None and index < tail]
        if earlier:
            self.world.source.tail = earlier[-min(back, len(earlier))]

    @rule(seconds=st.sampled_from([0.1, 1.0, 21.0, 41.0]))
    def tick(self, seconds: float) -> None:
        SEEN["rule tick"] += 1
        self.world.tick(seconds)

    @rule()
    def settle(self) -> None:
        SEEN["rule settle"] += 1
        self.check_quiet()

    @invariant()
    def acknowledged_is_stored(self) -> None:
        acknowledged = self.world.source.acknowledged
        assert acknowledged < self.world.sink.queue.next_index or acknowledged == -1

    @invariant()
    def sink_adds_nothing(self) -> None:
        """Below the source's end both sides agree, unless that was reported."""
        world = self.world
        if world.source.stopped or world.sink.stopped or self.is_rewritten():
            return
        for index, payload in world.sink.queue.excerpts.items():
            mine = world.source.queue.excerpts.get(index)
            assert mine is None or mine == payload

    def is_rewritten(self) -> bool:
        """After a loss a local writer used indexes that the sink had, or had passed by: only a
        digest could tell."""
        source, sink = self.world.source.queue.excerpts, self.world.sink.queue.excerpts
        passed_by = (i for i in self.in_the_way if i in source and i not in sink)
        return any(source.get(index, payload) != payload for index, payload in sink.items()) or any(
            index < max(sink, default=0) for index in passed_by
        )

    def check_quiet(self) -> None:
        world = self.world
        world.settle()
        if world.source.stopped is None and world.sink.stopped is None:
            if not self.is_rewritten():
                assert_same(world)
                SEEN["equal when quiet"] += 1
        else:
            assert StopReason.DIVERGED in (world.source.stopped, world.sink.stopped) or (
                self.has_hole()
            )

    def has_hole(self) -> bool:
        """A loss and a later local write can leave the source without what the sink has."""
        source, sink = self.world.source.queue.excerpts, self.world.sink.queue.excerpts
        return bool(set(sink) - set(source)) or bool(set(source) - set(sink))

    def teardown(self) -> None:
        self.check_quiet()


def assert_same(world: World) -> None:
    source, sink = world.source.queue.excerpts, world.sink.queue.excerpts
    assert sorted(source.items()) == sorted(sink.items())


def test_both_sides_end_equal_after_any_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    SEEN.clear()
    run_state_machine_as_test(
        Replication,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    with capsys.disabled():  # what was seen is a part of the proof
        print(f"\n{dict(sorted(SEEN.items()))}")
    wanted = ["back copy", "roll", "cut inside a frame", "repeat", "divergence", "append"]
    wanted += [name for name in SEEN if name.startswith("rule ")]
    rare = {name: SEEN[name] for name in wanted if SEEN[name] <= COUNTED_MIN}
    assert not rare, f"seen too rarely to prove anything: {rare}"
