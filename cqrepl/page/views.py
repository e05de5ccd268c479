"""Makes the pages of a host from a frozen sample. In any thread."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from cqrepl.console.units import format_bytes
from cqrepl.page.alarms import Alarm
from cqrepl.page.hostlook import HostLook
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.write.retention import Policy, plan
from cqrepl.status.queuetotals import table

RENEWED_S: Final = 5
_WIDE: Final = 96
_HIGH: Final = 24
_HOST_HIGH: Final = 44
_MAP_WIDE: Final = 320
_MILLION: Final = 1_000_000
_PEERS_SHOWN: Final = 20
Kept = Mapping[str, Sequence[tuple[float, int]]]

_pages: Final = Environment(
    loader=PackageLoader("cqrepl.page"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    auto_reload=False,
)
_pages.globals["renewed_s"] = RENEWED_S


def host_page(
    sample: HostLook, alarms: Iterable[Alarm], kept: Kept, *, is_still: bool = False
) -> str:
    """The page of the whole host.

    Args:
        is_still: it is not to renew itself.
    """
    host = sample.host
    return _pages.get_template("host.html").render(
        title=f"host {host['host']}",
        host=host,
        is_below=False,
        is_still=is_still,
        alarms=sorted(alarms),
        tiles=[*_tiles(sample)],
        rows=[row for queue in host["queues"] for row in _rows(queue, kept)],
        topology=_topology(host),
    )


def queue_page(sample: HostLook, name: str, *, is_still: bool = False) -> str | None:
    """The page of one queue; None where there is none of this name."""
    queues = [each for each in sample.host["queues"] if each["name"] == name]
    if not queues:
        return None
    files, trouble = _files(queues[0].get("path"))
    return _pages.get_template("queue.html").render(
        title=f"queue {name}",
        host=sample.host,
        is_below=True,
        is_still=is_still,
        queues=[_queue(each) for each in queues],
        files=files,
        trouble=trouble,
    )


def login_page(*, is_wrong: bool) -> str:
    """The form that asks for the token."""
    return _pages.get_template("login.html").render(is_wrong=is_wrong)


def _tiles(sample: HostLook) -> Iterator[tuple[str, str]]:
    """The few numbers that tell how the host does."""
    host = sample.host
    queues, peers = host["queues"], host["peers"]
    live = sum(each["state"] == "live" for each in queues)
    here = sum(each["state"] == "connected" for each in peers)
    lags = [each.get("lag") for each in queues if each["role"] == "sink"]
    lags += [sink["lag"] for each in queues for sink in each.get("sinks", ())]
    known = [each for each in lags if each is not None]
    yield "queues live", f"{live:,} of {len(queues):,}"
    yield "hosts connected", f"{here:,} of {len(peers):,}"
    yield "largest lag, excerpts", _counted(max(known)) if known else "-"
    yield "payload, all queues", _rate(sum(sample.rates.values()))
    if sample.disks:
        yield "free, fullest disk", f"{min(each.part_free for each in sample.disks.values()):.0%}"


def _queue(queue: Mapping[str, Any]) -> dict[str, Any]:
    """All that its page tells of a queue, in the words of a reader."""
    sinks = [dict(each) | {"lag_shown": _n(each["lag"])} for each in queue.get("sinks", ())]
    return {
        "role": queue["role"],
        "state": queue["state"],
        "path": queue.get("path"),
        "facts": [*_facts(queue)],
        "notes": [*_notes(queue)],
        "sinks": sinks,
    }


def _facts(queue: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "last index", queue.get("last") or "-"
    for name, counted in table():
        value = queue.get(name)
        if isinstance(value, int):
            is_bytes = counted.metric.endswith("_bytes")
            yield counted.label, format_bytes(value) if is_bytes else f"{value:,}"
        elif value is not None:
            yield from _times(counted.label, value)
    if queue["role"] == "sink":
        yield "comes from", "-" if queue["master"] is None else f"host {queue['master']}"
        yield "lag", _n(queue.get("lag"))
    epoch = queue.get("epoch")
    if epoch is not None:
        yield "epoch", f"{epoch['number']}"
        yield "leader", "this host" if epoch["leads"] else f"host {epoch['leader']}"


def _times(label: str, by_level: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The mean times that things took, by level; nothing of those that never happened."""
    for level, times in by_level.items():
        count = sum(times["counts"])
        if count:
            yield f"{label}, {level}, mean", f"{times['seconds'] / count * 1000:,.2f} ms"


def _notes(queue: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on what counts for less than it could, and why."""
    if queue.get("unproved"):
        yield f"not proved: {queue['unproved']}"
    for level, why in queue.get("kept_back", {}).items():
        yield f"{level} is kept back here: {why}"
    for sink in queue.get("sinks", ()):
        for level, why in sink.get("kept_back", {}).items():
            yield f"host {sink['host']} keeps {level} back: {why}"
    election = queue.get("election")
    if election:
        heard = election["leader"]
        leader = "no leader is heard" if heard is None else f"host {heard} leads"
        members = ", ".join(map(str, election["members"]))
        yield f"hosts {members} elect its leader, by {election['by']}: {leader}"
        if election["refused"]:
            yield f"not elected here: {election['refused']}"


def _rows(queue: Mapping[str, Any], kept: Kept) -> Iterator[dict[str, Any]]:
    """The rows of a queue, one a sink; only the first one has its lines of the last hour."""
    looks = kept.get(queue["name"], ())
    row = {
        "name": queue["name"],
        "role": queue["role"],
        "last": queue.get("last") or "-",
        "rate_line": _line([rate for rate, _ in looks], f"rate of {queue['name']}", _rate),
        "lag_line": _line([lag for _, lag in looks], f"lag of {queue['name']}", _whole),
    }
    sinks = queue.get("sinks") or ()
    if not sinks or queue["state"] != "live":
        master = queue.get("master")
        peer = "-" if master is None else f"from host {master}"
        yield row | _stands(queue["state"], peer, queue.get("lag"))
        return
    for sink in sinks:
        yield row | _stands(sink["state"], f"to host {sink['host']}", sink["lag"])
        row = row | {"rate_line": "", "lag_line": ""}


def _stands(state: str, peer: str, lag: int | None) -> dict[str, str]:
    return {"state": str(state), "mood": _mood(str(state)), "peer": peer, "lag": _n(lag)}


def _rate(bytes_per_s: float) -> str:
    return f"{format_bytes(round(bytes_per_s))}/s"


def _whole(number: float) -> str:
    return f"{number:,.0f}"


def _counted(number: int) -> str:
    if number < _MILLION:
        return f"{number:,}"
    if number < 1000 * _MILLION:
        return f"{number / _MILLION:.1f} million"
    return f"{number / _MILLION / 1000:,.1f} billion"


def _mood(state: str) -> str:
    return "good" if state == "live" else "bad" if state.startswith(("stopped", "away")) else ""


def _n(lag: int | None) -> str:
    return "?" if lag is None else f"{lag:,}"


def _files(path: str | None) -> tuple[list[dict[str, str]], str]:
    if path is None:
        return [], "the queue is not open"
    try:
        with Queue.open(Path(path)) as queue:
            found = plan(queue.cycles, Policy())
    except (QueueError, OSError) as error:
        return [], str(error)
    return [
        {
            "name": each.path.name,
            "bytes": format_bytes(each.size_bytes),
            "why": "; ".join(each.reasons) or "may go",
        }
        for each in found
    ], ""


def _line(values: Sequence[float], title: str, shown: Callable[[float], str]) -> Markup:
    """A line of values as SVG, and the last one of them as text; empty for none."""
    if len(values) < 2:
        return Markup("")
    most = max(values) or 1.0
    step = _WIDE / (len(values) - 1)
    points = " ".join(
        f"{nth * step:.1f},{_HIGH - 2 - value / most * (_HIGH - 4):.1f}"
        for nth, value in enumerate(values)
    )
    return Markup(
        '<span>{4} <svg width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img"'
        ' aria-label="{2}">'
        '<polyline points="{3}"/></svg></span>'
    ).format(_WIDE, _HIGH, f"{title}, at most {shown(max(values))}", points, shown(values[-1]))


def _topology(host: Mapping[str, Any]) -> Markup:
    """Hosts, and arrows with the lag of what goes to them. As wide as a telephone."""
    peers = host["peers"][:_PEERS_SHOWN]
    if not peers:
        return Markup("")
    high = len(peers) * _HOST_HIGH + 8
    parts = [
        Markup('<svg width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img"').format(
            _MAP_WIDE, high
        ),
        Markup(' aria-label="This host, other hosts, and what goes between them">'),
        Markup('<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="8" refY="4"'),
        Markup(' markerUnits="userSpaceOnUse"'),
        Markup(' orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 Z"/></marker></defs>'),
        Markup('<rect x="2" y="4" width="80" height="34" rx="6"/>'),
        Markup('<text x="12" y="26">host {}</text>').format(host["host"]),
    ]
    for nth, peer in enumerate(peers):
        y = 4 + nth * _HOST_HIGH
        says, way = _between(host, peer)
        is_here = peer["state"] == "connected"
        kind = Markup("") if is_here else Markup(' class="bad" stroke-dasharray="4 4"')
        tips = Markup("").join(Markup(' marker-{}="url(#tip)"').format(each) for each in way)
        parts += [
            Markup('<rect x="238" y="{}" width="80" height="34" rx="6"/>').format(y),
            Markup('<text x="248" y="{}">host {}</text>').format(y + 22, peer["host"]),
            Markup('<path d="M82 21 C 120 21, 90 {0}, 130 {0} L 238 {0}"{1}{2}/>').format(
                y + 17, kind, tips
            ),
            Markup('<text x="188" y="{}" text-anchor="middle"{}>{}</text>').format(
                y + 12, "" if is_here else Markup(' class="bad"'), says
            ),
        ]
    parts.append(Markup("</svg>"))
    if len(host["peers"]) > len(peers):
        more = len(host["peers"]) - len(peers)
        parts.append(Markup('<p class="soft">and {} more, in the table.</p>').format(more))
    return Markup("").join(parts)


def _between(host: Mapping[str, Any], peer: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    """The words on an arrow, and at which of its ends it has a tip."""
    if peer["state"] != "connected":
        return str(peer["state"]), ()
    queues = host["queues"]
    lags = [
        sink["lag"]
        for queue in queues
        for sink in queue.get("sinks", ())
        if sink["host"] == peer["host"]
    ]
    taken = any(each.get("master") == peer["host"] for each in queues)
    known = [each for each in lags if each is not None]
    way = [*(["end"] if lags else []), *(["start"] if taken else [])]
    return f"lag {_counted(sum(known))}" if known else "lag ?" if lags else "", way
