"""Keeps the schemas that a host's file names in the directories of its queues.

There every command and program finds a schema that is asked about the queue, on a host that runs
or not. A queue that is made later gets its schema within seconds.
"""

import logging
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

import trio

from cqrepl.net.threads import in_thread
from cqrepl.queue.files.queuedirectory import holds_queue
from cqrepl.queue.files.sidefile import replace_side_file
from cqrepl.typed.schemafile import KEPT_NAME

LOOK_SECONDS: Final = 5.0
_logger = logging.getLogger(__name__)


class QueueSchemas:
    """The schemas of one host.

    Args:
        texts: by the names of queues, or patterns; a name goes before a pattern.
        paths: the directories of its queues, by name, as they are now.
        look_seconds: from one look to the next.
    """

    def __init__(
        self,
        texts: Mapping[str, str],
        paths: Callable[[], Mapping[str, Path]],
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._texts = texts
        self._paths = paths
        self._look_seconds = look_seconds
        self._said: dict[str, str] = {}  # what was said last of a queue

    async def run(self) -> None:
        """Looks for ever; returns at once without a schema."""
        while self._texts:
            for name, path in dict(self._paths()).items():
                text = self.text_of(name)
                if text is not None:
                    await self._keep(name, path, text)
            await trio.sleep(self._look_seconds)

    def text_of(self, name: str) -> str | None:
        """The schema of a queue; None where it has none."""
        fits = (text for queues, text in self._texts.items() if fnmatchcase(name, queues))
        return self._texts.get(name, next(fits, None))

    async def _keep(self, name: str, path: Path, text: str) -> None:
        try:
            if await in_thread(partial(kept, path, text)):
                _logger.info("queue %r: its schema is kept in %s", name, path / KEPT_NAME)
            self._said.pop(name, None)
        except OSError as error:
            if self._said.get(name) != str(error):
                _logger.warning("queue %r: its schema cannot be kept: %s", name, error)
            self._said[name] = str(error)


def kept(path: Path, text: str) -> bool:
    """Writes the schema of a queue; false where it is there, or the queue is not there yet."""
    file = path / KEPT_NAME
    if not holds_queue(path) or (file.is_file() and file.read_text(errors="replace") == text):
        return False
    replace_side_file(file, text.encode(), is_synced=True)
    return True
