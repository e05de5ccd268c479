"""The table of a running host on a terminal: each queue with its peers, lag and rate."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cqrepl.commands.statuspage import short, table
from cqrepl.console.units import format_bytes, plural

_HEAD: Final = ("queue", "role", "peer", "last index", "lag", "excerpts", "bytes", "rate", "state")
Values = Mapping[str, Any]  # as `status.snapshot` makes them


class LiveTable:
    """Makes the lines of one look after the other."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}  # excerpts of each queue at the last look
        self._then: float | None = None

    def lines(self, host: Values, now: float, rows_max: int) -> list[str]:
        """The lines of a look.

        Args:
            now: in seconds, of a clock that only goes forward.
            rows_max: so many lines at most.
        """
        seconds = 0.0 if self._then is None else now - self._then
        rows = list(self._rows(host, seconds))
        self._then = now
        self._before = {each["name"]: each.get("excerpts", 0) for each in host["queues"]}
        room = max(1, rows_max - 3)
        more = len(rows) - room
        lines = [_title(host), *table([_HEAD, *rows[:room]])]
        return [*lines, f"and {more:,} lines more"] if more > 0 else lines

    def _rows(self, host: Values, seconds: float) -> Iterator[tuple[str, ...]]:
        for queue in host["queues"]:
            excerpts = queue.get("excerpts", 0)
            gained = excerpts - self._before.get(queue["name"], excerpts)
            rate = f"{gained / seconds:,.0f}/s" if seconds > 0 else "-"
            done = (f"{excerpts:,}", format_bytes(queue.get("bytes", 0)), rate)
            last, state = queue.get("last") or "-", short(queue["state"])
            if queue["role"] == "sink":
                peer = "-" if queue["master"] is None else f"host {queue['master']}"
                yield (queue["name"], "sink", peer, last, "-", *done, state)
                continue
            name = queue["name"]
            for sink in queue["sinks"] or [{"host": None, "lag": 0, "state": queue["state"]}]:
                peer = "-" if sink["host"] is None else f"host {sink['host']}"
                lag = "?" if sink["lag"] is None else f"{sink['lag']:,}"
                shown = state if queue["state"] != "live" else short(sink["state"])
                yield (name, "source" if name else "", peer, last, lag, *done, shown)
                name, last, done = "", "", ("", "", "")


def _title(host: Values) -> str:
    here = sum(peer["state"] == "connected" for peer in host["peers"])
    queues = host["queues"]
    excerpts = sum(each.get("excerpts", 0) for each in queues)
    return (
        f"host {host['host']}: {here} of {plural(len(host['peers']), 'peer')} connected, "
        f"{plural(len(queues), 'queue')}, {plural(excerpts, 'excerpt')}"
    )
