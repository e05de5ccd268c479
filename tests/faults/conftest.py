"""The processes that hostile peers are tried on."""

from collections.abc import Iterator

import pytest

from tests.faults.victims import Victim


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
