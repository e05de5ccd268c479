"""Queues that a file names by a pattern, as `"prices-*": {masterId: 1}`.

Each directory below a base path of the host whose name fits is a queue of that name. So a host has
the queues that it has a directory for: no name, and no path, comes from another host. A queue that
the file names itself goes before a pattern, the first pattern before others.
"""

import os
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from cqrepl.config.clusterfile import ClusterConfig, QueueEntry
from cqrepl.config.valuekinds import HOST_ID_SIGN
from cqrepl.replicator.queuestate.wirenames import check_name

_BASES: Final = ("baseSourcePath", "baseSinkPath")


def with_patterns(
    config: ClusterConfig, host_id: int, kept: Set[str] = frozenset()
) -> ClusterConfig:
    """The cluster with a queue for each directory that fits a pattern; in any thread.

    Args:
        kept: names of queues that the host has already, which need no directory.
    """
    if not config.patterns:
        return config
    queues = dict(config.queues)
    taken = {os.path.normpath(each.path) for each in queues.values()}
    for name in sorted({*_names(config, host_id), *kept}):
        entry = _fitting(config, name)
        if entry is not None and name not in queues and name not in taken:
            queues[name] = replace(entry, name=name, path=Path(name))
    return replace(config, queues=queues)


def new_names(config: ClusterConfig, host_id: int, known: Set[str]) -> bool:
    """True where there is a directory of a queue that is not known yet; in any thread."""
    return bool(with_patterns(config, host_id).queues.keys() - known)


def bases(config: ClusterConfig, host_id: int) -> tuple[Path, ...]:
    """The base paths of a host, each once."""
    found = [config.context[each].value or config.context["basePath"].value for each in _BASES]
    paths = [Path(str(each).replace(HOST_ID_SIGN, str(host_id))) for each in found]
    return tuple(dict.fromkeys(paths))


def _fitting(config: ClusterConfig, name: str) -> QueueEntry | None:
    return next((each for each in config.patterns if fnmatchcase(name, each.name)), None)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):  # a link that leads to itself is no directory
        return entry.is_dir()
    return False


def _names(config: ClusterConfig, host_id: int) -> Iterator[str]:
    """Names of directories that can be names of queues."""
    for base in bases(config, host_id):
        try:
            with os.scandir(base) as entries:
                found = [each.name for each in entries if _is_dir(each)]
        except OSError:
            continue  # there is none yet, or it is away: the next look finds it
        for name in found:
            try:
                check_name(name)
            except ValueError:
                continue
            yield name
