"""Plans in several precisions on this host: unit by unit, and the same as in whole regions."""

import random
from functools import cache

import pytest
import torch
from torch import Tensor

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import to_float16
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.errors import ConversionError
from nnapi_prof.graph.plan import Precision
from nnapi_prof.graph.program import Program, run_units
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.program import quantise
from nnapi_prof.precision.simulation import PrecisionSimulation
from tests.precision import common

INT8, FLOAT16, RELAXED = Precision.INT8, Precision.FLOAT16, Precision.RELAXED
NETS = ("mixture", "encoder", "squeezenet1_1")


@cache
def nnapi() -> HostNnapi:
    return HostNnapi(build_host().library)


@cache
def simulation(name: str) -> PrecisionSimulation:
    return PrecisionSimulation(common.program(name), nnapi(), common.recipe(name, 30))


def sample(program: Program) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    return tuple(
        torch.randn(value.shape, generator=generator) if value.is_floating_point() else value
        for value in program.example_inputs
    )


def as_regions(program: Program, recipe: Recipe, units: set[int], inputs: tuple[Tensor, ...]):
    """The outputs of the quantised program, its 8-bit units as NNAPI models of their own."""
    mixed = quantise(program, recipe, units)
    graph = mixed.program.units
    values = dict(zip(graph.inputs, inputs, strict=True))
    for unit in graph.units:
        if unit.index not in mixed.unit_of.values():
            values |= run_units(mixed.program, [unit.index], values)
            continue
        region = convert_region(mixed.program, [unit.index], 30)
        outputs = nnapi().compile(region).run([values[name] for name in region.inputs])
        values.update(zip(region.outputs, outputs, strict=True))
    return [values[name] for name in graph.outputs]


@pytest.mark.parametrize("name", NETS)
def test_a_plan_computes_what_the_quantised_program_does(name: str) -> None:
    whole = simulation(name)
    program, inputs = whole.program, sample(whole.program)
    assert whole.recipe is not None and len(whole.recipe.units) > 3
    choice = random.Random(0)
    for units in (whole.recipe.units, {u for u in whole.recipe.units if choice.random() < 0.5}):
        mine = whole.outputs(dict.fromkeys(units, INT8), inputs)
        theirs = as_regions(program, whole.recipe, set(units), inputs)
        assert all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize("name", NETS)
def test_float32_is_eager_pytorch(name: str) -> None:
    whole = simulation(name)
    inputs = sample(whole.program)
    with torch.no_grad():
        expected = whole.program.module(*inputs)
    for result in (whole.outputs({}, inputs), whole.reference(inputs)):
        assert all(map(torch.equal, result, expected))


@pytest.mark.parametrize("precision", [INT8, RELAXED])
@pytest.mark.parametrize("name", NETS)
def test_one_unit_alone_is_a_plan(name: str, precision: Precision) -> None:
    whole = simulation(name)
    inputs = sample(whole.program)
    values = whole.values(inputs)
    changed = 0
    for unit in range(len(whole.program.units.units)):
        if whole.refusal(unit, precision) is not None:
            continue
        mine = whole.alone(unit, precision, values)
        assert all(map(torch.equal, mine, whole.outputs({unit: precision}, inputs)))
        changed += not all(map(torch.equal, mine, whole.reference(inputs)))
    assert changed > 3


def test_a_unit_computes_alone_what_it_does_in_a_region() -> None:
    whole = simulation("squeezenet1_1")
    inputs = sample(whole.program)
    units = range(len(whole.program.units.units))
    region = to_float16(convert_region(whole.program, units, 30))
    (theirs,) = nnapi().compile(region).run(inputs)
    (mine,) = whole.outputs(dict.fromkeys(units, FLOAT16), inputs)
    assert torch.equal(mine, theirs)
    assert whole.recipe is not None
    quantised = quantise(whole.program, whole.recipe)
    inside = sorted(quantised.unit_of.values())
    region = convert_region(quantised.program, inside, 30)
    names = {v: k for k, v in quantised.integers.items()}
    integers: dict[str, Tensor] = {}
    values = dict(zip(whole.program.units.inputs, inputs, strict=True))
    entering = [whole._integers(name, values, integers) for name in region.inputs]
    (theirs,) = nnapi().compile(region).run(entering)
    scale = whole.recipe.values[names[region.outputs[0]]]
    (mine,) = whole.outputs(dict.fromkeys(whole.recipe.units, INT8), inputs)
    assert torch.equal(mine, (theirs.float() - scale.zero_point) * scale.scale)


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    program = common.program("mixture")
    without = PrecisionSimulation(program, nnapi())
    assert without.refusal(0, INT8) == "nothing was calibrated for 8 bits"
    assert without.refusal(0, RELAXED) is None
    with pytest.raises(ConversionError, match=r"unit 0 of \w+ \(.*\) cannot be in int8: nothing"):
        without.outputs({0: INT8}, sample(program))
    whole = simulation("mixture")
    assert whole.recipe is not None
    for unit, reason in whole.recipe.refusals.items():
        assert whole.refusal(unit, INT8) == reason
