"""The status of a host as a page for people: its peers, its queues, and the reach of each sink."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cqrepl.console.units import format_size, plural

_STATE_SHOWN: Final = 120  # letters of a state where it has one line
_STATE_WIDE: Final = 80  # letters of one of its lines where it has several
_BEGINNING: Final = "0x0"  # where an epoch starts that was begun on an empty queue
_HEAD: Final = ("queue", "role", "last index", "peer", "acknowledged", "lag", "state")
Values = Mapping[str, Any]  # as `status.snapshot` makes them
_SORTS: Final = ("board", "persist", "grid")  # of services, each with the key of its name
_COUNTED: Final = ("tasks", "workers", "storages", "items", "partitions")


def page(host: Values) -> Iterator[str]:
    """The lines of one host."""
    where = f", listens at {host['listens']}" if host["listens"] else ""
    yield f"host {host['host']}  process {host['process']}{where}"
    for peer in host["peers"]:
        name = peer["name"] or f"host {peer['host']}"
        limit = peer.get("limit")
        limited = f", at most {format_size(limit)}/s" if limit else ""
        tls = peer.get("tls")
        how = "" if tls is None or not _has_tls(host) else f", {tls}"
        yield f"  {name}: {peer['state']}{limited}{how}"
    if _has_tls(host) and host["tls"]["warning"]:
        yield f"  {host['tls']['warning']}"
    yield from table([_HEAD, *_rows(host)])
    yield from (_epoch(queue) for queue in host["queues"] if queue.get("epoch") is not None)
    yield from (_election(queue) for queue in host["queues"] if queue.get("election"))
    yield from (_service(name, each) for name, each in host.get("services", {}).items())
    for queue in host["queues"]:
        yield from _kept_back(queue)
        if queue.get("returned"):
            count = plural(queue["returned"], "excerpt")
            yield f"queue {queue['name']}: {count} that it lacked came back from its copies"


def _has_tls(host: Values) -> bool:
    return host.get("tls") is not None


def _kept_back(queue: Values) -> Iterator[str]:
    """Lines on what counts for less than it could, here and at sinks, and the reasons."""
    if queue["role"] == "source" and queue.get("unproved"):
        yield f"queue {queue['name']}: here {queue['unproved']}"
    if queue.get("unknown"):
        waits = plural(queue["unknown"], "wait")
        yield f"queue {queue['name']}: {waits} ended without knowing whether hosts have it"
    for level, why in queue.get("kept_back", {}).items():
        yield f"queue {queue['name']}: {level} is kept back here: {why}"
    for sink in queue.get("sinks", ()):
        for level, why in sink.get("kept_back", {}).items():
            yield f"queue {queue['name']}: host {sink['host']} keeps {level} back: {why}"


def _epoch(queue: Values) -> str:
    """The line that names the leader of a queue which has had a promotion."""
    epoch = queue["epoch"]
    leads = "this host leads it" if epoch["leads"] else f"host {epoch['leader']} leads it"
    since = (
        " from its beginning on" if epoch["start"] == _BEGINNING else f" from {epoch['start']} on"
    )
    if epoch["start"] is None:
        since = ", promised, and not begun as far as is known here"
    return f"queue {queue['name']}: epoch {epoch['number']}: {leads}{since}"


def _election(queue: Values) -> str:
    """The line that tells how the leader of a queue is elected, and what keeps it from that."""
    election = queue["election"]
    members = ", ".join(map(str, election["members"]))
    said = [f"hosts {members} elect its leader, by {election['by']}"]
    if election["lease_left"] is not None:
        hear = ", ".join(map(str, election["hear"])) or "none"
        left = f"{election['lease_left']:.1f} s"
        said.append(f"heard by {hear}: the lease of this host holds for {left}")
    else:
        leader = election["leader"]
        said.append("no leader is heard" if leader is None else f"host {leader} was heard last")
    if election["cannot_elect"]:
        hosts = ", ".join(map(str, election["cannot_elect"]))
        said.append(f"off, as host {hosts} cannot elect, or has another leaseTimeout")
    if election["refused"]:
        said.append(f"not elected here: {election['refused']}")
    if election["on_role"]:
        said.append(f"onRole failed: {election['on_role']}")
    return f"queue {queue['name']}: {'; '.join(said)}"


def _service(name: str, service: Values) -> str:
    """The line that tells how the service of a queue does."""
    sort = next(each for each in _SORTS if each in service)
    if service["fault"]:
        return f"queue {name}: {sort} {service[sort]} has ended here: {service['fault']}"
    serves = "served here" if service["serves"] else "not served here"
    counts = ", ".join(plural(service[each], each[:-1]) for each in _COUNTED if each in service)
    saved = service["checkpoint"] or "none yet"
    return f"queue {name}: {sort} {service[sort]}, {serves}: {counts}; checkpoint {saved}"


def _rows(host: Values) -> Iterator[tuple[str, ...]]:
    for queue in host["queues"]:
        start = (queue["name"], queue["role"], queue.get("last") or "-")
        if queue["role"] == "sink":
            master = "-" if queue["master"] is None else f"host {queue['master']}"
            lag = "unknown" if queue.get("lag") is None else f"{queue['lag']:,}"
            yield from _whole(*start, master, "-", lag, queue["state"])
        elif not queue["sinks"] or queue["state"] != "live":
            yield from _whole(*start, "-", "-", "-", queue["state"])
        else:
            for sink in queue["sinks"]:
                lag = "?" if sink["lag"] is None else f"{sink['lag']:,}"
                acknowledged = sink["acknowledged"] or "-"
                if sink.get("claims"):
                    acknowledged += f", claims {sink['claims']}"
                yield from _whole(*start, f"host {sink['host']}", acknowledged, lag, sink["state"])
                start = ("", "", "")


def _whole(*row: str) -> Iterator[tuple[str, ...]]:
    """A row, and further ones that have the rest of a state that is long. No word is cut: a state
    may name a command."""
    *start, state = row
    lines = textwrap.wrap(state, _STATE_WIDE, break_long_words=False, break_on_hyphens=False)
    for line in lines or [""]:
        yield (*start, line)
        start = [""] * len(start)


def short(state: str) -> str:
    """A state on one line, and not too long for a table."""
    line = " ".join(state.split())
    return line if len(line) <= _STATE_SHOWN else f"{line[:_STATE_SHOWN]}..."


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines with their cells below each other."""
    wide = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, wide, strict=True))
        yield "  ".join(cells).rstrip()
