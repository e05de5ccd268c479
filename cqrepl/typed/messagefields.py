"""A message as fields under the names that they have on the wire."""

from typing import Any

from wire.objects.shapes import Shape


def message_fields(message: Any, shape: Shape) -> dict[Any, object]:
    """The fields of a message of this shape; messages within it as fields, too."""
    return {
        each.name: message_fields(value, each.shape)
        if each.shape.kind == "message" and value is not None
        else value
        for each in shape.members
        for value in [getattr(message, each.attribute)]
    }
