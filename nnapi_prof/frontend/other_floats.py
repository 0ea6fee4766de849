"""Computes in float32 what a model computes in other floats, and tells what that moves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, fx

from nnapi_prof.frontend.eager import flat_outputs, largest_move
from nnapi_prof.frontend.tracer import IN_FLOATS
from nnapi_prof.passes.canonicalize.promotion import is_in_doubles, narrow_doubles, widen_halves

MOST = 1e-4
"""Of an output's largest value: what float32 in place of float64 may move it by, and what a run may
differ by."""

Outputs = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Float32Report:
    """Tells whether in_float32 changed anything, and what."""

    changed: bool
    notes: tuple[str, ...]


def in_float32(
    graph: fx.GraphModule, own: Outputs, examples: Sequence[Tensor]
) -> tuple[fx.GraphModule, Outputs, Float32Report]:
    """Computes half precision, float64 and what is quantised anew in every step in float32.

    ``own`` runs the model. Returns the graph, what gives the outputs that it should have, and what
    was done. float64 stays where float32 would move the outputs by more than MOST, as for
    times in seconds since 1970.
    """
    notes, changed = [], False
    if parts := graph.meta.get(IN_FLOATS, 0):
        computed = _as_it_is(graph)
        notes.append(
            f"{parts} parts of the model, recurrences that are quantised dynamically or what runs"
            " under autocast, round in every step: they compute in float32 with the weights as they"
            f" are, which moves its outputs by up to {largest_move(computed, own, examples):.1e} of"
            " their largest value"
        )
        own, changed = computed, True
    if halves := widen_halves(graph.graph):
        graph.recompile()
        computed = _as_it_is(graph)
        notes.append(
            f"{halves} values of the model are in half precision: they are computed in float32,"
            f" which moves its outputs by up to {largest_move(computed, own, examples):.1e} of"
            " their largest value; --float16 has NNAPI compute in halves"
        )
        own, changed = computed, True
    if is_in_doubles(graph.graph):
        single = copy.deepcopy(graph)
        doubles = narrow_doubles(single.graph)
        single.recompile()
        computed = _as_it_is(single)
        move = largest_move(computed, own, examples)
        if move <= MOST:
            notes.append(
                f"{doubles} values of the model are in float64: they are computed in float32, which"
                f" moves its outputs by up to {move:.1e} of their largest value"
            )
            graph, own, changed = single, computed, True
        else:
            notes.append(
                f"float64 stays: in float32 the model's outputs would move by {move:.1e} of their"
                " largest value"
            )
    return graph, own, Float32Report(changed, tuple(notes))


def _as_it_is(graph: fx.GraphModule) -> Outputs:
    """The graph before the passes that follow change it."""
    return flat_outputs(copy.deepcopy(graph))
