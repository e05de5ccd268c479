"""The work of `cqrepl schema`: looks at documents, and prints the classes that they suggest."""

import json
from collections import Counter
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.queue import Queue
from cqrepl.queue.format.index import NEXT_OF_EMPTY
from cqrepl.queue.read import count as counting
from cqrepl.typed.classsource import source_of
from cqrepl.typed.documentsample import DocumentSample, FieldCounts
from cqrepl.typed.schemafile import json_schema


def print_schema(path: Path, form: str, count_max: int) -> int:
    """Prints what a sample of a queue suggests; the exit code.

    Args:
        form: `dataclass`, `json` or `table`.
        count_max: of documents that are looked at: half of them the first, half the last.
    """
    sample = DocumentSample()
    with Queue.open(path) as queue:
        _take(queue, sample, count_max)
    kinds = sample.classes()
    if not kinds:
        documents = plural(sample.documents + sample.others, "excerpt")
        raise exitcodes.BadArguments(f"{path}: expected documents with fields, got {documents}")
    if form == "json":
        output.write_text(json.dumps(json_schema(*kinds), indent=2) + "\n")
    elif form == "table":
        for event, seen in sample.events.items():
            _write_table(event, seen)
    else:
        output.write_text(source_of(kinds))
    output.flush()
    left_out = f", {plural(sample.others, 'excerpt')} without fields" if sample.others else ""
    output.write_error(f"cqrepl schema: from {plural(sample.documents, 'document')}{left_out}")
    return exitcodes.OK


def _take(queue: Queue, sample: DocumentSample, count_max: int) -> None:
    half = max(1, count_max // 2)
    last = counting.nth_last_index(queue.cycles, half)
    start, taken = NEXT_OF_EMPTY, 0
    tailer = queue.tailer(start)
    for excerpt in tailer:
        if taken == half and last is not None and excerpt.index < last:
            break
        sample.add(excerpt.data)
        taken += 1
        if taken == count_max:
            return
    else:
        return
    for excerpt in queue.tailer(NEXT_OF_EMPTY if last is None else last):
        sample.add(excerpt.data)
        taken += 1
        if taken == count_max:
            return


def _write_table(event: str | None, seen: FieldCounts) -> None:
    """A line for each field: path, types, share of the documents."""
    output.write_text(f"{event or 'documents'}: {plural(seen.objects, 'document')}\n")
    rows = list(_rows(seen, "", seen.objects))
    width = max((len(path) for path, _, _ in rows), default=0)
    for path, types, share in rows:
        output.write_text(f"  {path:{width}}  {share:6.1%}  {types}\n")


def _rows(seen: FieldCounts, prefix: str, whole: int) -> list[tuple[str, str, float]]:
    found: list[tuple[str, str, float]] = []
    for name, inner in seen.fields.items():
        path = f"{prefix}{name}"
        found.append((path, _types_text(inner.types), inner.count / max(1, whole)))
        found += _rows(inner, f"{path}.", whole)
        if inner.items is not None:
            types = _types_text(inner.items.types)
            found.append((f"{path}[]", types or "-", inner.count / max(1, whole)))
            found += _rows(inner.items, f"{path}[].", inner.items.objects)
    return found


def _types_text(types: Counter[str]) -> str:
    return ", ".join(f"{name}" for name, count in types.most_common() if count)
