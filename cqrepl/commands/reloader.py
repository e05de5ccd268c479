"""A running host reads the file of its cluster again, and takes on what has changed.

What cannot be changed while it runs is told with its key, and stays as it is. With a file that is
wrong, or a new queue that cannot be opened, all of it does.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from cqrepl.commands.config import Options, plan
from cqrepl.config.hostplan import HostPlan
from cqrepl.config.planchanges import NewValue, PlanChanges, changes_between, merged
from cqrepl.console import exitcodes
from cqrepl.net.threads import in_thread
from cqrepl.replicator.host import Host
from cqrepl.status.controlsocket import Values

_logger: Final = logging.getLogger(__name__)


class Reloader:
    """Knows by which plan a host runs.

    Args:
        path: of the file.
        options: of the command that runs the host.
        made: the plan that it was started with.
    """

    def __init__(self, path: Path, options: Options, made: HostPlan) -> None:
        self._path = path
        self._options = options
        self._plan = made

    async def reload(self, host: Host) -> Values:
        """Reads the file and has the host follow it; what has changed, as the answer to the verb.

        Raises:
            ConfigError: the file is wrong; nothing was changed.
            QueueError, OSError, Refused: as `Host.change`; nothing was changed.
        """
        new = await in_thread(partial(plan, self._path, self._options))
        found = changes_between(self._plan, new)
        then = merged(self._plan, new)
        await host.change(then.settings)
        self._plan = then
        lines = list(_lines(found)) or ["nothing has changed"]
        for line in lines:
            _logger.info("by operator: %s", line)
        code = exitcodes.STOPPED if found.restart else exitcodes.OK
        return _fields(found) | {"said": lines, "code": code}


def _lines(found: PlanChanges) -> Iterator[str]:
    for name, path in found.sources.items():
        yield f"queue {name!r} is added: source, {path}"
    for name, path in found.sinks.items():
        yield f"queue {name!r} is added: sink, {path}"
    for name in found.removed:
        yield f"queue {name!r} is removed"
    for name, value in found.values.items():
        yield f"{name} is {_shown(value.new)}, was {_shown(value.old)}"
    for name, value in found.restart.items():
        yield f"needs a restart: {name} stays {_shown(value.old)}, to be {_shown(value.new)}"


def _shown(value: str) -> str:
    return value or "unset"


def _fields(found: PlanChanges) -> Values:
    added = {name: {"role": "source", "path": str(path)} for name, path in found.sources.items()}
    added |= {name: {"role": "sink", "path": str(path)} for name, path in found.sinks.items()}
    return {
        "added": added,
        "removed": list(found.removed),
        "changed": _values(found.values),
        "restart": _values(found.restart),
    }


def _values(found: Mapping[str, NewValue]) -> dict[str, dict[str, str]]:
    return {name: {"from": each.old, "to": each.new} for name, each in found.items()}
