"""Java, dice, and the processes that hostile peers are tried on."""

import os
import random
from collections.abc import Iterator

import pytest

from tests.faults.victims import Victim
from tests.support.javachecks import java

__all__ = ["java", "rng", "victim", "victims"]


@pytest.fixture
def rng() -> random.Random:
    """Dice whose seed is told when the test fails, and which CQREPL_KILL_SEED repeats."""
    seed = os.environ.get("CQREPL_KILL_SEED") or str(random.SystemRandom().randrange(1 << 32))
    print(f"CQREPL_KILL_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Victim]]:
    folder = tmp_path_factory.mktemp("hostile")
    found = {role: Victim(folder / role, role) for role in ("source", "sink")}
    yield found
    for victim in found.values():
        victim.close()


@pytest.fixture(params=["source", "sink"])
def victim(victims: dict[str, Victim], request: pytest.FixtureRequest) -> Victim:
    return victims[request.param]
