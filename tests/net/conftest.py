"""Fixtures that several tests of connections share."""

from functools import partial

import pytest

from cqrepl.cluster.fencekind import FenceKind
from cqrepl.net import endpoint, pump, sharedsocket
from cqrepl.replicator import direction, hostevents
from cqrepl.replicator.queuestate import appendfence
from tests.support.replicas import SECONDS


@pytest.fixture(autouse=True)
def patient_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a change of masters wait on a machine that stands still for a while, too.

    A test of what ends such a wait sets a limit of its own.
    """
    monkeypatch.setattr(direction, "HAND_OVER_SECONDS", SECONDS)
    monkeypatch.setattr(appendfence, "WRITER_SECONDS", SECONDS)


@pytest.fixture(params=[True, False], ids=["usual", "without a live pump"])
def has_pump(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways that frames go: by live pumps where there are any, and by the tasks alone."""
    if not request.param:
        monkeypatch.setattr(sharedsocket, "pump_for", lambda *_: None)
    return bool(request.param)


@pytest.fixture
def unhurried_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an orderly end time enough on a busy machine, too."""
    monkeypatch.setattr(endpoint, "END_SECONDS", 60.0)
    monkeypatch.setattr(pump, "CLOSE_SECONDS", 60.0)
    monkeypatch.setattr(hostevents, "END_SECONDS", 60.0)


@pytest.fixture
def older_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts that do not know how to be promoted by another host's word, and do not say that they
    do."""
    monkeypatch.setattr(FenceKind, "of_leads", partial(FenceKind, alias="!NoneHandler"))
