"""Writes rewrites into a copy of a program's graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.loader import prepare
from nnapi_prof.graph.program import Program
from nnapi_prof.passes.rewrite import Rule, Site, erase_unused


def rewritten(program: Program, forms: Mapping[str, Rule]) -> fx.GraphModule | None:
    """The program's graph with other forms of some nodes, by their names; weights are shared.

    None where no form fits, as of sizes that it is not for.
    """
    module = _copy(program.module)
    changed = 0
    for node in list(module.graph.nodes):
        form = forms.get(node.name)
        if form is None or not node.users or not isinstance(node.target, OpOverload):
            continue
        replacement = form(Site(node))
        if replacement is None or replacement is node:
            continue
        node.replace_all_uses_with(replacement)
        changed += 1
    if not changed:
        return None
    erase_unused(module.graph)
    module.graph.lint()
    module.recompile()
    return module


def _copy(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    output = graph.graph_copy(module.graph, {})
    graph.output(output)
    return fx.GraphModule(module, graph)


def as_program(module: fx.GraphModule, program: Program) -> Program | None:
    """A rewritten graph as a program, normalised anew; None where it cannot be."""
    try:
        return prepare(module, program.example_inputs, program.name)
    except FrontendError:
        return None


def names_of(program: Program, units: Iterable[int]) -> tuple[str, ...]:
    """The nodes that units are made of."""
    return tuple(name for unit in units for name in program.units.units[unit].nodes)


def moved(program: Program, module: fx.GraphModule) -> float:
    """Largest change of an output on the program's example inputs, relative to the largest value
    of that output; infinity where one is no number any more."""
    with torch.no_grad():
        before = program.module(*program.example_inputs)
        after = module(*program.example_inputs)
    worst = 0.0
    for was, now in zip(before, after, strict=True):
        if not was.numel():
            continue
        scale = float(was.double().abs().max()) or 1.0
        change = float((was.double() - now.double()).abs().max()) / scale
        worst = max(worst, change if change == change else float("inf"))
    return worst
