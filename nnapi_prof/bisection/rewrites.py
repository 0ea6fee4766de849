"""Rewrites of an operation that its target computes rightly."""

from __future__ import annotations

from collections.abc import Iterator

from nnapi_prof.advice.rules import rules_for
from nnapi_prof.advice.search import as_program, moved, names_of, rewritten
from nnapi_prof.bisection.diagnosis import Culprit
from nnapi_prof.bisection.probe import RegionProbe, reference_values
from nnapi_prof.bisection.search import FIRST_REPEATS
from nnapi_prof.graph.advice import Rewrite
from nnapi_prof.graph.program import Program

MOST_MOVED = 1e-3
"""Largest change of the model's outputs by a rewrite, relative to the largest value. A cure keeps
what the model computes: advice's hard-swish for SiLU is none."""


def agreeing_rewrites(probe: RegionProbe, culprit: Culprit) -> Iterator[tuple[Rewrite, Program]]:
    """Yield the rewrites of a culprit's operations that agree on its target, and the new programs.

    Yields nothing for models in 8 bits, which are not rewritten. Raises DeviceError where the
    device fails.
    """
    program = probe.program
    if any(type_.quant is not None for type_ in program.units.values.values()):
        return
    for name in names_of(program, culprit.units):
        for rule in rules_for(program.nodes[name].target):
            module = rewritten(program, {name: rule.form})
            if module is None or moved(program, module) > MOST_MOVED:
                continue
            changed = as_program(module, program)
            if changed is not None and _agrees(probe, culprit, changed):
                yield rule.rewrite, changed


def _agrees(probe: RegionProbe, culprit: Culprit, program: Program) -> bool:
    """Whether the target computes all units rightly that the old program has not."""
    old = {unit.nodes for unit in probe.program.units.units}
    new = [unit.index for unit in program.units.units if unit.nodes not in old]
    if not new:
        return False
    references = [
        reference_values(program, [values[name] for name in probe.program.units.inputs])
        for values in probe.references
    ]
    other = probe.variant(culprit.way, program, references)
    verdicts = other([(unit,) for unit in new], FIRST_REPEATS)
    return not any(verdict.refused or verdict.differs for verdict in verdicts)
