"""The manifest of an export: the parts that are whole, and where the next one begins.

Theory of operation. An export writes `part-FIRSTINDEX.csv`, one part after the other, each under
another name first (`.part`), synced and renamed. Then the manifest, `manifest.json`, names it,
written and renamed in the same way. So a part that the manifest names is whole, and an export that
ended anywhere goes on behind the last of them; anything else that it left it removes.

    {"v": 1, "form": "parquet", "schema": {...}, "columns": ["sym"], "where": null,
     "next_index": 84984517885960,
     "parts": [{"name": "part-4d4b00000000.parquet", "index_first": ..., "index_next": ...,
                "rows": 7, "bytes": 1234, "sha256": "..."}]}
"""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cqrepl.console.exitcodes import BadArguments
from cqrepl.surroundings import sync_path

NAME: Final = "manifest.json"
PART_SUFFIX: Final = ".part"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ExportTerms:
    """The terms that all parts of an export have in common."""

    form: str
    schema: dict[str, object] | None
    columns: tuple[str, ...]
    where: str | None


@dataclass(slots=True)
class ExportManifest:
    """The manifest in a directory."""

    folder: Path
    terms: ExportTerms
    next_index: int | None = None
    columns: tuple[str, ...] = ()
    parts: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def opened(cls, folder: Path, terms: ExportTerms) -> "ExportManifest":
        """The manifest that is there, or a new one; what a killed export left is removed.

        Raises:
            BadArguments: there is one of other terms, or none that can be read, or the directory
                holds something else.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / NAME
        manifest = cls(folder, terms)
        if path.exists():
            manifest._read(path)
        known = {NAME, *(part["name"] for part in manifest.parts)}
        for each in folder.iterdir():
            is_own = each.name.startswith("part-") or each.suffix == PART_SUFFIX
            if each.name not in known and is_own:
                each.unlink()
            elif each.name not in known:
                raise BadArguments(f"{folder}: expected parts of an export, found {each.name}")
        return manifest

    def add(self, path: Path, index_first: int, index_next: int, rows: int) -> None:
        """Names a part that is whole."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        self.parts.append(
            {
                "name": path.name,
                "index_first": index_first,
                "index_next": index_next,
                "rows": rows,
                "bytes": path.stat().st_size,
                "sha256": digest.hexdigest(),
            }
        )
        self.next_index = index_next
        self._write()

    def _write(self) -> None:
        fields = {
            "v": VERSION,
            "form": self.terms.form,
            "schema": self.terms.schema,
            "chosen": list(self.terms.columns),
            "columns": list(self.columns),
            "where": self.terms.where,
            "next_index": self.next_index,
            "parts": self.parts,
        }
        written = self.folder / f"{NAME}{PART_SUFFIX}"
        written.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
        rename_synced(written, self.folder / NAME)

    def _read(self, path: Path) -> None:
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
            found = ExportTerms(
                given["form"], given["schema"], tuple(given["chosen"]), given["where"]
            )
            self.next_index = given["next_index"]
            self.columns = tuple(given["columns"])
            self.parts = [dict(part) for part in given["parts"]]
            names = [part["name"] for part in self.parts]
            is_sound = given["v"] == VERSION and all("/" not in name for name in names)
        except (ValueError, KeyError, TypeError) as error:
            raise BadArguments(f"{path}: expected the manifest of an export: {error}") from error
        if not is_sound:
            raise BadArguments(f"{path}: expected the manifest of an export of version {VERSION}")
        for name in ("form", "schema", "columns", "where"):
            if getattr(found, name) != getattr(self.terms, name):
                raise BadArguments(
                    f"{path}: expected an export with the same {name}, it began with another one:"
                    " take another directory"
                )


def rename_synced(written: Path, name: Path) -> None:
    """Gives a written file its name, once it is on the disk; the name is on the disk, too."""
    sync_path(written)
    os.replace(written, name)
    sync_path(name.parent)
