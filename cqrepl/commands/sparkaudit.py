"""Compares copies of a queue with Spark, and prints what it finds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqrepl.commands.sparkjob import SessionOptions, run_job
from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.queue.format.index import INDEX_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.audit import Audit
    from cqrepl.spark.jobs.auditcycles import CycleAudit
    from cqrepl.spark.jobs.blockcomparer import Difference

_DIGEST_SHOWN = 16


def run_audit(
    paths: Sequence[Path],
    options: SessionOptions,
    *,
    index_first: int,
    index_last: int | None,
    common: bool,
    digests: bool,
    reads_all: bool,
    report: Path | None,
    as_json: bool,
) -> int:
    """Compares from one index to another; the exit code.

    Args:
        report: a file of Parquet that gets the table, too.
    """
    last = INDEX_MAX if index_last is None else index_last

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.jobs.audit import audit

        found = audit(
            spark,
            paths,
            index_first=index_first,
            index_last=last,
            common=common,
            digests=digests,
            reads_all=reads_all,
        )
        return _print(found, report, as_json)

    return run_job("cqrepl spark audit", options, work, paths)


def _print(found: "Audit", report: Path | None, as_json: bool) -> int:
    rows = [_cycle_row(cycle) for cycle in found.cycles]
    rows += [difference_row(each) for each in found.differences]
    rows += [{"kind": "note", "text": text} for text in found.notes]
    for row in rows:
        output.write_text(
            output.json_line({"v": 1, **row}) if as_json else line_of(row, found.paths)
        )
    if not as_json:
        output.write_text(_summary(found))
    output.flush()
    if report is not None:
        _write_report(rows, report)
    if found.is_damaged:
        return exitcodes.DAMAGED
    return exitcodes.OK if found.is_same else exitcodes.STOPPED


def _cycle_row(cycle: "CycleAudit") -> dict[str, Any]:
    return {
        "kind": "cycle",
        "same": cycle.is_same,
        "read": cycle.is_read,
        "cycle": cycle.cycle,
        "excerpts": list(cycle.counts),
        "digests": list(cycle.digests),
    }


def difference_row(each: "Difference") -> dict[str, Any]:
    """The fields that are printed of a difference, as JSON has them."""
    row: dict[str, Any] = {
        "kind": each.verdict.value,
        "index_first": f"{each.index_first:#x}",
        "index_last": f"{each.index_last:#x}",
        "count": each.count,
        "present": list(each.present),
    }
    if each.lengths:
        row |= {"bytes": list(each.lengths), "byte_first": each.byte_first}
    if each.what is not None:
        row["what"] = each.what
    if each.text:
        row["text"] = each.text
    return row


def line_of(row: dict[str, Any], paths: tuple[Path, ...]) -> str:
    """The same, or what is printed of a cycle, as a line."""
    if row["kind"] == "cycle":
        word = "same" if row["same"] else "differ"
        counts = " / ".join("-" if count is None else f"{count:,}" for count in row["excerpts"])
        shown = [(each or "-")[:_DIGEST_SHOWN] for each in row["digests"]]
        if row["same"]:
            counts, shown = f"{row['excerpts'][0]:,}", shown[:1]
        digests = f"  digest {' / '.join(shown)}" if any(row["digests"]) else ""
        how = "" if row["read"] else "  not read: proved by side files"
        return f"{word:<8} cycle {row['cycle']}  {counts} excerpts{digests}{how}\n"
    if row["kind"] == "note":
        return f"note     {row['text']}\n"
    indexes = row["index_first"]
    if row["count"] > 1:
        indexes += f"..{row['index_last']}"
    return f"{row['kind']:<8} {indexes}  {_what(row, paths)}\n"


def _what(row: dict[str, Any], paths: tuple[Path, ...]) -> str:
    count = plural(row["count"], "excerpt")
    held = list(zip(paths, row["present"], strict=True))
    match row["kind"]:
        case "missing":
            return f"{count}, not in {', '.join(str(path) for path, there in held if not there)}"
        case "extra":
            return f"{count}, only in {', '.join(str(path) for path, there in held if there)}"
        case "differ":
            sizes = " / ".join("-" if size is None else f"{size} B" for size in row["bytes"])
            if row.get("what", "excerpt") == "excerpt":
                return f"{count}, first: {sizes}, first byte that differs: {row['byte_first']}"
            return f"{count}, {row['what']}: {row['text']}; {sizes}"
        case "mixed":
            return "more differences than are told one by one"
        case _:
            return f"{row['text']}"


def _summary(found: "Audit") -> str:
    compared = f"{plural(len(found.paths), 'copy')}, up to"
    compared += f" {plural(found.count, 'excerpt')} each"
    if found.is_same and not found.count:
        return f"{compared}: nothing to compare\n"
    if found.is_nothing:
        return f"{compared}: nothing was compared\n"
    if found.is_same:
        unread = len(found.cycles) - found.read
        how = f"; {plural(unread, 'closed cycle')} of them proved by side files" if unread else ""
        return f"{compared}: all the same{how}\n"
    return f"{compared}: {plural(len(found.differences), 'range')} not the same\n"


def _write_report(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("same", pa.bool_()),
            ("read", pa.bool_()),
            ("cycle", pa.int32()),
            ("index_first", pa.string()),
            ("index_last", pa.string()),
            ("count", pa.int64()),
            ("excerpts", pa.list_(pa.int64())),
            ("digests", pa.list_(pa.string())),
            ("present", pa.list_(pa.bool_())),
            ("bytes", pa.list_(pa.int64())),
            ("byte_first", pa.int64()),
            ("what", pa.string()),
            ("text", pa.string()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
