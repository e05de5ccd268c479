"""Store files that a host deletes by itself."""

import logging
import time
from pathlib import Path

import pytest
import trio

from cqrepl.config.retentionkinds import RETENTIONS
from cqrepl.config.valuekinds import Unfit
from cqrepl.queue import Queue
from cqrepl.service.retentionrules import Retention, RetentionRule, collect, rule_of
from tests.support.replicas import eventually
from tests.support.samples import fill

NOW_MS = time.time_ns() // 1_000_000
ALL = RetentionRule(queues="*", interval_seconds=0.01)


def files(path: Path) -> list[str]:
    return sorted(each.name for each in path.glob("*.cq4"))


async def test_a_host_deletes_what_all_have_passed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5, 1: 5, 2: 5})
    fill(tmp_path / "kept", "FAST_DAILY", {0: 5, 1: 5, 2: 5})
    before = files(tmp_path / "q")
    paths = {"q": tmp_path / "q", "kept": tmp_path / "kept"}
    rules = (RetentionRule(queues="kept", keep=9, interval_seconds=0.01), ALL)
    retention = Retention(rules, lambda: paths, lambda _: frozenset())
    with caplog.at_level(logging.INFO, "cqrepl"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(retention.run)
            await eventually(lambda: files(tmp_path / "q") == before[-1:])
            nursery.cancel_scope.cancel()
    assert files(tmp_path / "kept") == before
    assert f"queue 'q': retention deleted {before[0]}" in caplog.text


def test_what_is_not_passed_stays(tmp_path: Path) -> None:
    path = tmp_path / "q"
    fill(path, "FAST_DAILY", {0: 5, 1: 5, 2: 5})
    before = files(path)
    assert not collect(path, ALL, frozenset({2}), NOW_MS).gone  # host 2 was never heard of
    assert not collect(path, RetentionRule(queues="q", keep=3), frozenset(), NOW_MS).gone
    young = RetentionRule(queues="q", keep_ms=40 * 365 * 86_400_000)
    assert not collect(path, young, frozenset(), NOW_MS).gone
    with Queue.open(path) as queue:
        tailer = queue.named_tailer("reports")
        tailer.next_excerpt()
        tailer.commit()
        tailer.close()
    assert not collect(path, ALL, frozenset(), NOW_MS).gone
    assert files(path) == before
    short = RetentionRule(queues="q", free_below_bytes=1 << 60)
    held = collect(path, short, frozenset(), NOW_MS).held
    assert "nothing may go" in held
    assert "named tailer reports is at" in held
    enough = RetentionRule(queues="q", free_below_bytes=1)
    assert collect(path, enough, frozenset(), NOW_MS).held == ""


def test_rules() -> None:
    text = "orders=keep=3 keepTime=3d freeBelow=10GiB interval=60s, o*=keep=2"
    rules = RETENTIONS.parse(text)
    assert isinstance(rules, tuple)
    first = rule_of(rules, "orders")
    assert first == RetentionRule(
        queues="orders", keep=3, keep_ms=3 * 86_400_000, free_below_bytes=10 << 30
    )
    second = rule_of(rules, "others")
    assert second is not None
    assert second.keep == 2
    assert rule_of(rules, "trades") is None
    assert RETENTIONS.parse(RETENTIONS.written(rules)) == rules
    for wrong in ("orders=keep=0", "orders=kept=1", "orders", "orders=interval=1ms"):
        with pytest.raises(Unfit):
            RETENTIONS.parse(wrong)
