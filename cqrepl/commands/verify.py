"""Prints what a comparison finds, as text for people and as JSON Lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.console.meter import Meter
from cqrepl.console.units import plural
from cqrepl.queue import format_index
from cqrepl.queue.inspection.cyclecomparison import ComparedSpan
from cqrepl.queue.inspection.differences import (
    CopySide,
    CycleDigests,
    DifferenceKind,
    Flaw,
    LayoutsDiffer,
    NamedDifference,
    NothingCompared,
    NotRead,
    OneFile,
    Outcome,
    SameRange,
)
from cqrepl.queue.inspection.findings import FindingKind
from cqrepl.queue.inspection.quickcomparison import verify_quickly
from cqrepl.queue.inspection.verification import last_common_index, verify
from wire.text.terminal import one_line

_DIGEST_SHOWN = 16
_MISSING = (DifferenceKind.MISSING, DifferenceKind.FILE_MISSING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One run of the command."""

    paths: tuple[Path, ...]
    index_first: int
    index_last: int | None
    common: bool
    digests: bool
    only_first: bool
    quick: bool
    as_json: bool

    def run(self) -> int:
        """Compares and prints; the exit code."""
        code = exitcodes.OK
        with Meter("compared") as meter:
            for outcome in self._outcomes(meter):
                if not isinstance(outcome, CycleDigests) or self.digests:
                    meter.hide()
                    output.write_text(self._json(outcome) if self.as_json else self._text(outcome))
                code = max(code, _code(outcome))
                if code != exitcodes.OK and self.only_first:
                    break
        output.flush()
        return code

    @property
    def _same(self) -> str:
        return "same" if len(self.paths) > 1 else "read"

    def _outcomes(self, meter: Meter) -> Iterator[Outcome]:
        if self.quick:
            return verify_quickly(self.paths)
        index_last = self.index_last
        if self.common:
            index_last = last_common_index(self.paths)
            if index_last is None:
                index_last = -1  # one of them is empty: there is nothing that all have
        span = ComparedSpan(
            index_first=self.index_first,
            index_last=index_last,
            with_digests=self.digests,
            is_common=self.common,
        )
        return verify(self.paths, span, progress=meter.add)

    def _text(self, outcome: Outcome) -> str:
        """One line, and for a difference one more of each copy."""
        match outcome:
            case SameRange():
                word, text = self._same, _range_text(outcome.index_first, outcome.index_last)
            case NamedDifference():
                word, text = self._difference_text(outcome)
            case CycleDigests():
                word, text = self._digests_text(outcome)
            case LayoutsDiffer():
                word, text = "layouts", "; ".join(map(str, outcome.layouts))
            case OneFile():
                paths = ", ".join(map(str, outcome.paths))
                word, text = "one file", f"{paths}: compared with itself, which proves nothing"
            case Flaw():
                word, text = _flaw_word(outcome), _flaw_text(outcome)
            case NotRead():
                text = _range_text(outcome.index_first, outcome.index_last)
                word, text = "not read", f"{text}  {outcome.text}"
            case NothingCompared():
                word, text = self._same if outcome.is_same else "nothing", outcome.text
        text = "\n         ".join(map(one_line, text.split("\n         ")))
        return f"{word:<8} {text}\n"

    def _difference_text(self, found: NamedDifference) -> tuple[str, str]:
        where = _range_text(found.index_first, found.index_last)
        what = f"  {found.kind.value}: {found.text}"
        if found.kind is DifferenceKind.END:
            where = format_index(found.index_first)
        if found.kind in _MISSING:
            held = zip(self.paths, found.present, strict=True)
            where += f" only in {', '.join(str(path) for path, there in held if there)}"
            what = f"  {found.text}"
        lines = [where + what]
        lines += [_side_text(side) for side in found.sides if side is not None]
        return _word(found), "\n         ".join(lines)

    def _digests_text(self, outcome: CycleDigests) -> tuple[str, str]:
        held = zip(self.paths, outcome.counts, outcome.digests, strict=True)
        cells = [f"{path}: {_digest_text(count, digest)}" for path, count, digest in held]
        word = "same" if outcome.is_same else "differ"
        return word, f"cycle {outcome.cycle}  {'  '.join(cells)}"

    def _json(self, outcome: Outcome) -> str:
        return output.json_line({"v": 1} | self._fields(outcome))

    def _fields(self, outcome: Outcome) -> dict[str, object]:
        match outcome:
            case SameRange():
                return {"kind": self._same} | _range_fields(outcome.index_first, outcome.index_last)
            case NamedDifference():
                return self._difference_fields(outcome)
            case CycleDigests():
                return {
                    "kind": "cycle", "same": outcome.is_same, "cycle": outcome.cycle,
                    "excerpts": outcome.counts, "digests": outcome.digests,
                }  # fmt: skip
            case LayoutsDiffer():
                return {"kind": "layouts", "layouts": [str(each) for each in outcome.layouts]}
            case OneFile():
                return {"kind": "one-file", "paths": [str(path) for path in outcome.paths]}
            case Flaw():
                return self._flaw_fields(outcome)
            case NotRead():
                fields = _range_fields(outcome.index_first, outcome.index_last)
                return {"kind": "not-read"} | fields | {"text": outcome.text}
            case NothingCompared():
                return {"kind": "nothing", "same": outcome.is_same, "text": outcome.text}

    def _difference_fields(self, found: NamedDifference) -> dict[str, object]:
        return (
            {"kind": _word(found), "what": found.kind.value, "cycle": found.cycle}
            | _range_fields(found.index_first, found.index_last)
            | {
                "present": found.present,
                "bytes": found.lengths,
                "byte_first": found.byte_first,
                "copies": [None if side is None else _side_fields(side) for side in found.sides],
                "text": found.text,
            }
        )

    def _flaw_fields(self, flaw: Flaw) -> dict[str, object]:
        finding = flaw.finding
        return {
            "kind": _flaw_word(flaw),
            "what": finding.kind.value,
            "part": finding.part.value,
            "copy": str(self.paths[flaw.copy]),
            "path": str(finding.path),
            "position": finding.position,
            "index": None if finding.index is None else format_index(finding.index),
            "text": finding.text,
            "remedy": finding.remedy,
        }


def _word(found: NamedDifference) -> str:
    if found.is_note:
        return "note"
    return "missing" if found.kind in _MISSING else "differ"


def _side_text(side: CopySide) -> str:
    where = f"{side.path} at position {side.position}"
    if side.length is None:
        return f"{where}: no excerpt"
    shown = f", bytes from {side.part_first} on: {side.part.hex(' ')}" if side.part else ""
    return f"{where}: {side.length} B{shown}"


def _side_fields(side: CopySide) -> dict[str, object]:
    return {
        "path": str(side.path),
        "position": side.position,
        "bytes": side.length,
        "part": side.part.hex(),
        "part_first": side.part_first,
    }


def _range_text(index_first: int, index_last: int) -> str:
    count = index_last - index_first + 1
    indexes = format_index(index_first)
    if count > 1:
        indexes += f"..{format_index(index_last)}"
    return f"{indexes}  {plural(count, 'excerpt')}"


def _range_fields(index_first: int, index_last: int) -> dict[str, object]:
    return {
        "index_first": format_index(index_first),
        "index_last": format_index(index_last),
        "excerpts": index_last - index_first + 1,
    }


def _flaw_text(flaw: Flaw) -> str:
    finding = flaw.finding
    where = f"{finding.path}"
    if finding.position is not None:
        where += f" at position {finding.position}"
    which = "" if finding.index is None else f", index {format_index(finding.index)}"
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    return f"{where}{which}: {finding.part.value}: {finding.text}{remedy}"


def _digest_text(count: int | None, digest: str | None) -> str:
    if count is None:
        return "no file"
    return f"{plural(count, 'excerpt')} " + (digest[:_DIGEST_SHOWN] if digest else "no hash")


def _flaw_word(flaw: Flaw) -> str:
    if flaw.is_same:
        return "note"
    return "damaged" if flaw.finding.kind is FindingKind.DAMAGE else "unread"


def _code(outcome: Outcome) -> int:
    if outcome.is_same:
        return exitcodes.OK
    if isinstance(outcome, Flaw):
        is_damage = outcome.finding.kind is FindingKind.DAMAGE
        return exitcodes.DAMAGED if is_damage else exitcodes.USAGE
    return exitcodes.STOPPED
