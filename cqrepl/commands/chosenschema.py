"""The schema of a command about a queue: a file that the user names, or the one that it keeps."""

from pathlib import Path

from cqrepl.console.exitcodes import BadArguments
from cqrepl.typed.schemafile import chosen_class, kept_schema, read_schema
from wire.objects.object_writer import given_event


def chosen_schema(queue_dir: Path, given: Path | None, event: str | None) -> type | None:
    """The class that documents are read into; None where nothing says one.

    Args:
        event: the method, where the schema has classes for several.

    Raises:
        BadArguments: the schema has none of this method, or several and none was named.
        SchemaError, OSError: the schema cannot be read.
    """
    kinds = kept_schema(queue_dir) if given is None else read_schema(given)
    if not kinds and event is None:
        return None
    kind = chosen_class(kinds, event)
    if kind is None:
        known = ", ".join(given_event(each) or each.__name__ for each in kinds) or "no schema"
        wanted = "--event, as there are several classes" if event is None else f"the method {event}"
        raise BadArguments(f"{queue_dir}: expected {wanted}, got {known}")
    return kind
