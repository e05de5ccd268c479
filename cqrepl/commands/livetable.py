"""The table of a running host on a terminal: each queue with its peers, lag and rate.

The lag of a copy is told in excerpts, in bytes and in time. The bytes are those of as many excerpts
as are usual in this run, as the ones that are missing are not read for it; the time is how long ago
the oldest of them was first seen here, to half a second and not before this run.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cqrepl.commands.statuspage import short, table
from cqrepl.console.units import format_bytes, plural

_HEAD: Final = ("queue", "role", "peer", "last index", "lag", "bytes", "time", "rate", "state")
_SEEN_MAX: Final = 512  # ends of a queue that are remembered; more of them only less finely
Values = Mapping[str, Any]  # as `status.snapshot` makes them


class LiveTable:
    """Makes the lines of one look after the other."""

    def __init__(self) -> None:
        # excerpts of each queue, by name and role, at the last look
        self._before: dict[tuple[str, str], int] = {}
        self._then: float | None = None
        self._ends: dict[str, _Ends] = {}

    def lines(self, host: Values, now: float, rows_max: int) -> list[str]:
        """The lines of a look.

        Args:
            now: in seconds, of a clock that only goes forward.
            rows_max: so many lines at most.
        """
        seconds = 0.0 if self._then is None else now - self._then
        rows = list(self._rows(host, now, seconds))
        self._then = now
        self._before = {_key(each): each.get("excerpts", 0) for each in host["queues"]}
        room = max(1, rows_max - 3)
        more = len(rows) - room
        lines = [_title(host), *table([_HEAD, *rows[:room]])]
        return [*lines, f"and {more:,} lines more"] if more > 0 else lines

    def _rows(self, host: Values, now: float, seconds: float) -> Iterator[tuple[str, ...]]:
        for queue in host["queues"]:
            excerpts = queue.get("excerpts", 0)
            gained = excerpts - self._before.get(_key(queue), excerpts)
            rate = f"{gained / seconds:,.0f}/s" if seconds > 0 else "-"
            last, state = queue.get("last") or "-", short(queue["state"])
            if queue["role"] == "sink":
                peer = "-" if queue["master"] is None else f"host {queue['master']}"
                behind = "-" if queue.get("lag") is None else f"{queue['lag']:,}"
                yield (queue["name"], "sink", peer, last, behind, "-", "-", rate, state)
                continue
            name, ends = queue["name"], self._ends.setdefault(queue["name"], _Ends())
            ends.see(_index_of(queue.get("last")), now)
            for sink in queue["sinks"] or [{"host": None, "lag": 0, "state": queue["state"]}]:
                peer = "-" if sink["host"] is None else f"host {sink['host']}"
                lag = _lag(queue, sink, ends.seconds_behind(_held(queue, sink), now))
                shown = state if queue["state"] != "live" else short(sink["state"])
                yield (name, "source" if name else "", peer, last, *lag, rate, shown)
                name, last, rate = "", "", ""
            ends.forget(min((_held(queue, sink) for sink in queue["sinks"]), default=0))


class _Ends:
    """The ends that a queue had, look by look."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []  # when each was seen first, the oldest one first

    def see(self, end: int, now: float) -> None:
        """Notes the end that the queue has at this look.

        Args:
            now: in seconds, of a clock that only goes forward.
        """
        if end > (self._seen[-1][1] if self._seen else 0):
            self._seen.append((now, end))
        if len(self._seen) > _SEEN_MAX:
            del self._seen[1:-1:2]

    def seconds_behind(self, held: int, now: float) -> float:
        """The seconds for which a copy has lacked its first missing excerpt; 0 where it has all."""
        missing = (at for at, end in self._seen if end > held)
        return now - next(missing, now)

    def forget(self, held: int) -> None:
        """All copies have everything up to this index."""
        self._seen = [each for each in self._seen if each[1] > held] or self._seen[-1:]


def _lag(queue: Values, sink: Values, seconds: float) -> tuple[str, str, str]:
    """Excerpts, bytes and time."""
    lag, excerpts = sink["lag"], queue.get("excerpts", 0)
    if lag is None:
        return "?", "?", _time(seconds)
    if not lag:
        return "0", "0", "0"
    size = f"~{format_bytes(round(lag * queue['bytes'] / excerpts))}" if excerpts else "?"
    return f"{lag:,}", size, _time(seconds)


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    return f"{seconds / 60:.0f}min" if seconds < 5400 else f"{seconds / 3600:.0f}h"


def _held(queue: Values, sink: Values) -> int:
    """Up to which index a sink has a queue, as far as is known."""
    if sink["lag"] is None:
        return _index_of(sink.get("acknowledged"))
    return max(_index_of(queue.get("last")) - int(sink["lag"]), 0)


def _index_of(text: str | None) -> int:
    return 0 if text is None else int(text, 16)


def _key(queue: Values) -> tuple[str, str]:
    """One that is passed on stands there in both roles."""
    return queue["name"], queue["role"]


def _title(host: Values) -> str:
    here = sum(peer["state"] == "connected" for peer in host["peers"])
    queues = host["queues"]
    excerpts = sum(each.get("excerpts", 0) for each in queues)
    return (
        f"host {host['host']}: {here} of {plural(len(host['peers']), 'peer')} connected, "
        f"{plural(len(queues), 'queue')}, {plural(excerpts, 'excerpt')}"
    )
