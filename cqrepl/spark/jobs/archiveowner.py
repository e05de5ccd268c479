"""Binds an archive to the identity of one queue. Knows nothing of Spark.

Theory of operation. Two queues of one roll cycle whose cycles are apart would go into one archive
without a clash, and what is restored of that is a queue that never was. So a manifest names the
identity of its queue, which all copies of the queue share; a queue without one is given one. Where
one of the two names none, as a manifest of an earlier version, the queue has to hold a cycle that
was archived, with the same bytes: then they belong together from that run on.
"""

from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.keptidentity import new_identity
from cqrepl.queue.format.identity import Identity
from cqrepl.spark.jobs.archivefiles import Manifest
from cqrepl.spark.jobs.archiveplan import ArchivePlan

_NEED = "archive it to another directory; --replace makes the archive that of this queue"


def check_bound(queue: Queue, manifest: Manifest, where: str) -> None:
    """Does nothing where an archive is not known to be that of another queue.

    Raises:
        QueueError: it is.
    """
    identity = queue.identity.load()
    if None not in (manifest.identity, identity) and manifest.identity != identity:
        raise QueueError(
            f"expected queue {manifest.identity} that {where} is of, found queue {identity};"
            f" {_NEED}",
            path=queue.path,
        )


def bound_identity(
    queue: Queue, manifest: Manifest, plan: ArchivePlan, where: str, *, replaces: bool
) -> Identity | None:
    """The identity that a manifest names from now on; None where the queue can keep none.

    Args:
        plan: has been judged, and clashes with nothing.
        replaces: the archive becomes that of this queue, whosever it was.

    Raises:
        QueueError: nothing tells that the archive is of this queue.
    """
    identity = queue.identity.load()
    is_bound = identity is not None and identity == manifest.identity
    if manifest.cycles and not is_bound and not replaces:
        check_bound(queue, manifest, where)
        if not plan.unchanged and not plan.compared:
            raise QueueError(
                f"expected an archived cycle of {where} in the queue, to tell whose the archive"
                f" is, found none; {_NEED}",
                path=queue.path,
            )
    bound = None if replaces else manifest.identity
    return identity or queue.identity.keep(lambda: bound or new_identity())
