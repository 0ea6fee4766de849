"""The passes that normalise a graph. Each is a function ``Graph -> int``, the changes it made."""

from __future__ import annotations

from nnapi_prof.graph.passes.arithmetic import normalise_arithmetic, normalise_matmul
from nnapi_prof.graph.passes.assign_dim_order import assign_dim_order
from nnapi_prof.graph.passes.cancel_permutes import cancel_permutes
from nnapi_prof.graph.passes.drop_noops import drop_noops
from nnapi_prof.graph.passes.fold_constants import fold_constants, share_constants
from nnapi_prof.graph.passes.fuse_activations import fuse_activations
from nnapi_prof.graph.passes.infinities import ask_the_terms
from nnapi_prof.graph.passes.layers import (
    drop_finished_getitems,
    fold_batch_norm,
    normalise_layers,
)
from nnapi_prof.graph.passes.lift_permutes import lift_permutes
from nnapi_prof.graph.passes.lines import raise_lines
from nnapi_prof.graph.passes.movement import drop_expands, normalise_movement
from nnapi_prof.graph.passes.overloads import unify_overloads
from nnapi_prof.graph.passes.picking import pick_values
from nnapi_prof.graph.passes.placing import place_values
from nnapi_prof.graph.passes.promotion import state_promotion
from nnapi_prof.graph.passes.quantised import (
    fold_weights,
    move_integers,
    normalise_quantisation,
    part_conversions,
    spell_quantisation,
)
from nnapi_prof.graph.passes.quantised_floats import compute_conversions
from nnapi_prof.graph.passes.quantised_ranges import use_whole_ranges
from nnapi_prof.graph.passes.ranks import lower_ranks
from nnapi_prof.graph.passes.run import Pass, run_passes
from nnapi_prof.graph.passes.stacked import unstack_reductions
from nnapi_prof.graph.passes.views import merge_views, normalise_views
from nnapi_prof.graph.passes.volumes import slice_volumes
from nnapi_prof.graph.quantisation import annotate_quantisation

DEFAULT_PASSES: tuple[Pass, ...] = (
    drop_finished_getitems,  # first: rules ask which of several values are read
    drop_noops,  # before any matching: a clone between two nodes hides one from the other
    unify_overloads,  # before the passes that ask for one overload
    ask_the_terms,  # before fold_constants and normalise_movement, for what it writes
    state_promotion,  # before normalise_movement, which cuts and joins values of one type
    place_values,  # before normalise_movement, whose spelling it ends in
    spell_quantisation,  # before fold_constants: weights stay integers and a scale
    fold_constants,  # a transposed weight must be a constant before anything looks at it
    normalise_quantisation,  # before move_integers: asks for numbers
    compute_conversions,  # after normalise_quantisation: tells numbers from computed scales
    normalise_movement,  # before normalise_views and normalise_layers, whose spelling it ends in
    normalise_views,
    normalise_layers,
    normalise_arithmetic,
    fold_constants,  # views and products of constants that the three above wrote
    pick_values,  # after folding: asks for constant places
    move_integers,  # a transposed weight of integers is a weight to normalise_matmul
    normalise_matmul,  # after folding: asks for constant matrices
    drop_noops,  # what only the normal spelling shows: mul by 1, view to the same shape
    fold_batch_norm,  # after drop_noops: a dropout between layer and norm is gone
    slice_volumes,  # after fold_batch_norm, as raise_lines
    raise_lines,  # after fold_batch_norm, which wants the norm to read the layer itself
    move_integers,  # after the normal spelling of views, before they are merged
    use_whole_ranges,  # after move_integers, which drops conversions of the same integers
    merge_views,
    drop_expands,  # after the normal spelling of expand
    unstack_reductions,  # before lower_ranks, which would merge the dimension of the stack
    lower_ranks,  # after merge_views: a permutation must be seen between its two views
    drop_noops,  # a view of a view that ends where it began hides one permute from another
    lift_permutes,  # after merge_views; before cancel_permutes, which may cancel what it writes
    cancel_permutes,  # before assign_dim_order: a permute and its inverse would force clones
    drop_noops,  # the same between two permutes that are gone
    fold_weights,  # after everything that may bring a weight to its quantised operation
    share_constants,  # after all folding, which writes constants
    part_conversions,  # before annotate_quantisation, which types its nodes
    annotate_quantisation,  # before assign_dim_order: quantised images have an order
    assign_dim_order,  # after everything that adds or drops nodes
    fuse_activations,  # last: units must not cross a clone that assign_dim_order put in
)

__all__ = ["DEFAULT_PASSES", "Pass", "run_passes"]
