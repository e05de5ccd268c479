"""Archives a queue as Parquet, and prints what the archive holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqrepl.commands import outcome
from cqrepl.commands.sparkjob import SessionOptions, missing, run_job
from cqrepl.console import exitcodes, output
from cqrepl.console.units import format_bytes, plural
from cqrepl.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cqrepl.spark.jobs.archivefiles import ArchivedCycle, Manifest
    from cqrepl.spark.jobs.archiveverify import Verified


def run_archive(
    path: Path,
    out: Path | str,
    options: SessionOptions,
    *,
    with_open: bool,
    verify: bool,
    replace: bool,
    holds: bool | None,
    as_json: bool,
) -> int:
    """Adds what is not in the archive yet; the exit code."""

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.failures import JobFailed
        from cqrepl.spark.jobs.archive import archive
        from cqrepl.spark.jobs.archiveplace import ArchiveChanged
        from cqrepl.spark.jobs.archiveplan import ArchiveDiffers

        try:
            manifest, count = archive(
                spark, path, out, with_open=with_open, verify=verify, replace=replace, holds=holds
            )
        except ArchiveDiffers as error:
            raise JobFailed(str(error), exitcodes.STOPPED) from error
        except ArchiveChanged as error:
            raise JobFailed(str(error), exitcodes.REFUSED) from error
        code = print_manifest(manifest, f"{count:,} of them new", as_json=as_json)
        code = _print_left_out(path, manifest, with_open=with_open, as_json=as_json) or code
        _print_holes(path, as_json=as_json)
        return _print_lost_end(path, as_json=as_json) or code

    if holds is False:  # before all that may fail
        code = outcome.guarded("cqrepl spark archive", lambda: _released(path, out, as_json))
        if code != exitcodes.OK:
            return code
    return run_job("cqrepl spark archive", options, work, [path])


def _released(path: Path, out: Path | str, as_json: bool) -> int:
    """Has retention wait for an archive no longer, and says so; the exit code."""
    try:
        from cqrepl.spark.jobs.archivehold import release
        from cqrepl.spark.jobs.archiveplace import place_of
    except ImportError as error:
        raise missing(error) from error
    place = place_of(out)
    with Queue.open(path) as queue:
        is_new = release(queue, place.text)
    row = {"v": 1, "queue": str(path), "archive": place.text, "is_released": is_new}
    said = "waits" if is_new else "did not wait"
    text = f"cqrepl gc of {path} {said} for {place.text}{' no longer' if is_new else ''}\n"
    output.write_text(output.json_line(row) if as_json else text)
    output.flush()
    return exitcodes.OK


def _print_left_out(path: Path, manifest: "Manifest", *, with_open: bool, as_json: bool) -> int:
    """Names the cycles that will never be archived as they are; the exit code."""
    from cqrepl.spark.jobs.archiveplan import left_out

    with Queue.open(path) as queue:
        found = left_out(queue, manifest.cycles, with_open=with_open)
        names = [(queue.cycles.path_of(cycle).name, count) for cycle, count in found]
    for name, count in names:
        state = f"archived as open, {count:,} excerpts only" if count else "not archived"
        text = (
            f"{name}  {state}: it is not closed, though a later one has excerpts;"
            " cqrepl repair QUEUE --apply closes it, --with-open takes it as it is"
        )
        row = {"v": 1, "left_out": name, "archived": count}
        output.write_text(output.json_line(row) if as_json else f"{text}\n")
    output.flush()
    return exitcodes.STOPPED if names else exitcodes.OK


def _print_holes(path: Path, *, as_json: bool) -> None:
    """Says where cycles have no store file, and nothing tells whether they ever had one."""
    from cqrepl.spark.unknownholes import told_of_all_holes

    with Queue.open(path) as queue:
        text = told_of_all_holes(queue)
    if text is not None:
        row = {"v": 1, "holes": text}
        output.write_text(output.json_line(row) if as_json else f"{text}\n")
        output.flush()


def _print_lost_end(path: Path, *, as_json: bool) -> int:
    """Says where the queue has lost its end, which is in no archive then; the exit code."""
    from cqrepl.spark.lostends import confirmed_lost_end

    with Queue.open(path) as queue:
        lost = confirmed_lost_end(queue.cycles)
    if lost is None:
        return exitcodes.OK
    row = {"v": 1, "lost": f"{lost.index:#x}", "file": str(lost.path), "text": lost.what}
    output.write_text(output.json_line(row) if as_json else f"{lost.text}: it is not archived\n")
    output.flush()
    return exitcodes.STOPPED


def run_archive_verify(
    path: Path | str, options: SessionOptions, *, percent: int, as_json: bool
) -> int:
    """Reads all parts of an archive, or so many of a hundred; the exit code."""

    def work(spark: "SparkSession") -> int:
        from cqrepl.spark.jobs.archiveverify import verify_archive

        return _print_verified(verify_archive(spark, path, sample=percent / 100), as_json)

    return run_job("cqrepl spark archive verify", options, work)


def _print_verified(found: "Verified", as_json: bool) -> int:
    for text in found.damages:
        output.write_text(output.json_line({"v": 1, "damage": text}) if as_json else f"{text}\n")
    held = sum(len(cycle.parts) for cycle in found.manifest.cycles)
    if as_json:
        row = {"v": 1, "parts": held, "read": found.parts, "excerpts": found.count}
        output.write_text(output.json_line(row | {"damaged": len(found.damages)}))
    else:
        read = f"{found.parts:,} of {plural(held, 'part')} read, {plural(found.count, 'excerpt')}"
        wrong = f"{len(found.damages):,} damaged" if found.damages else "all as archived"
        if not held:
            wrong = "nothing is archived yet, which proves nothing"
        output.write_text(f"{read}: {wrong}\n")
    output.flush()
    if found.damages:
        return exitcodes.DAMAGED
    return exitcodes.OK if held else exitcodes.STOPPED


def run_archive_gc(path: Path | str, *, is_applied: bool, as_json: bool) -> int:
    """Says what in an archive's directory no manifest names, or deletes it; the exit code."""

    def work() -> int:
        try:
            from cqrepl.spark.jobs.archiveplace import place_of
            from cqrepl.spark.jobs.archivesweep import sweep_archive
        except ImportError as error:
            raise missing(error) from error
        found = sweep_archive(path, is_applied=is_applied)
        place = place_of(path)
        for name, size in found:
            row = {"v": 1, "file": place.at(name), "bytes": size, "is_deleted": is_applied}
            word = "deleted" if is_applied else "may go"
            text = f"{name}  {format_bytes(size)}  {word}\n"
            output.write_text(output.json_line(row) if as_json else text)
        if not as_json:
            total = format_bytes(sum(size for _, size in found))
            done = "deleted" if is_applied else "may go, nothing was changed: --apply deletes"
            output.write_text(f"{plural(len(found), 'file')}, {total} {done}\n")
        output.flush()
        return exitcodes.OK

    return outcome.guarded("cqrepl spark archive gc", work)


def print_manifest(manifest: "Manifest", new: str, *, as_json: bool) -> int:
    """Prints a line for each cycle of an archive, and what of it is new; the exit code."""
    for cycle in manifest.cycles:
        row = _row(cycle)
        if as_json:
            output.write_text(output.json_line({"v": 1, **row}))
        else:
            size = format_bytes(row["payload_bytes"])
            state = "closed" if cycle.is_closed else "open"
            span = f"{row['index_first']}..{row['index_last']}"
            output.write_text(
                f"{cycle.file}  {cycle.day}  {span}  {cycle.count:,} excerpts  {size}  {state}\n"
            )
    if not as_json:
        cycles, excerpts = plural(len(manifest.cycles), "cycle"), plural(manifest.count, "excerpt")
        output.write_text(f"{cycles}, {new}; {excerpts}\n")
    output.flush()
    return exitcodes.OK


def _row(cycle: "ArchivedCycle") -> dict[str, Any]:
    return {
        "cycle": cycle.cycle,
        "day": cycle.day,
        "file": cycle.file,
        "closed": cycle.is_closed,
        "index_first": f"{cycle.index_first:#x}",
        "index_last": f"{cycle.index_last:#x}",
        "excerpts": cycle.count,
        "payload_bytes": sum(part.payload_bytes for part in cycle.parts),
        "parts": len(cycle.parts),
    }
