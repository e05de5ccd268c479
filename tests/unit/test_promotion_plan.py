"""The plan by which a host comes to lead a queue, decided from what the copies say."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cqrepl.cluster.promotion import (
    CopyStretch,
    Promotion,
    differing,
    plan_promotion,
    promises,
)
from cqrepl.protocol.messages.fences import CopyPosition
from cqrepl.queue.format.epochs import EPOCHS_MAX, Epoch, Epochs, merged
from cqrepl.queue.format.index import Index

ONE = Epoch(1, 2, Index(5))
HOSTS = frozenset({1, 2, 3, 4})


def at(end: int, *history: Epoch, promised: int = 0, is_source: bool = False) -> CopyPosition:
    number = promised or (history[-1].number if history else 0)
    leader = history[-1].leader if history else 2
    epochs = Epochs(promised=number, promised_to=leader if number else 0, history=history)
    return CopyPosition(next_index=Index(end), epochs=epochs, is_source=is_source)


def plan(to: int, acks: int = 1, **ends: CopyPosition) -> Promotion:
    positions = {int(name[1:]): each for name, each in ends.items()}
    return plan_promotion("q", to, HOSTS, positions, master=1, acks=acks)


def test_the_longest_copy_of_three_gives_what_the_new_leader_lacks() -> None:
    made = plan(2, h2=at(5), h3=at(7), h4=at(9))
    assert (made.epoch, made.was, made.start) == (1, 1, 9)
    assert made.returned == CopyStretch(host=4, first=Index(5), end=Index(9))
    assert (made.quarantined, made.fenced, made.unreached) == ((), (3, 4), (1,))
    assert (made.needed, made.may_lose, made.refusal) == (3, False, "")


def test_so_many_copies_have_to_promise_that_they_meet_whoever_had_it() -> None:
    found = {acks: plan(2, acks, h2=at(5), h3=at(7)) for acks in (1, 2, 3)}
    assert {acks: (each.needed, each.may_lose) for acks, each in found.items()} == {
        1: (3, True),
        2: (2, False),
        3: (1, False),
    }


def test_from_where_on_something_may_be_lost() -> None:
    """A loss is told from the start of the new epoch on if a copy here holds excerpts of the latest
    epoch that was promised before. Otherwise it is told from an earlier start on: that of the last
    epoch that a copy here holds excerpts of."""
    assert plan(2, h2=at(7, ONE)).lost_from == 7
    assert plan(2, h2=at(7, ONE, promised=3)).lost_from == ONE.start
    begun = {2: at(7, ONE, promised=2)}  # of the epoch that is to begin itself
    planned = replace(plan(2, h2=at(7, ONE)), epoch=2, was=1, led=frozenset({1}))
    made = plan_promotion("q", 2, HOSTS, begun, master=1, acks=1, planned=planned)
    assert (made.may_lose, made.lost_from) == (True, 7)
    late = plan(3, h3=at(7, promised=1))
    assert late.lost_from == 0
    assert "from 0x0 on, what was safe: 3 copies expected" in late.lines(is_done=False)[-1]
    assert plan(2, h1=at(9, is_source=True), h2=at(5)).fields()["lost_from"] is None


def test_the_old_leader_has_all_of_it_alone() -> None:
    made = plan(2, h1=at(9, is_source=True), h2=at(5))
    assert (made.may_lose, made.start, made.unreached) == (False, 9, (3, 4))


def test_an_old_leader_whose_end_a_power_cut_may_have_taken_has_not_all_of_it() -> None:
    """A copy that is away may have acknowledged what is gone here."""
    leads = replace(at(7, is_source=True), unproved=Index(7))
    made = plan(2, h1=leads, h2=at(5))
    assert (made.may_lose, made.unsure) == (True, frozenset({1}))
    assert "3 copies expected to promise, 1 does" in made.lines(is_done=False)[-1]
    assert not plan(2, h1=leads, h2=at(5), h3=at(5), h4=at(5)).may_lose


def test_a_master_that_streams_nothing_may_have_handed_over() -> None:
    """The master may have handed over by a file that is newer than the one here. Once it has
    promised, that counts as before."""
    found = {1: at(9), 3: at(5)}
    made = plan(3, h1=found[1], h3=found[3])
    assert (made.may_lose, made.unsure) == (True, frozenset({1}))
    after = {host: at(each.next_index, promised=1) for host, each in found.items()}
    assert plan_promotion("q", 3, HOSTS, after, master=1, acks=1, planned=made) == made
    assert not plan(3, h1=found[1], h2=at(9, is_source=True), h3=found[3], h4=at(5)).may_lose


def test_a_later_epoch_goes_before_a_longer_copy() -> None:
    """Host 1 led before host 2 did, and has a tail of its own."""
    made = plan(3, h1=at(9), h2=at(6, ONE), h3=at(6, ONE), h4=at(6, ONE))
    assert (made.epoch, made.was, made.start, made.returned) == (2, 2, 6, None)
    assert made.quarantined == (CopyStretch(host=1, first=Index(5), end=Index(9)),)


def test_what_may_be_lost_is_the_same_once_the_copies_have_promised() -> None:
    """The plan stays the same: the epoch that the copies have promised meanwhile is its own."""
    before = {2: at(5, ONE), 3: at(7, ONE)}
    after = {host: at(each.next_index, ONE, promised=2) for host, each in before.items()}
    planned = plan_promotion("q", 2, HOSTS, before, master=1, acks=1)
    done = plan_promotion("q", 2, HOSTS, after, master=1, acks=1, planned=planned)
    assert done == planned
    assert planned.lost_from == 7


def test_who_was_promised_an_epoch_and_has_not_begun_it_has_not_led() -> None:
    """Its promotion failed on the way; what was safe before that counts as before."""
    alone = plan(2, h2=at(5, promised=1))
    assert (alone.was, alone.may_lose, alone.epoch) == (1, True, 2)
    assert not plan(2, h2=at(5, promised=1), h3=at(9, promised=1), h4=at(7)).may_lose
    assert not plan(2, h1=at(9, promised=1), h2=at(5, promised=1)).may_lose


def test_who_was_promised_an_epoch_and_does_not_answer_may_have_led() -> None:
    """Its writes may be safe on a copy that does not answer either, though the host that led before
    does."""
    made = plan(3, h1=at(9, promised=1), h3=at(9, promised=1))
    assert (made.was, made.led, made.may_lose) == (2, frozenset({1, 2}), True)
    assert not plan(3, h1=at(9, promised=1), h3=at(9, promised=1), h4=at(9)).may_lose


def test_who_has_such_a_tail_follows_first() -> None:
    assert "it follows first" in plan(1, h1=at(9), h2=at(6, ONE)).refusal


def test_who_has_heard_of_an_epoch_and_holds_nothing_of_it_is_behind() -> None:
    made = plan(4, h2=at(6, ONE), h4=at(4, ONE))
    assert made.returned == CopyStretch(host=2, first=Index(4), end=Index(6))


def test_the_one_that_leads_is_not_promoted() -> None:
    assert plan(2, h2=at(6, ONE, is_source=True)).refusal == "host 2 leads it already"


def test_one_that_has_heard_of_a_promise_to_another_leads_no_more() -> None:
    """The host may be promoted back, as the other one may never have begun."""
    heard = Epochs(promised=2, promised_to=3, history=(ONE,))
    own = CopyPosition(next_index=Index(6), epochs=heard, is_source=True)
    assert not plan(2, h2=own, h4=replace(own, is_source=False)).refusal


def test_one_that_leads_where_that_epoch_was_promised_otherwise_may_lead_once_more() -> None:
    """Host 2 leads epoch 1, and host 3 has promised that epoch to itself: both had accepted a loss.
    Host 3 has not begun. If host 2 could not lead once more, host 3 would follow no host."""
    leads = at(6, ONE, is_source=True)
    other = replace(leads, epochs=Epochs(promised=1, promised_to=3), is_source=False)
    made = plan(2, h2=leads, h3=other, h4=at(6, ONE))
    assert (made.refusal, made.epoch, made.fenced) == ("", 2, (3, 4))
    assert plan(2, h2=leads, h4=at(6, ONE)).refusal == "host 2 leads it already"


def test_an_empty_copy_says_so() -> None:
    """The lines tell if a host with an empty copy leads with another copy's excerpts or none."""
    filled = "\n".join(plan(2, h2=at(0), h3=at(7)).lines(is_done=False))
    assert "host 2 has nothing of it: all comes from host 3" in filled
    empty = plan(2, h1=at(0, is_source=True), h2=at(0)).lines(is_done=True)[0]
    assert empty.endswith(
        "host 2 leads it in epoch 1, after host 1, with nothing: no copy that counts has an excerpt"
    )
    older = plan(2, h2=at(0, Epoch(1, 2, Index(0))), h3=at(7)).lines(is_done=False)
    assert "would lead it in epoch 2, with nothing" in older[0]
    assert older[1] == "quarantined, when it follows: 0x0 to before 0x7 of host 3"


def test_a_trouble_counts_while_the_leader_is_there() -> None:
    """It is tried again and again then. Without a leader it may have passed."""
    full = replace(at(5), trouble="no space")
    told = plan(2, h1=at(9, is_source=True), h2=full).refusal
    assert told == "host 2 cannot write its copy: no space"
    assert not plan(2, h2=full, h3=at(7)).refusal
    assert plan(2, h2=replace(at(5), held="paused"), h3=at(7)).refusal == "host 2: paused"


def test_so_many_promise_as_people_say_it() -> None:
    said = [promises(count, "copy", count) for count in (0, 1, 2)]
    assert said == [
        "0 copies expected to promise, 0 do",
        "1 copy expected to promise, 1 does",
        "2 copies expected to promise, 2 do",
    ]
    assert promises(1, "host", 0) == "1 host expected to promise, 0 do"
    alone = plan(2, 2, h2=at(5)).lines(is_done=False)
    assert "2 hosts expected to promise, 1 does, host 2 among them, and" in alone[-2]
    assert "2 copies expected to promise, 1 does: --accept-loss" in alone[-1]


def torn(end: int, first: int) -> CopyPosition:
    return replace(at(end), unproved=Index(first))


def test_what_a_power_cut_may_have_torn_comes_from_a_whole_copy_of_the_same_length() -> None:
    made = plan(4, h1=torn(9, 7), h2=torn(9, 7), h3=at(9), h4=at(5))
    assert made.returned == CopyStretch(host=3, first=Index(5), end=Index(9))
    assert (made.unproved, made.refusal) == (None, "")


def test_what_may_be_torn_is_not_taken_where_another_copy_has_some_of_it_whole() -> None:
    """The one that may be torn leads: it is compared with the others, and mended by them."""
    first, other, lacks = torn(9, 6), at(8), at(5)
    assert plan(3, h1=first, h2=other, h3=lacks).refusal == (
        "a power cut may have torn what host 1 has from 0x6 on, and some of that is whole elsewhere"
        " (host 2): promote host 1, which compares itself with the others first"
    )
    assert not plan(1, h1=first, h2=other, h3=lacks).refusal
    assert not plan(3, h1=torn(9, 8), h2=other, h3=lacks).refusal
    assert not plan(3, h1=first, h2=torn(8, 6), h3=lacks).refusal


def test_what_does_not_follow_on_what_the_new_leader_has_is_not_taken() -> None:
    """No difference is told where one of the two chains is not known."""
    lacks, torn_lacks, whole = at(7), torn(7, 4), at(9)
    for own, other, why in (
        (lacks, torn(9, 3), "may have torn what host 1 has from 0x3 on, and host 2 has some of it"),
        (torn_lacks, whole, "may have torn what host 2 has from 0x4 on, and host 1 has some of it"),
        (lacks, whole, "host 2 and host 1 hold other excerpts before 0x7: cqrepl verify shows"),
        (lacks, torn(9, 8), "host 2 and host 1 hold other excerpts before 0x7"),
    ):
        positions = {1: other, 2: own}
        made = plan(2, h1=other, h2=own)
        assert not made.refusal
        assert why in differing(made, positions, {1: b"a", 2: b"b"})
        for chains in ({1: b"a", 2: b"a"}, {1: b"", 2: b"b"}, {1: b"a", 2: b""}):
            assert not differing(made, positions, chains)


def test_what_no_other_copy_has_is_told_of_as_not_proved() -> None:
    made = plan(2, h1=torn(9, 7), h2=at(8), h3=at(8))
    assert (made.unproved, made.refusal) == (8, "")
    assert made.fields()["unproved"] == "0x8"
    assert made.lines(is_done=True)[2].startswith("not proved: from 0x8 on: a power cut may have")
    assert plan(2, h1=at(9), h2=at(8)).fields()["unproved"] is None


@given(
    ends=st.dictionaries(st.integers(1, 4), st.integers(0, 20), min_size=1),
    acks=st.integers(1, 3),
    data=st.data(),
)
def test_without_epochs_nothing_that_answers_is_left_behind(
    ends: dict[int, int], acks: int, data: st.DataObject
) -> None:
    to = data.draw(st.sampled_from(sorted(ends)))
    positions = {host: at(end, is_source=host == 1) for host, end in ends.items()}
    made = plan_promotion("q", to, HOSTS, positions, master=1, acks=acks)
    assert made.start == max(ends.values())
    assert not made.quarantined
    assert (made.returned is None) == (ends[to] == made.start)
    assert {*made.fenced, *made.unreached, to} == HOSTS
    # any set of copies that a write waited for has a copy among those that promise
    assert made.may_lose == (1 not in ends and len(ends) + acks <= len(HOSTS) - 1)
    assert made.lines(is_done=True)
    assert made.fields()["start"]


# epochs of 10 excerpts each, of which the first seven have merged
EVERY = tuple(Epoch(number, 2, Index(10 * number)) for number in range(1, 71))
MANY = merged(EVERY, EPOCHS_MAX)


def test_a_copy_that_may_hold_the_first_of_merged_epochs_only_is_held_against_others() -> None:
    """Host 3 holds up to epoch 5, or less; host 4 held on to epoch 5 when others began. Of the two
    the longer one is the farthest, unless they differ."""
    behind, before = at(60, *MANY), at(90, *EVERY[:5])
    for to in (3, 4):
        made = plan(to, h3=behind, h4=before)
        assert (made.farthest, made.start, made.is_risky) == (4, 90, True)
        assert made.uncompared == (CopyStretch(host=3, first=Index(10), end=Index(60)),)
        assert (made.fields()["may_lose"], made.fields()["lost_from"]) == (True, "0xa")
        (said,) = (line for line in made.lines(is_done=False) if line.startswith("not compared"))
        assert said == (
            "not compared with host 4: 0xa to before 0x3c of host 3: no epoch behind is known to"
            " both: promote host 4, or --accept-loss"
        )
    longer = plan(3, h3=at(75, *MANY), h4=at(60, *EVERY[:5]))
    assert longer.uncompared == (CopyStretch(host=4, first=Index(10), end=Index(60)),)


def test_copies_of_one_leader_are_not_held_against_each_other() -> None:
    """The history of each goes on to epoch 70: so each has the beginning of that leader's."""
    made = plan(3, h3=at(60, *MANY), h4=at(75, *MANY))
    assert (made.farthest, made.uncompared) == (4, ())
    assert made.returned == CopyStretch(host=4, first=Index(60), end=Index(75))
    assert not plan(3, h3=at(60, *MANY), h4=at(705, *MANY)).uncompared


def test_who_is_to_lead_is_held_against_a_later_epoch_of_which_it_has_none() -> None:
    away = at(800, *EVERY[:2])
    made = plan(3, h3=away, h4=at(800, *MANY))
    assert (made.farthest, made.start, made.refusal) == (4, 800, "")
    assert made.uncompared == (CopyStretch(host=3, first=Index(10), end=Index(800)),)
    other = plan(4, h3=away, h4=at(800, *MANY))
    assert (other.uncompared, other.quarantined) == ((), ())
