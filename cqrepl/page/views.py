"""Makes the pages of a host from a frozen sample. In any thread."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from cqrepl.console.units import format_bytes
from cqrepl.page.alarms import Alarm
from cqrepl.page.hostlook import HostLook
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.write.retention import Policy, plan

_WIDE: Final = 120
_HIGH: Final = 24
_HOST_HIGH: Final = 44
_PEERS_SHOWN: Final = 20
Kept = Mapping[str, Sequence[tuple[float, int]]]

_pages: Final = Environment(
    loader=PackageLoader("cqrepl.page"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    auto_reload=False,
)


def host_page(sample: HostLook, alarms: Iterable[Alarm], kept: Kept) -> str:
    """The page of the whole host."""
    host = sample.host
    return _pages.get_template("host.html").render(
        title=f"host {host['host']}",
        host=host,
        alarms=sorted(alarms),
        rows=[row for queue in host["queues"] for row in _rows(queue, kept)],
        topology=_topology(host),
    )


def queue_page(sample: HostLook, name: str) -> str | None:
    """The page of one queue; None where there is none of this name."""
    queues = [each for each in sample.host["queues"] if each["name"] == name]
    if not queues:
        return None
    files, trouble = _files(queues[0].get("path"))
    return _pages.get_template("queue.html").render(
        title=f"queue {name}",
        host=sample.host,
        queues=[{"path": None, "sinks": ()} | dict(each) for each in queues],
        files=files,
        trouble=trouble,
    )


def login_page(*, is_wrong: bool) -> str:
    """The form that asks for the token."""
    return _pages.get_template("login.html").render(is_wrong=is_wrong)


def _rows(queue: Mapping[str, Any], kept: Kept) -> Iterator[dict[str, Any]]:
    looks = kept.get(queue["name"], ())
    lines = {
        "rate_line": _spark([rate for rate, _ in looks], f"rate of {queue['name']}"),
        "lag_line": _spark([float(lag) for _, lag in looks], f"lag of {queue['name']}"),
    }
    start = {"name": queue["name"], "role": queue["role"], "last": queue.get("last") or "-"}
    sinks = queue.get("sinks") or ()
    if not sinks or queue["state"] != "live":
        state, lag = str(queue["state"]), queue.get("lag")
        master = queue.get("master")
        peer = "-" if master is None else f"from host {master}"
        yield start | lines | {"state": state, "mood": _mood(state), "peer": peer, "lag": _n(lag)}
        return
    for sink in sinks:
        state = str(sink["state"])
        peer = f"to host {sink['host']}"
        yield (
            start
            | lines
            | {
                "state": state,
                "mood": _mood(state),
                "peer": peer,
                "lag": _n(sink["lag"]),
            }
        )


def _mood(state: str) -> str:
    return "good" if state == "live" else "bad" if state.startswith("stopped") else ""


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


def _spark(values: Sequence[float], title: str) -> Markup:
    """A line of values as SVG; empty for none."""
    if len(values) < 2:
        return Markup("")
    most = max(values) or 1.0
    step = _WIDE / (len(values) - 1)
    points = " ".join(
        f"{nth * step:.1f},{_HIGH - 2 - value / most * (_HIGH - 4):.1f}"
        for nth, value in enumerate(values)
    )
    return Markup(
        '<svg width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">'
        '<polyline points="{3}"/></svg>'
    ).format(_WIDE, _HIGH, f"{title}, at most {most:,.0f}", points)


def _topology(host: Mapping[str, Any]) -> Markup:
    """Hosts, and arrows with the lag of what goes to them."""
    peers = host["peers"][:_PEERS_SHOWN]
    if not peers:
        return Markup("")
    high = max(1, len(peers)) * _HOST_HIGH + 8
    parts = [
        Markup('<svg width="520" height="{0}" viewBox="0 0 520 {0}" role="img"').format(high),
        Markup(' aria-label="This host, other hosts, and what goes between them">'),
        Markup('<rect x="4" y="4" width="120" height="34" rx="6"/>'),
        Markup('<text x="16" y="26">host {}</text>').format(host["host"]),
    ]
    for nth, peer in enumerate(peers):
        y = 4 + nth * _HOST_HIGH
        dash = "" if peer["state"] == "connected" else Markup(' stroke-dasharray="4 4"')
        parts += [
            Markup('<rect x="392" y="{}" width="120" height="34" rx="6"/>').format(y),
            Markup('<text x="404" y="{}">host {}</text>').format(y + 22, peer["host"]),
            Markup('<path d="M124 21 C 240 21, 260 {0}, 392 {0}"{1}/>').format(y + 17, dash),
            Markup('<text x="250" y="{}">{}</text>').format(y + 12, _between(host, peer)),
        ]
    return Markup("").join([*parts, Markup("</svg>")])


def _between(host: Mapping[str, Any], peer: Mapping[str, Any]) -> str:
    if peer["state"] != "connected":
        return str(escape(peer["state"]))
    lags = [
        sink["lag"]
        for queue in host["queues"]
        for sink in queue.get("sinks", ())
        if sink["host"] == peer["host"]
    ]
    known = [each for each in lags if each is not None]
    return f"lag {sum(known):,}" if lags else ""
