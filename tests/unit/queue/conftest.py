"""The queue that most of these tests lay."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Its directory, which is not there yet."""
    return tmp_path / "queue"
