"""Tells a host that runs on this machine what to do, and prints what it answers."""

from collections.abc import Mapping
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.console.exitcodes import BadArguments
from cqrepl.net.controlsocket import NotThere, ask
from cqrepl.net.rundirectory import known_hosts, usual_run_dir
from wire.text.terminal import one_line


def tell_host(
    name: str,
    run_dir: Path | None,
    host_id: int | None,
    request: Mapping[str, object],
    *,
    as_json: bool,
) -> int:
    """Has a host do something; the exit code.

    Args:
        name: how lines on stderr begin.
        host_id: None for the only one that runs here.
        request: the verb, as `do`, and what it is for.

    Raises:
        BadArguments: several hosts run here, and none is named.
    """
    directory = run_dir or usual_run_dir()
    if host_id is None:
        found = known_hosts(directory)
        if len(found) > 1:
            ids = ", ".join(map(str, found))
            raise BadArguments(f"several hosts run here ({ids}): --host-id expected")
        if not found:
            output.write_error(f"{name}: {directory}: no host runs here")
            return exitcodes.UNREACHABLE
        (host_id,) = found
    try:
        answer = ask(directory, host_id, request)
    except NotThere as error:
        output.write_error(f"{name}: {error}")
        return exitcodes.UNREACHABLE
    code = answer.pop("code", exitcodes.OK)
    if "error" in answer:
        output.write_error(f"{name}: {answer['error']}")
        return code if isinstance(code, int) and code else exitcodes.UNREACHABLE
    said = answer.pop("said", [])
    if as_json:
        output.write_text(output.json_line(answer))
    elif isinstance(said, list):
        output.write_text("".join(f"host {host_id}: {one_line(str(line))}\n" for line in said))
    output.flush()
    return code if isinstance(code, int) else exitcodes.OK
