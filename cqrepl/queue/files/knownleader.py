"""The leader of a queue, as its directory tells it, for people who were refused an append there."""

from pathlib import Path

from cqrepl.queue.files.epochfile import load_epochs
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.format.epochs import Epochs
from cqrepl.queue.format.errors import QueueDamaged


def leader_known(path: Path, listing: Listing) -> str:
    """Words for the end of an error that name the leader; none where the directory knows none. A
    promotion says more than the host that a copy came from, which may have been deposed since.
    """
    try:
        known = load_epochs(path)
    except (OSError, QueueDamaged):  # the host that runs there says so
        known = Epochs()
    if known.promised:
        leads = "leads" if known.is_begun else "is to lead"
        return f"; host {known.promised_to} {leads} it, in epoch {known.promised}"
    host_id = listing.copy_of() or known.streamed_by
    return f"; it comes from host {host_id}" if host_id and listing.is_follower() else ""
