"""Percentiles by nearest rank: each is a value that was measured, never one between two."""

import math
from collections.abc import Sequence
from typing import Final

SHOWN: Final = (50.0, 90.0, 99.0, 99.9, 99.99, 100.0)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The least of the ordered values that so many percent of them do not exceed.

    >>> percentile([1, 2, 3, 4], 50), percentile([1, 2, 3, 4], 99), percentile([7], 0)
    (2, 4, 7)
    """
    if not ordered:
        raise ValueError("at least one value expected, none came")
    # rounded first: 99.9 % of 1000 is 999, not the 999.0000000000001 of binary fractions
    rank = math.ceil(round(percent * len(ordered) / 100, 9))
    return ordered[max(rank, 1) - 1]


def percentile_name(percent: float) -> str:
    """The name of a percentile in output: p50, p99.9, max."""
    return "max" if percent == 100 else f"p{percent:g}"
