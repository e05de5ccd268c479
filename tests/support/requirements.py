"""The needs of a test on a machine: without one it is skipped, or fails where it was promised."""

import os
from typing import NoReturn

import pytest


def require(name: str, reason: str) -> NoReturn:
    """Skips the running test, or the module being loaded, for want of `name`.

    Fails it where CQREPL_REQUIRE lists that name.
    """
    promised = os.environ.get("CQREPL_REQUIRE", "").split(",")
    if name in (word.strip() for word in promised):
        pytest.fail(f"CQREPL_REQUIRE promises {name}: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
