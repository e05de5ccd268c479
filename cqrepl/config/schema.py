"""All keys of a configuration, as JSON Schema and for people."""

from collections.abc import Iterator, Mapping
from typing import Final

from cqrepl.config.keykinds import REQUIRED, Key, Section
from cqrepl.config.keys import CONTEXT, HOST, PARTS, PROCESS, QUEUE

Schema = dict[str, object]
_SPOTS: Final = (
    ("cluster: context:", CONTEXT),
    ("cluster: HOST:", HOST),
    ("queues: QUEUE:", QUEUE),
    ("cqrepl:", PROCESS),
    *((f"cqrepl: {name}:", section) for name, section in PARTS.items()),
)


def json_schema() -> Schema:
    """JSON Schema of the file, in Chronicle's older form. Types such as `!QueueReplicationCfg`, and
    what concerns two keys, a schema cannot say."""
    process = _object(PROCESS)
    keys = process["properties"]
    assert isinstance(keys, dict)
    keys |= {name: _object(section) for name, section in PARTS.items()}
    cluster = {
        "type": "object",
        "properties": {"context": _object(CONTEXT)},
        "additionalProperties": _object(HOST),
        "required": ["context"],
    }
    queues = {"type": "object", "additionalProperties": _object(QUEUE), "minProperties": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "QueueReplicationCfg",
        "type": "object",
        "properties": {"cluster": cluster, "queues": queues, "cqrepl": process},
        "required": ["cluster", "queues"],
        "additionalProperties": False,
    }


def lines() -> Iterator[str]:
    """One line a key, below the place where it stands."""
    for place, section in _SPOTS:
        yield place
        for key in section.keys.values():
            if key.is_used:
                variable = f" [{key.variable}]" if section in (PROCESS, *PARTS.values()) else ""
                yield f"  {key.name}: {key.kind.wanted.rstrip(',')}{_default(key)}{variable}"
                yield f"      {key.says}"
        unused = [key.name for key in section.keys.values() if not key.is_used]
        if unused:
            yield f"  without effect here: {', '.join(unused)}"
        yield ""


def _default(key: Key) -> str:
    if key.default is REQUIRED:
        return "; has to be there"
    written = key.kind.written(key.default)
    return f"; {written} if not given" if written else ""


def _object(section: Section) -> Schema:
    keys: Mapping[str, Key] = section.keys
    found: Schema = {
        "type": "object",
        "properties": {
            key.name: {**key.kind.schema, "description": key.says} for key in keys.values()
        },
        "additionalProperties": False,
    }
    required = [key.name for key in keys.values() if key.default is REQUIRED]
    return found | {"required": required} if required else found
