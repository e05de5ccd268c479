"""Which queues a host of a cluster streams, and which it takes in, when it starts.

The file of the cluster names a master for each, which is only the first choice: where a copy has
promised an epoch, that says who leads.
"""

from collections.abc import Mapping
from pathlib import Path

from cqrepl.net.errors import Refused
from cqrepl.replicator.keptepochs import KeptEpochs


def by_epochs(
    from_here: Mapping[str, Path],
    to_here: Mapping[str, Path],
    known: Mapping[str, KeptEpochs],
    host_id: int,
) -> tuple[dict[str, Path], dict[str, Path]]:
    """The same queues, by what their copies have promised. Each stays in its directory. One whose
    epochs cannot be read now stays as it is: it is not opened before they can.

    Args:
        known: the epochs of each.

    Raises:
        QueueDamaged: what one has promised is not what was written.
    """
    streamed, taken = dict(from_here), dict(to_here)
    for name, path in {**from_here, **to_here}.items():
        try:
            epochs = known[name].now
        except OSError:
            continue
        if epochs.promised:
            leads = epochs.may_lead(host_id)
            (taken if leads else streamed).pop(name, None)
            (streamed if leads else taken)[name] = path
    return streamed, taken


def check_no_epoch(name: str, kept: KeptEpochs) -> None:
    """Does nothing where the file of the cluster says who leads a queue.

    Raises:
        Refused: it has had a promotion.
        OSError, QueueDamaged: that cannot be read.
    """
    epochs = kept.now
    if epochs.promised:
        raise Refused(
            f"queue {name!r} stays with host {epochs.promised_to}, which leads it in epoch"
            f" {epochs.promised}: cqrepl promote, there where it is to go"
        )
