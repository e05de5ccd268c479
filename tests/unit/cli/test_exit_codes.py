"""The exit codes of commands after an error, an interruption, and after queues have stopped."""

from pathlib import Path

import pytest

from cqrepl.commands import outcome, replication
from cqrepl.console.exitcodes import BadArguments
from cqrepl.net.errors import NetError, Refused, Unreachable
from cqrepl.protocol import StopReason
from cqrepl.queue import AtomicsMissing, LayoutMismatch, NotAQueue, QueueDamaged, QueueLocked
from cqrepl.replicator.queuestate.stops import Stop
from tests.support.invoke import Invoke


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (QueueDamaged("x"), 4),
        (LayoutMismatch("x"), 5),
        (QueueLocked("x", holder=1), 5),
        (Refused("x"), 5),
        (Unreachable("x"), 3),
        (NetError("x"), 3),
        (NotAQueue("x"), 2),
        (AtomicsMissing("x"), 2),
        (PermissionError(13, "Permission denied", "x"), 2),
        (BadArguments("x"), 2),
    ],
)
def test_codes(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*errors: Exception) -> int:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("x", errors)

    nested = ExceptionGroup("x", [error])
    assert outcome.guarded("cqrepl", lambda: fail(error)) == code
    assert outcome.guarded("cqrepl", lambda: fail(nested)) == code
    assert outcome.guarded("cqrepl", lambda: fail(nested, error)) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert set(lines) == {f"cqrepl: {error}"}
    with pytest.raises(ExceptionGroup):
        outcome.guarded("cqrepl", lambda: fail(nested, AssertionError("a bug")))


def test_interrupted() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    def in_a_task() -> int:
        raise BaseExceptionGroup("x", [KeyboardInterrupt(), BaseExceptionGroup("y", [OSError()])])

    assert outcome.guarded("cqrepl", interrupted) == 130
    assert outcome.guarded("cqrepl", in_a_task) == 130


def test_interrupted_before_signals_are_taken(
    invoke: Invoke, queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(replication, "run_command", interrupted)
    assert invoke("source", queue, "--listen", "127.0.0.1:0").exit_code == 130


R = StopReason


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        ([R.GAP], 1),
        ([R.DIVERGED, R.GAP], 1),
        ([R.FAILED], 1),
        ([R.NO_ANSWER], 1),
        ([R.REFUSED], 5),
        ([R.REFUSED, R.REFUSED], 5),
        ([R.REFUSED, R.GAP], 1),
        ([R.DAMAGED], 4),
        ([R.GAP, R.DAMAGED, R.REFUSED], 4),
    ],
)
def test_code_of_stops(reasons: list[StopReason], code: int) -> None:
    stops = [Stop(name="q", reason=reason, message="x") for reason in reasons]
    assert replication.code_of_stops(stops) == code
