"""Samples -> recipe: ranges of values are observed, and made to satisfy NNAPI's rules.

torchao observes and chooses; :mod:`nnapi_prof.precision.reconcile_qparams` changes what NNAPI
forbids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, fx

from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.node import bound_args, constant_value, describe, is_constant
from nnapi_prof.graph.program import Program
from nnapi_prof.graph.quantisation import QUANTIZE, RANGES, Scheme
from nnapi_prof.graph.types import Quantisation
from nnapi_prof.precision.correction import Means, corrections
from nnapi_prof.precision.demands import Formats, demands_of, refused
from nnapi_prof.precision.program import QUANTIZE_CHANNELS, quantise
from nnapi_prof.precision.recipe import Recipe


def calibrate(
    program: Program,
    samples: Iterable[Sequence[Tensor]],
    level: int,
    *,
    per_channel: bool | None = None,
    observer: str = "histogram",
) -> Recipe:
    """How ``program`` is quantised for accelerators of feature level ``level`` and up.

    ``level`` is as devices report it (27, 28, ...). Each of ``samples`` has the program's inputs,
    of its shapes and element types; the ranges of values are those seen for them. ``observer`` is
    how a range is chosen: ``histogram`` takes what rounds with the least squared error, ``minmax``
    the extremes, in half the time. Weights have a scale for each channel where the level has them,
    unless ``per_channel`` is False. Raises InputSpecError where there is no sample or one does not
    fit.
    """
    formats = Formats.at(level, per_channel)
    demands, refusals = demands_of(program, formats)
    with quiet_torch(), torch.no_grad():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

        from nnapi_prof.precision.quantizer import NnapiQuantizer, observed_copy
        from nnapi_prof.precision.reconcile_qparams import widen

        observed = observed_copy(program, NnapiQuantizer(program, demands, formats, observer))
        means = Means(observed, {name for d in demands.values() for name in d.inputs})
        n_samples = 0
        for sample in samples:
            _check_sample(program, sample)
            means.run_sample(sample)
            n_samples += 1
        if not n_samples:
            raise InputSpecError(
                f"no samples to calibrate {program.name} with", "give one at least, with its inputs"
            )
        widen(program, demands, formats, observed)
        converted = convert_pt2e(observed, fold_quantize=False)
        values, weights = _read_qparams(converted)
        gains = corrections(program, demands.values(), weights, means)
    recipe = Recipe(values, weights, frozenset(demands), refusals, formats.dtype, gains)
    refusals |= refused(quantise(program, recipe), level)
    return _only(program, recipe, refusals)


def _check_sample(program: Program, sample: Sequence[Tensor]) -> None:
    expected = [describe(example) for example in program.example_inputs]
    actual = [describe(value) for value in sample]
    if actual != expected:
        raise InputSpecError(
            f"a sample has the inputs {', '.join(map(str, actual))}, {program.name} takes "
            f"{', '.join(map(str, expected))}"
        )


def _only(program: Program, recipe: Recipe, refusals: dict[int, str]) -> Recipe:
    """The recipe without what only refused units need."""
    units = recipe.units - set(refusals)
    members = [program.units.units[unit] for unit in units]
    values = {name for unit in members for name in (*unit.inputs, *unit.outputs)}
    inside = {name for unit in members for name in unit.nodes}
    read = {s.name for name in inside for s in program.nodes[name].all_input_nodes}
    return Recipe(
        {name: quant for name, quant in recipe.values.items() if name in values},
        {name: scheme for name, scheme in recipe.weights.items() if name in read},
        units,
        dict(sorted(refusals.items())),
        recipe.dtype,
        {name: gain for name, gain in recipe.corrections.items() if name in inside},
    )


# What torchao says


def _read_qparams(converted: fx.GraphModule) -> tuple[dict[str, Quantisation], dict[str, Scheme]]:
    """Scales and zero points of values, and schemes of weights, from a converted module."""
    values: dict[str, Quantisation] = {}
    weights: dict[str, Scheme] = {}
    for node in converted.graph.nodes:
        if node.target not in (QUANTIZE, QUANTIZE_CHANNELS):
            continue
        args, source = bound_args(node), node.args[0]
        assert isinstance(source, fx.Node)
        dtype = str(args["dtype"]).removeprefix("torch.")
        if dtype not in RANGES:
            continue  # a bias, whose steps follow from the others
        if node.target is QUANTIZE_CHANNELS:
            scales = tuple(constant_value(args["scales"]).double().tolist())
            zeros = tuple(constant_value(args["zero_points"]).long().tolist())
            weights[source.name] = Scheme(scales, zeros, int(args["axis"]), dtype)
            continue
        scale, zero = float(args["scale"]), int(args["zero_point"])
        if is_constant(source):
            weights[source.name] = Scheme((scale,), (zero,), None, dtype)
        else:
            quant = values.setdefault(source.name, Quantisation(scale, zero))
            assert quant == Quantisation(scale, zero), f"{source.name} has two scales"
    return values, weights
