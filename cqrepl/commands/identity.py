"""Prints which queue a directory holds, and what that was before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cqrepl.console import exitcodes, output
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.format.identity import Identity

_NONE: Final = "none"


def print_identity(path: Path, *, as_json: bool) -> int:
    """Prints the identity of a queue; the exit code."""
    own = _identity_of(path)
    output.write_text(
        _json({"path": str(path), "identity": own}) if as_json else _shown(own) + "\n"
    )
    output.flush()
    return exitcodes.OK


def print_adoption(
    path: Path,
    wanted: Identity | None,
    other: Path | None,
    *,
    is_applied: bool,
    as_json: bool,
) -> int:
    """Gives a queue another identity, or says that it would; the exit code.

    Args:
        wanted: the identity; None for that of the queue in `other`.

    Raises:
        QueueError: one of them is no queue, the other one has no identity, or none can be kept.
        OSError: it may not be on the disk.
    """
    if wanted is None:
        assert other is not None
        wanted = _identity_of(other)
        if wanted is None:
            raise QueueError("a queue with an identity expected, this one has none", path=other)
    with Queue.open(path) as queue:
        own = queue.identity.load()
        if is_applied and own != wanted and not queue.identity.replace(wanted):
            raise QueueError("its table store cannot be written, or has no room", path=path)
    if as_json:
        fields = {"path": str(path), "identity": own, "adopted": wanted, "applied": is_applied}
        output.write_text(_json(fields))
    else:
        output.write_text(f"{path}: {_text(own, wanted, is_applied=is_applied)}\n")
    output.flush()
    return exitcodes.OK


def _identity_of(path: Path) -> Identity | None:
    with Queue.open(path) as queue:
        return queue.identity.load()


def _text(own: Identity | None, wanted: Identity, *, is_applied: bool) -> str:
    if own == wanted:
        return f"the identity is {wanted} already"
    if is_applied:
        return f"the identity is {wanted}; before it was {_shown(own)}"
    return f"the identity {_shown(own)} to become {wanted}, nothing was changed: --apply does it"


def _shown(identity: Identity | None) -> str:
    return _NONE if identity is None else identity


def _json(fields: Mapping[str, object]) -> str:
    return output.json_line({"v": 1, **fields})
