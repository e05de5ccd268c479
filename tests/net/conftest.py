"""Fixtures that several tests of connections share."""

from functools import partial

import pytest

from cqrepl.cluster import promoter
from cqrepl.cluster.fencekind import FenceKind
from cqrepl.net import dialer, endpoint, pump, sharedsocket
from cqrepl.persist import persistdesk
from cqrepl.replicator import direction, hostevents, relaydesk, source
from cqrepl.replicator.disk import diskend, syncer
from cqrepl.replicator.incoming import proofdesk
from cqrepl.replicator.outgoing import commitwatch, lineagedesk
from cqrepl.replicator.queuestate import appendfence, pause
from tests.support.replicas import SECONDS

# what hosts do now and then comes so many times as often: no test waits for it as long as users do
BRISKER = 10
NOW_AND_THEN = (
    (diskend, "FULL_LOOK_SECONDS"),
    (diskend, "REST_SECONDS"),
    (diskend, "SAVE_SECONDS"),
    (dialer, "PAUSE_MAX_SECONDS"),
    (hostevents, "LOOK_SECONDS"),
    (lineagedesk, "AUDITED_PAUSE_SECONDS"),
    (pause, "PAUSE_SECONDS"),
    (persistdesk, "LOOK_SECONDS"),
    (persistdesk, "PAUSE_MAX_SECONDS"),
    (proofdesk, "PENDING_SECONDS"),
    (relaydesk, "LOOK_SECONDS"),
    (sharedsocket, "LOOK_SECONDS"),
    (commitwatch, "COMMIT_SECONDS"),
    (source, "TAILERS_REST_SECONDS"),
    (syncer, "AUDIT_SECONDS"),
    (syncer, "LOOK_SECONDS"),
    (syncer, "NAMES_SECONDS"),
    (syncer, "SYNC_SECONDS"),
)


@pytest.fixture(autouse=True)
def brisk_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that hosts do now and then keep a test waiting.

    A test of when it comes sets its own time.
    """
    for module, name in NOW_AND_THEN:
        monkeypatch.setattr(module, name, getattr(module, name) / BRISKER)
    monkeypatch.setattr(promoter, "COMES_SECONDS", 0.5)


@pytest.fixture(autouse=True)
def patient_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a change of masters wait on a machine that stands still for a while, too, and a promotion
    for all the answers that come.

    A test of what ends such a wait sets a limit of its own.
    """
    monkeypatch.setattr(direction, "HAND_OVER_SECONDS", SECONDS)
    monkeypatch.setattr(appendfence, "WRITER_SECONDS", SECONDS)
    monkeypatch.setattr(promoter, "GRACE_SECONDS", 2.0)


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
