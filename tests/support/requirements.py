"""The needs of a test on a machine: without one it is skipped, or fails where it was promised."""

import os
from typing import NoReturn

import pytest


def promised() -> set[str]:
    """The names that CQREPL_REQUIRE lists."""
    return {word.strip() for word in os.environ.get("CQREPL_REQUIRE", "").split(",")}


def require(name: str, reason: str) -> NoReturn:
    """Skips the running test, or the module being loaded, for want of `name`.

    Fails it where CQREPL_REQUIRE lists that name.
    """
    if name in promised():
        pytest.fail(f"CQREPL_REQUIRE promises {name}: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
