"""The tool that counts what Python does for one excerpt, on a real source and sink."""

from pathlib import Path

from tools.excerpt_path import OUTSIDE, Call, Function, Numbers, Walk, measure, middle_of, report

ROOT = Path(__file__).resolve().parent.parent.parent
FIRST = Function("cqrepl/net/a.py", "first")
SECOND = Function("cqrepl/net/a.py", "second")
NEXT_FILE = Function("cqrepl/net/b.py", "third")
NEXT_PACKAGE = Function("wire/c.py", "fourth")
CALLS = [
    Call(OUTSIDE, FIRST),
    Call(FIRST, SECOND),
    Call(SECOND, NEXT_FILE),
    Call(SECOND, NEXT_FILE),
    Call(NEXT_FILE, NEXT_PACKAGE),
]


def test_changes_are_those_between_caller_and_callee() -> None:
    assert Numbers.of(CALLS) == Numbers(calls=5, file_changes=4, package_changes=2)


def test_a_walk_has_each_call_once_with_the_append_and_without() -> None:
    walk = Walk(CALLS, append_count=2)
    assert walk.whole == [*CALLS[:3], CALLS[4]]
    assert walk.replication == [CALLS[2], CALLS[4]]


def test_the_report_shows_the_middle_the_least_and_the_greatest() -> None:
    walks = [Walk(CALLS[:count], append_count=0) for count in (5, 1, 2)]
    assert middle_of(walks) is walks[2]
    line = report(walks).splitlines()[1].split()
    assert line[-6:] == ["2", "(1-4)", "1", "(1-3)", "1", "(1-2)"]


async def test_walks_lead_from_the_append_to_the_acknowledgement(tmp_path: Path) -> None:
    for walk in await measure(tmp_path, excerpts=2):
        assert walk.calls[0] == Call(OUTSIDE, walk.calls[0].callee)
        assert walk.calls[0].callee.name == "Queue.append"
        assert 0 < walk.append_count < len(walk.calls)
        assert all((ROOT / callee.file).is_file() for _, callee in walk.calls)
        assert {"cqrepl/net", "cqrepl/protocol"} <= {each.package for _, each in walk.replication}
        assert not any(callee.name == "Queue.append" for _, callee in walk.replication)
        assert any("acknowledged" in callee.name for _, callee in walk.replication)
