"""Values that were read from binary wire, as YAML on one line and as JSON."""

import base64
import json
import math
from datetime import date, datetime, time
from typing import Final
from uuid import UUID

from wire.objects.values import Typed

_PLAIN_MARKS: Final = frozenset("_-./:+@")


def flow_text(value: object, *, is_outermost: bool = False) -> str:
    """A value that was read from wire, as YAML on one line.

    >>> flow_text({"order": {"id": 42, "px": 101.5}}, is_outermost=True)
    'order {id: 42, px: 101.5}'
    """
    match value:
        case Typed(name, inner):
            return f"!{name} {flow_text(inner)}"
        case dict():
            pairs = [(_scalar(str(name)), flow_text(each)) for name, each in value.items()]
            if is_outermost and len(pairs) == 1:
                return " ".join(pairs[0]).rstrip()
            inner_text = ", ".join(f"{name}: {each}" for name, each in pairs)
            return inner_text if is_outermost else f"{{{inner_text}}}"
        case list() | tuple():
            return f"[{', '.join(flow_text(each) for each in value)}]"
        case bytes():
            return f"!!binary {base64.b64encode(value).decode()}"
        case str():
            return _scalar(value)
        case None:
            return '!!null ""'
        case bool():
            return "true" if value else "false"
        case _:
            return _scalar(str(plain_json(value)))


def plain_json(value: object) -> object:
    """A value that was read from wire, made of what JSON has."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case Typed(name, inner):
            return {f"!{name}": plain_json(inner)}
        case dict():
            return {str(name): plain_json(each) for name, each in value.items()}
        case list() | tuple():
            return [plain_json(each) for each in value]
        case bytes():
            return {"!!binary": base64.b64encode(value).decode()}
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case _:
            return str(value)


def _scalar(text: str) -> str:
    """Text as a YAML scalar: bare where nothing can be mistaken."""
    bare = text.replace(" ", "x")
    if text == text.strip() and bare and all(c.isalnum() or c in _PLAIN_MARKS for c in bare):
        return text if not text.endswith(":") and ": " not in text else json.dumps(text)
    return json.dumps(text, ensure_ascii=False)
