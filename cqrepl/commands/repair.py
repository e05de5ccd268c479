"""Prints what a repair would do or has done."""

from pathlib import Path

from cqrepl.commands.acceptance import end_fields
from cqrepl.console import exitcodes, output
from cqrepl.console.units import plural
from cqrepl.queue.acceptance import accept_lost_end, lost_end_of, lost_mark_of
from cqrepl.queue.inspection.findings import UNKNOWN_CONTENT, FindingKind, Repair
from cqrepl.queue.inspection.lostend import LostEnd
from cqrepl.queue.inspection.repairplan import RepairPlan, apply, plan_repair
from cqrepl.queue.read.lostmarks import LostMark
from wire.text.terminal import one_line


def print_repair(path: Path, *, is_applied: bool, backup: Path | None, as_json: bool) -> int:
    """Plans, applies if that is asked for, and prints both; the exit code."""
    plan = plan_repair(path)
    if is_applied and plan.repairs:
        apply(plan, backup=backup)
    lost = lost_mark_of(path)  # with the end as it is repaired
    end = None if lost is None else (accept_lost_end if is_applied else lost_end_of)(path)
    text = _json(plan, is_applied) if as_json else _text(plan, is_applied, has_more=end is not None)
    if lost is not None and end is not None:
        text += _lost_text(path, lost, end, is_applied=is_applied, as_json=as_json)
    output.write_text(text)
    output.flush()
    remain = {finding.kind for finding in plan.remaining}
    if FindingKind.DAMAGE in remain:
        return exitcodes.DAMAGED
    return exitcodes.OK if remain.isdisjoint(UNKNOWN_CONTENT) else exitcodes.USAGE


def _lost_text(path: Path, lost: LostMark, end: LostEnd, *, is_applied: bool, as_json: bool) -> str:
    if as_json:
        return output.json_line(end_fields(end) | {"applied": is_applied})
    if is_applied:
        done = "accepted as lost; the marks are lowered to the end"
    else:
        done = "to be accepted as lost, nothing was changed: --apply lowers the marks to the end"
    return f"{path}: {lost}: what is missing is {done}\n"


def _text(plan: RepairPlan, is_applied: bool, *, has_more: bool) -> str:
    """The lines for people.

    Args:
        has_more: there is a lost end to tell of, too.
    """
    lines = [str(repair) for repair in plan.repairs]
    lines += plan.advice()
    count = len(plan.repairs)
    repairs = plural(count, "repair")
    if not count:
        lines += [] if has_more else [f"{plan.path}: nothing to repair"]
    elif is_applied:
        lines.append(f"{plan.path}: {repairs} made")
    else:
        lines.append(f"{plan.path}: {repairs} to be made, nothing was changed: --apply makes them")
    return "".join(one_line(line) + "\n" for line in lines)


def _json(plan: RepairPlan, is_applied: bool) -> str:
    lines = [_repair_fields(repair) | {"applied": is_applied} for repair in plan.repairs]
    lines += [
        {
            "v": 1,
            "kind": "remains",
            "path": str(finding.path),
            "position": finding.position,
            "index": finding.index,
            "text": finding.text,
        }
        for finding in plan.remaining
        if finding.kind in (FindingKind.DAMAGE, *UNKNOWN_CONTENT)
    ]
    return "".join(output.json_line(line) for line in lines)


def _repair_fields(repair: Repair) -> dict[str, object]:
    fields: dict[str, object] = {"v": 1, "kind": "repair", "path": str(repair.path)}
    if repair.renamed_to is not None:
        return fields | {"renamed_to": repair.renamed_to, "reason": repair.reason}
    return fields | {
        "position": repair.position,
        "found": repair.found.hex(),
        "written": repair.written.hex(),
        "reason": repair.reason,
    }
