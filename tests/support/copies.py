"""Checks that two queues hold the same."""

from pathlib import Path

from cqrepl.demo import difference


def assert_same(original: Path, copy: Path) -> None:
    """Every excerpt of one is in the other, at the same index, and nothing else; else the first
    difference is told. Indexes and bytes count, not how the files are laid out."""
    found = difference(original, copy)
    assert found is None, f"{copy} differs from {original}: {found}"
