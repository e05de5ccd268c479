"""Describes for people what goes into quarantine, or has gone there."""

from cqrepl.console.units import plural
from cqrepl.queue.format.index import format_index
from cqrepl.queue.quarantine import Quarantine


def text_of(going: Quarantine, shift: int, *, is_applied: bool) -> str:
    """The lines for people that tell what goes, or has gone.

    Args:
        shift: number of bits of an index that hold the sequence.
    """
    lines = []
    for each in going.cycles:
        fields = each.fields(shift)
        count = "what can be read" if each.excerpts is None else plural(each.excerpts, "excerpt")
        span = f" {fields['first']}..{fields['last']}" if each.excerpts else ""
        kept = f", {each.kept} before stay" if each.kept else ""
        lines.append(f"{each.path.name}: {count}{span}{kept}")
    for host, levels in going.hosts.items():
        marks = ", ".join(f"{level} {format_index(at)}" for level, at in levels.items())
        lines.append(f"host {host} knows of it: {marks}")
    what = "everything" if going.excerpts is None else plural(going.excerpts, "excerpt")
    where = f"{going.path}: {what} to {going.folder}"
    if is_applied:
        lines.append(f"{where}; the next index is {format_index(going.end)}")
    else:
        lines.append(f"{where} to be taken, nothing was changed: --apply does it")
    return "".join(line + "\n" for line in lines)
