"""The members that count for a promotion, by the lists that copies name."""

from dataclasses import replace

from cqrepl.cluster.memberlists import MemberLists, members_of
from cqrepl.protocol.messages.fences import CopyPosition
from cqrepl.queue.format.epochs import Epoch, Epochs
from cqrepl.queue.format.index import Index

HOSTS = frozenset({1, 2, 3, 4, 5})
THREE = frozenset({1, 2, 3})
FOUR = frozenset({1, 2, 3, 4})


def at(promised: int, begun: int, listed: int, *members: int) -> CopyPosition:
    history = (Epoch(begun, 1, Index(0)),) if begun else ()
    epochs = Epochs(
        promised=promised,
        promised_to=1 if promised else 0,
        history=history,
        members=frozenset(members),
        listed=listed,
    )
    return CopyPosition(next_index=Index(5), epochs=epochs, is_source=False)


def test_the_file_counts_where_no_copy_names_members() -> None:
    positions = {1: at(0, 0, 0), 2: at(3, 3, 0)}
    assert members_of(positions, HOSTS, THREE) == MemberLists(THREE, members=THREE)
    assert members_of(positions, HOSTS, frozenset()) == MemberLists(HOSTS)


def test_the_latest_list_goes_before_the_file() -> None:
    positions = {1: at(2, 2, 2, *FOUR), 2: at(1, 1, 1, *THREE), 3: at(0, 0, 0)}
    assert members_of(positions, HOSTS, THREE) == MemberLists(FOUR, members=FOUR)


def test_a_list_whose_epoch_may_not_have_begun_counts_beside_the_one_before() -> None:
    """The next epoch has the older one, which surely was the queue's."""
    positions = {1: at(2, 1, 2, *FOUR), 2: at(1, 1, 1, *THREE)}
    assert members_of(positions, HOSTS, THREE) == MemberLists(FOUR, THREE, THREE)
    begun = {**positions, 3: at(2, 2, 2, *FOUR)}
    assert members_of(begun, HOSTS, THREE) == MemberLists(FOUR, members=FOUR)


def test_lists_that_do_not_follow_each_other_are_refused() -> None:
    """Two majorities without a host in common could begin two epochs."""
    one = members_of({1: at(2, 0, 2, 1, 4, 5), 2: at(1, 0, 1, *THREE)}, HOSTS, THREE)
    assert one.refusal == "members differ: 1, 4, 5 in epoch 2, 1, 2, 3 before"
    two = members_of({1: at(2, 2, 2, 1, 4, 5), 2: at(2, 2, 2, *THREE)}, HOSTS, THREE)
    assert two.refusal == ("members differ: host 1 names 1, 4, 5 in epoch 2, host 2 names 1, 2, 3")


def test_an_epoch_of_unknown_members_is_refused() -> None:
    positions = {1: at(3, 3, 2, *FOUR), 2: at(2, 2, 2, *FOUR)}
    assert members_of(positions, HOSTS, THREE).refusal == (
        "members of epoch 3 are not known: no copy that answers names them"
    )
    assert not members_of({**positions, 3: at(3, 3, 3, *FOUR)}, HOSTS, THREE).refusal


def test_members_change_one_at_a_time() -> None:
    positions = {1: at(2, 2, 2, *THREE), 2: at(2, 2, 2, *THREE)}
    assert members_of(positions, HOSTS, THREE, FOUR) == MemberLists(FOUR, THREE, FOUR)
    assert members_of(positions, HOSTS, THREE, {1, 2}).members == {1, 2}
    assert members_of(positions, HOSTS, THREE, THREE) == MemberLists(THREE, members=THREE)
    assert members_of(positions, HOSTS, THREE, {1, 2, 4}).refusal == (
        "members change one host at a time: expected 1, 2, 3 and one more or one less, got 1, 2, 4"
    )
    torn = {**positions, 1: replace(positions[1], epochs=at(3, 2, 3, *FOUR).epochs)}
    assert "members differ" in members_of(torn, HOSTS, THREE, {1, 2, 3, 5}).refusal
