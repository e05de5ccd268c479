"""The golden vectors of the wire, and the arguments of the calls in their manifest.

A call is `[field, method, arguments]`, see the README beside the vectors. Three modules make the
calls: `calls` on our writers, `reads` on our reader, `constructs` on the grammar.
"""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

VECTORS = Path(__file__).parents[2] / "vectors" / "wire"
FILES: Final = sorted(path.stem for path in VECTORS.glob("*.jsonl"))
Vector = dict[str, Any]
Call = Sequence[Any]

INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
# methods with calls inside, and which argument these are
NESTING: Final = {
    "marshallable": 0,
    "marshallable8": 0,
    "marshallable16": 0,
    "sequence": 0,
    "typedMarshallable": 1,
}
CLASS_ALIASES: Final = {
    "java.lang.String": "String",
    "java.lang.Integer": "int",
    "java.lang.Long": "long",
    "java.lang.Short": "short",
    "java.lang.Byte": "byte",
    "java.util.UUID": "UUID",
}


def load(*files: str) -> list[Vector]:
    texts = [(VECTORS / f"{name}.jsonl").read_text(encoding="ascii") for name in files]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def calls_key(vector: Vector) -> str | None:
    return next((key for key in ("build", "legacy_build") if key in vector), None)


def methods(vector: Vector) -> set[str]:
    """Every method that the vector calls, and what else it needs: kinds of fields and documents."""
    documents = vector[calls_key(vector) or "build"]
    found = {str(document["style"]) for document in documents if "style" in document}
    for document in documents:
        found |= _methods_of(document["calls"])
    return found


def _methods_of(calls: list[Call]) -> set[str]:
    found: set[str] = set()
    for field, method, arguments in calls:
        enum = method == "object" and isinstance(arguments[0], dict) and "wiretype" in arguments[0]
        found.add("wiretype" if enum else method)
        if isinstance(field, dict):
            found |= set(field) - {"wire", "code"}
        if method in NESTING and arguments[0] is not None:
            found |= _methods_of(arguments[NESTING[method]])
    return found


def is_binary(vector: Vector) -> bool:
    """True for the wire of sockets and queues; all else is text, or names or numbers otherwise."""
    return vector["wire"] in ("BINARY_LIGHT", "BINARY")


def text_of(argument: Any) -> str | None:
    if isinstance(argument, dict):
        return str(argument["str"]) * int(argument.get("times", 1))
    return None if argument is None else str(argument)


def bytes_of(argument: Any) -> bytes:
    return bytes.fromhex(argument["hex"]) * int(argument.get("times", 1))


def float_of(argument: Any) -> float:
    """A floating-point argument, given by its bits."""
    if "f32" in argument:
        return float(struct.unpack(">f", bytes.fromhex(argument["f32"]))[0])
    return float(struct.unpack(">d", bytes.fromhex(argument["f64"]))[0])


def name_of(field: Any) -> str:
    """The name that a field of the manifest asks for."""
    for key in ("event", "long", "key"):
        if isinstance(field, dict) and key in field:
            return str(text_of(field[key]))
    return "" if isinstance(field, dict) else str(field)
