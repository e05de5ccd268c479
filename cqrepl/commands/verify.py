"""Prints what `verify` finds, and counts it."""

import json
from dataclasses import dataclass
from pathlib import Path

from cqrepl.console import exitcodes, output
from cqrepl.console.meter import Meter
from cqrepl.console.units import plural
from cqrepl.queue import format_index
from cqrepl.queue.inspection.verification import (
    ComparedRange,
    CycleDigests,
    LayoutsDiffer,
    Outcome,
    RangeKind,
    Unreadable,
    last_common_index,
    verify,
)

_DIGEST_SHOWN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One run of the command."""

    paths: tuple[Path, ...]
    index_first: int
    index_last: int | None
    common: bool
    digests: bool
    only_first: bool
    as_json: bool

    def run(self) -> int:
        """Compares and prints; the exit code."""
        index_last = self.index_last
        if self.common:
            index_last = last_common_index(self.paths)
            if index_last is None:
                index_last = -1  # one of them is empty: there is nothing that all have
        code = exitcodes.OK
        with Meter("compared") as meter:
            outcomes = verify(self.paths, index_first=self.index_first, index_last=index_last)
            for outcome in outcomes:
                if isinstance(outcome, ComparedRange):
                    meter.add(outcome.index_last - outcome.index_first + 1, 0)
                if not isinstance(outcome, CycleDigests) or self.digests:
                    meter.hide()
                    output.write_text(self._json(outcome) if self.as_json else self._text(outcome))
                code = max(code, _code(outcome))
                if code != exitcodes.OK and self.only_first:
                    break
            if not meter.excerpts and code == exitcodes.OK and not self.as_json:
                output.write_text("same     nothing to compare: no excerpts\n")
        output.flush()
        return code

    def _text(self, outcome: Outcome) -> str:
        match outcome:
            case ComparedRange():
                return f"{_WORDS[outcome.kind]:<8} {self._range_text(outcome)}\n"
            case CycleDigests():
                held = [
                    f"{path}: no file" if digest is None else f"{path}: {digest[:_DIGEST_SHOWN]}"
                    for path, digest in zip(self.paths, outcome.digests, strict=True)
                ]
                word = "same" if outcome.is_same else "differ"
                return f"{word:<8} cycle {outcome.cycle}  {'  '.join(held)}\n"
            case LayoutsDiffer():
                return f"layouts  {'; '.join(map(str, outcome.layouts))}\n"
            case Unreadable():
                index = format_index(outcome.index)
                where = f"{outcome.path} at position {outcome.position}"
                return f"damaged  {index}..  {where}: {outcome.text}\n"

    def _range_text(self, outcome: ComparedRange) -> str:
        count = outcome.index_last - outcome.index_first + 1
        indexes = format_index(outcome.index_first)
        if count > 1:
            indexes += f"..{format_index(outcome.index_last)}"
        text = f"{indexes}  {plural(count, 'excerpt')}"
        if outcome.kind is RangeKind.SAME:
            return text
        if outcome.kind is RangeKind.MISSING:
            held = zip(self.paths, outcome.present, strict=True)
            return f"{text} only in {', '.join(str(path) for path, there in held if there)}"
        sizes = " / ".join("-" if size is None else f"{size} B" for size in outcome.lengths)
        return f"{text}  {sizes}, first byte that differs: {outcome.byte_first}"

    def _json(self, outcome: Outcome) -> str:
        fields: dict[str, object] = {"v": 1}
        match outcome:
            case ComparedRange():
                fields["kind"] = _WORDS[outcome.kind]
                fields["index_first"] = format_index(outcome.index_first)
                fields["index_last"] = format_index(outcome.index_last)
                fields["excerpts"] = outcome.index_last - outcome.index_first + 1
                if outcome.kind is not RangeKind.SAME:
                    fields["present"] = outcome.present
                if outcome.kind is RangeKind.DIFFERENT:
                    fields |= {"bytes": outcome.lengths, "byte_first": outcome.byte_first}
            case CycleDigests():
                fields |= {"kind": "cycle", "same": outcome.is_same, "cycle": outcome.cycle}
                fields |= {"excerpts": outcome.counts, "digests": outcome.digests}
            case LayoutsDiffer():
                fields |= {"kind": "layouts", "layouts": [str(each) for each in outcome.layouts]}
            case Unreadable():
                fields |= {"kind": "damaged", "path": str(outcome.path)}
                fields |= {"position": outcome.position, "index": format_index(outcome.index)}
                fields["text"] = outcome.text
        return json.dumps(fields, separators=(",", ":")) + "\n"


_WORDS = {RangeKind.SAME: "same", RangeKind.DIFFERENT: "differ", RangeKind.MISSING: "missing"}


def _code(outcome: Outcome) -> int:
    if isinstance(outcome, Unreadable):
        return exitcodes.DAMAGED
    return exitcodes.OK if outcome.is_same else exitcodes.STOPPED
