"""The numbers that one round found, and the medians of several rounds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The numbers that one round found in one case.

    Args:
        case: what sets it apart from the other cases of the same size.
        size: bytes of an excerpt.
        values: numbers by name; the end of a name is the unit.
        points: a curve over the time of the round, for a plot.
    """

    case: str
    size: int
    values: dict[str, float]
    points: Sequence[Point] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The medians of a case, with the least and the greatest of each value."""

    case: str
    size: int
    medians: dict[str, float]
    least: dict[str, float]
    greatest: dict[str, float]


def summaries(samples: Sequence[Sample]) -> list[Summary]:
    """One for each case and size, in the order in which they first came."""
    cases: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        cases.setdefault((sample.case, sample.size), []).append(sample)
    return [_summary(of) for of in cases.values()]


def _summary(samples: list[Sample]) -> Summary:
    first = samples[0]
    found = {name: [sample.values[name] for sample in samples] for name in first.values}
    return Summary(
        case=first.case,
        size=first.size,
        medians={name: statistics.median(values) for name, values in found.items()},
        least={name: min(values) for name, values in found.items()},
        greatest={name: max(values) for name, values in found.items()},
    )
