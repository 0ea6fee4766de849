"""What ``nnapi-prof convert`` wrote: said as it goes, and kept for ``--json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nnapi_prof.cli.output import say

if TYPE_CHECKING:
    from nnapi_prof.convert.dynamic_shapes.template import OpenSize
    from nnapi_prof.documents.registry import Document
    from nnapi_prof.execution.report import OutputCheck
    from nnapi_prof.graph.program import Program


@dataclass
class Written:
    """The files of one conversion, and what is to be known of them."""

    source: Path
    files: list[tuple[Path, str]] = field(default_factory=list)
    """Each with its format."""
    regions: list[int] = field(default_factory=list)
    """NNAPI operations of each model in them."""
    cpu_units: int = 0
    """Units that stay on the CPU."""
    kept: list[tuple[str, str, str]] = field(default_factory=list)
    """Of units that NNAPI cannot run: name, label, and why."""
    in_floats: list[tuple[str, str, str]] = field(default_factory=list)
    """Of quantised units that NNAPI computes in float32: name, label, and why."""
    checks: tuple[OutputCheck, ...] = ()
    """What less precision costs, where that was asked for and is known."""
    opens: tuple[OpenSize, ...] = ()
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """What the user should know."""
        self.notes.append(text)
        say(f"note: {text}")

    def grow(self, program: Program, converted: Sequence[tuple[Sequence[int], int]]) -> None:
        """Regions, by units and NNAPI operations; said where they grew a lot."""
        from nnapi_prof.convert.region import growth_note

        note = growth_note(program.units, converted)
        if note is not None and note not in self.notes:
            self.note(note)

    def keep(self, program: Program, kept: Mapping[int, str]) -> None:
        """Units on the CPU, by index, and why."""
        self.kept += _named(program, kept)

    def compute_in_floats(self, program: Program, found: Mapping[int, str]) -> None:
        """Quantised units in float32, by index, and why."""
        self.in_floats += _named(program, found)

    def document(self, formats: Sequence[str]) -> Document:
        from nnapi_prof.documents.convert import of_conversion

        return of_conversion(
            self.source,
            formats,
            self.files,
            self.regions,
            self.cpu_units,
            self.kept,
            self.in_floats,
            self.checks,
            self.opens,
            self.notes,
        )


def _named(program: Program, reasons: Mapping[int, str]) -> list[tuple[str, str, str]]:
    units = program.units.units
    return [(units[u].name, units[u].label, reasons[u]) for u in sorted(reasons)]
