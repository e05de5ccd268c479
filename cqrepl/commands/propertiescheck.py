"""Shows what a Java properties file sets here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cqrepl.console import exitcodes, output
from cqrepl.persist.properties import PersistProperties, load_properties
from wire.text.terminal import one_line

_SHOWN: Final = 120


def check_properties(path: Path, *, as_json: bool) -> int:
    """Prints each property with its effect, and what they come to; the exit code."""
    found = load_properties(path)
    if as_json:
        output.write_text(output.json_line(_fields(found)))
    else:
        for line in _lines(found):
            output.write_text(f"{one_line(line)}\n")
    output.flush()
    return exitcodes.OK


def _lines(found: PersistProperties) -> Iterator[str]:
    for use in found.uses:
        entry = use.entry
        yield f"{found.path}:{entry.line}: {entry.name}={entry.text[:_SHOWN]}: {use.says}"
    if found.passed_over:
        others = "property" if found.passed_over == 1 else "properties"
        yield f"{found.path}: {found.passed_over} {others} of the engine: not about replication"
    mode = "sync" if found.is_synchronous else "async"
    yield f"defaults: {{mode: {mode}, ackTimeout: {found.timeout_ms}ms}}"
    if not found.is_synchronous and found.timeout_ms:
        yield "ackTimeout has no effect on storages by default: their mode is async"
    for name, said in (("window", found.window), ("pauser", found.pauser)):
        if said is not None:
            yield f"{name}: {said}"
    for session, timeout_ms in sorted(found.session_timeouts_ms.items()):
        whose = f"session {session}" if session else "sessions"
        waits = f"wait {timeout_ms}ms" if timeout_ms else "asynchronous"
        yield f"{whose}: {waits}"


def _fields(found: PersistProperties) -> dict[str, object]:
    return {
        "mode": "sync" if found.is_synchronous else "async",
        "ackTimeoutMs": found.timeout_ms,
        "window": found.window,
        "pauser": found.pauser,
        "sessions": dict(found.session_timeouts_ms),
        "properties": [
            {
                "line": use.entry.line,
                "name": use.entry.name,
                "text": use.entry.text,
                "value": use.value,
                "says": use.says,
                "hasEffect": use.has_effect,
            }
            for use in found.uses
        ],
        "passedOver": found.passed_over,
    }
