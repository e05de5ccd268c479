"""One excerpt as a line, in the form that was asked for."""

import re
from collections.abc import Callable
from datetime import UTC, tzinfo
from string import Formatter
from typing import Final

from cqrepl.console import payload
from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import Excerpt, format_index
from cqrepl.queue.format.index import Index, cycle_of, sequence_of
from cqrepl.typed.documentfields import chosen_fields
from cqrepl.typed.instants import instant_text, time_of

_PLACES: Final = ("index", "cycle", "sequence", "bytes", "time", "data")
Paths = tuple[tuple[str, ...], ...]


class Lines:
    """Makes the lines of one run."""

    def __init__(
        self,
        *,
        shift: int,
        form: str | None,
        template: str | None,
        time_field: str | None,
        as_json: bool,
        zone: tzinfo = UTC,
        paths: Paths = (),
    ) -> None:
        """
        Args:
            zone: of times that are shown.
            paths: of the fields that are shown; without any, all of a payload is.

        Raises:
            BadArguments: the template has places that are not known, or that nothing fills.
        """
        self._shift = shift
        self._form = form
        self._text = payload.FORMS.get(form or "auto", payload.line_of)
        self._parts = None if template is None else _parsed(template)
        if time_field is None and "time" in (name for _, name in self._parts or ()):
            raise BadArguments("--format: {time} needs --time FIELD, which says where times stand")
        self._time_field = time_field
        self._zone = zone
        self._paths = paths
        self._as_json = as_json

    def text(self, excerpt: Excerpt) -> str:
        """The payload alone, in the form that was asked for."""
        if self._paths:
            content = self._chosen(excerpt)
            if self._form == "json":
                return payload.json_text(payload.json_value(content))
            return payload.flow_text(content.value)[1:-1]
        return self._text(excerpt.data)

    def _chosen(self, excerpt: Excerpt) -> payload.Content:
        """The fields that are shown, under their paths."""
        return payload.Content("wire", chosen_fields(excerpt.data, self._paths))

    def line(self, excerpt: Excerpt) -> str:
        """The whole line, with its end."""
        if self._as_json:
            return self._json(excerpt)
        text = self.text(excerpt)
        if self._parts is not None:
            return "".join(
                before + self._place(name, excerpt, text) for before, name in self._parts
            )
        index, end = format_index(excerpt.index), "" if text.endswith("\n") else "\n"
        time = "" if self._time_field is None else f"  {self._time(excerpt) or '-'}"
        if self._form == "yaml":
            return f"# {index}{time}\n{text}{end}"
        return f"{index}{time}  {text}{end}"

    def _json(self, excerpt: Excerpt) -> str:
        fields: dict[str, object] = {"v": 1, "index": format_index(excerpt.index)}
        fields["bytes"] = len(excerpt)
        if self._time_field is not None:
            fields["time"] = self._time(excerpt)
        if self._paths:
            fields |= {"as": "wire", "data": payload.json_value(self._chosen(excerpt))}
        elif self._form in ("yaml", "hex"):
            fields |= {"as": self._form, "data": self.text(excerpt)}
        elif self._form != "text" and (dense := payload.dense_json_of(excerpt.data)) is not None:
            kind = "wire" if dense.startswith("{") else "text"
            before = payload.json_text(fields | {"as": kind}, (",", ":"))
            return f'{before[:-1]},"data":{dense}}}\n'
        else:
            find = payload.utf8_of if self._form == "text" else payload.content_of
            content = find(excerpt.data)
            fields |= {"as": content.kind, "data": payload.json_value(content)}
        return payload.json_text(fields, (",", ":")) + "\n"

    def _place(self, name: str, excerpt: Excerpt, text: str) -> str:
        places: dict[str, Callable[[], object]] = {
            "": lambda: "",
            "index": lambda: format_index(excerpt.index),
            "cycle": lambda: cycle_of(Index(excerpt.index), self._shift),
            "sequence": lambda: sequence_of(Index(excerpt.index), self._shift),
            "bytes": lambda: len(excerpt),
            "time": lambda: self._time(excerpt) or "-",
            "data": lambda: text,
        }
        return str(places[name]())

    def _time(self, excerpt: Excerpt) -> str | None:
        assert self._time_field is not None
        time_ns = time_of(excerpt.data, self._time_field)
        return None if time_ns is None else instant_text(time_ns, self._zone)


def _parsed(template: str) -> list[tuple[str, str]]:
    """Pieces of plain text, and the place behind each; a line ends with a line feed."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise BadArguments(f"--format: {error}") from error
    for _, name, details, conversion in parsed:
        if name is not None and (name not in _PLACES or details or conversion):
            known = " ".join(f"{{{each}}}" for each in _PLACES)
            raise BadArguments(f"--format: expected {known}, got {{{name}}}")
    unescaped = [(re.sub(r"\\t", "\t", text), name or "") for text, name, _, _ in parsed]
    return [*unescaped, ("\n", "")]
