"""Is there what an archive says it holds? Its parts are looked for; none is read. Knows no Spark.

Theory of operation. A task writes a part where it runs. On a cluster that may be a disk of its own
at the archive's path, which neither the driver nor a restore will ever see. So the driver looks for
each part by itself before a manifest names it. And a part that a manifest names may have gone
since: retention, which trusts the archive, must not be told of it any more.
"""

from collections.abc import Iterable, Mapping, Sequence

from cqrepl.console.units import plural
from cqrepl.queue import QueueDamaged, QueueError
from cqrepl.spark.jobs.archivefiles import ArchivedCycle
from cqrepl.spark.jobs.archiveplace import ArchivePlace
from cqrepl.spark.jobs.archiveplan import FoundCycle


def check_written(archive: ArchivePlace, wanted: Mapping[str, int]) -> None:
    """Does nothing when the driver sees what tasks have written.

    Args:
        wanted: the sizes in bytes, by name. A name has the digest of what its part holds.

    Raises:
        QueueError: it does not.
    """
    found = archive.sizes(wanted) if wanted else {}
    for name, size in wanted.items():
        if found.get(name) != size:
            seen = "none" if name not in found else f"{found[name]} bytes"
            raise QueueError(
                f"{archive.at(name)}: expected {size} bytes that a task has written, found {seen}:"
                " executors see another directory at the archive's path than the driver"
            )


def parts_gone(
    archive: ArchivePlace, cycles: Sequence[ArchivedCycle]
) -> list[tuple[ArchivedCycle, str]]:
    """The parts of archived cycles that are not there any more, each with its cycle."""
    named = [(cycle, part.path) for cycle in cycles for part in cycle.parts]
    found = archive.sizes(name for _, name in named) if named else {}
    return [(cycle, name) for cycle, name in named if name not in found]


def check_remade(
    archive: ArchivePlace, gone: Sequence[tuple[ArchivedCycle, str]], new: Iterable[FoundCycle]
) -> None:
    """Does nothing when all cycles of parts that are gone are archived anew.

    Raises:
        QueueDamaged: one is not; its part is named.
    """
    lasts: dict[int, int] = {found.cycle: found.held.index_last for found in new}
    left = [name for each, name in gone if lasts.get(each.cycle, -1) < each.index_last]
    if left:
        more = f"; and {plural(len(left) - 1, 'more part')}" if len(left) > 1 else ""
        raise QueueDamaged(
            f"{archive.at(left[0])}: expected a part of the archive, found none; put it back, or"
            f" --replace archives its cycle anew where the queue holds all of it{more}"
        )
