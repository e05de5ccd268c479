"""What several tests of connections share."""

import pytest

from cqrepl.net import sharedsocket


@pytest.fixture(params=[True, False], ids=["usual", "without a live pump"])
def has_pump(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways that frames go: by live pumps where there are any, and by the tasks alone."""
    if not request.param:
        monkeypatch.setattr(sharedsocket, "pump_for", lambda stream: None)
    return bool(request.param)
