"""Plans in several precisions on this host: unit by unit, and how far off sums in float16 are."""

import random
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import to_float16
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.device.protocol import HalfArithmetic
from nnapi_prof.errors import ConversionError
from nnapi_prof.execution.front import FrontSearch, float_precisions
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Plan, Precision, Preference, Segment, Target
from nnapi_prof.graph.program import Program, run_units
from nnapi_prof.precision import Recipe
from nnapi_prof.precision.program import quantise
from nnapi_prof.precision.simulation import NARROW_DOUBT, PrecisionSimulation, error_spread
from tests.precision import common

aten = torch.ops.aten
NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
Case = tuple[Any, tuple[Any, ...], Tensor]
"""An operator, its arguments, and its result with sums rounded at every step."""


def halves(*shape: int) -> Tensor:
    return torch.randn(shape).half().float()


def stepwise(weights: Tensor, columns: Tensor, bias: Tensor) -> Tensor:
    """[O, K] by [K, L], a product and its sum rounded as one, in the order of K."""
    total = bias[:, None].expand(-1, columns.shape[1]).double()
    for k in range(weights.shape[1]):
        total = (total + weights[:, k, None].double() * columns[k].double()).half().double()
    return total


def convolution(channels: int, activated: bool) -> Case:
    x, weight, bias = halves(1, channels, 16, 16), halves(32, channels, 3, 3) / 16, halves(32)
    x = x.relu() if activated else x
    args = (x, weight, bias, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    columns = nn.functional.unfold(x, 3)[0]
    return aten.convolution.default, args, stepwise(weight.flatten(1), columns, bias)


def linear(terms: int) -> Case:
    x, weight, bias = halves(64, terms), halves(48, terms), halves(48)
    return aten.linear.default, (x, weight, bias), stepwise(weight, x.T, bias).T


@pytest.mark.parametrize(
    "case",
    [
        lambda: convolution(8, False),
        lambda: convolution(64, False),
        lambda: convolution(64, True),
        lambda: linear(30),
        lambda: linear(1000),
    ],
    ids=["72 products", "576", "576 of activations", "30", "1000"],
)
def test_the_spread_is_that_of_sums_rounded_at_every_step(case: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    target, args, rounded = case()
    exact = target(*[arg.double() if isinstance(arg, Tensor) else arg for arg in args])
    spread = error_spread(target, args, exact)
    assert spread is not None
    errors = (rounded.flatten() - exact.flatten()) / spread.flatten()
    assert 1 / NARROW_DOUBT < float(errors.square().mean().sqrt()) < NARROW_DOUBT
    assert float((errors.abs() < 2).double().mean()) > 0.92


def test_what_adds_up_in_float32_has_no_spread() -> None:
    x = halves(1, 4, 8, 8)
    assert error_spread(aten.mean.dim, (x, [2, 3]), x) is None
    assert error_spread(aten.relu.default, (x,), x) is None


def test_units_of_a_cpu_that_adds_up_in_float16_are_further_off() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 8, 3)).eval()
    x = torch.randn(1, 32, 16, 16)
    program = prepare(net, (x,), "net")
    units = {unit.index: Precision.FLOAT16 for unit in program.units.units}
    unused = cast(Any, SimpleNamespace())

    def errors() -> Tensor:
        (output,) = PrecisionSimulation(program, unused).outputs(units, (x,), units.keys())
        return output - net(x).detach()

    assert torch.equal(errors(), errors()), "one draw, the same each time"
    relative = float((errors().square().mean() / net(x).detach().var()).sqrt())
    assert 2.0**-11 * 4 < relative < 2.0**-11 * 12, "by 288 products twice: 2^-11 times about 9"


@pytest.mark.parametrize(
    ("targets", "precisions"),
    [
        ((NPU.at(Precision.RELAXED), CPU), "relaxed"),
        ((NPU, NPU.at(Precision.RELAXED), CPU.at(Precision.RELAXED)), "float32"),
        ((NPU.at(Precision.INT8), CPU.at(Precision.FLOAT16)), "float16"),
        ((CPU, CPU.at(Precision.RELAXED)), "relaxed float32"),
        ((NPU.at(Precision.INT8),), "float32"),
    ],
)
def test_the_floats_of_a_plan_run_in_one_precision(
    targets: tuple[Target, ...], precisions: str
) -> None:
    segments = tuple(Segment((i,), target, 1.0, "a test") for i, target in enumerate(targets))
    chosen = float_precisions(Plan("a test", segments, True))
    assert [precision.value for precision in chosen] == precisions.split()


@pytest.mark.parametrize(
    ("cpu", "precision", "narrow"),
    [
        (HalfArithmetic.NONE, Precision.FLOAT32, set()),
        (HalfArithmetic.EMULATED, Precision.FLOAT32, set()),
        (HalfArithmetic.NATIVE, Precision.RELAXED, {0}),
    ],
)
def test_float_units_on_the_cpu_run_in_the_precision_of_the_accelerators(
    cpu: HalfArithmetic, precision: Precision, narrow: set[int]
) -> None:
    """Relaxed; unit 1 cannot be in float16, and unit 2 is kept in float32."""

    def refusal(unit: int, _precision: Precision) -> str | None:
        return "no" if unit == 1 else None

    judge = SimpleNamespace(simulation=SimpleNamespace(refusal=refusal))
    noise = SimpleNamespace(in_float32=frozenset({2}))
    stubs = cast(Any, (SimpleNamespace(n=4), noise, judge, None, print))
    search = FrontSearch(*stubs, cpu)
    segments = (
        Segment((0, 1, 2), CPU, 1.0, "a test"),
        Segment((3,), NPU.at(Precision.RELAXED), 1.0, "a test"),
    )
    chosen, own = search._as_run(Plan("a test", segments, True), Precision.RELAXED)
    wide = Precision.FLOAT32
    assert chosen == (precision, wide, wide, Precision.RELAXED) and own == narrow


# ---- regions, and units alone --------------------------------------------------------------------

INT8, FLOAT16, RELAXED = Precision.INT8, Precision.FLOAT16, Precision.RELAXED
NETS = ("mixture", "encoder", "squeezenet1_1")


@cache
def nnapi() -> HostNnapi:
    return HostNnapi(build_host().library)


@cache
def simulation(name: str) -> PrecisionSimulation:
    return PrecisionSimulation(common.program(name), nnapi(), common.recipe(name, 30))


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
    program, inputs = whole.program, common.sample(name, 5)
    assert whole.recipe is not None and len(whole.recipe.units) > 3
    choice = random.Random(0)
    for units in (whole.recipe.units, {u for u in whole.recipe.units if choice.random() < 0.5}):
        mine = whole.outputs(dict.fromkeys(units, INT8), inputs)
        theirs = as_regions(program, whole.recipe, set(units), inputs)
        assert all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize("name", NETS)
def test_float32_is_eager_pytorch(name: str) -> None:
    whole, inputs = simulation(name), common.sample(name, 5)
    with torch.no_grad():
        expected = whole.program.module(*inputs)
    for result in (whole.outputs({}, inputs), whole.reference(inputs)):
        assert all(map(torch.equal, result, expected))


@pytest.mark.parametrize("precision", [INT8, RELAXED])
@pytest.mark.parametrize("name", NETS)
def test_one_unit_alone_is_a_plan(name: str, precision: Precision) -> None:
    whole, inputs = simulation(name), common.sample(name, 5)
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
    whole, inputs = simulation("squeezenet1_1"), common.sample("squeezenet1_1", 5)
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
        without.outputs({0: INT8}, common.sample("mixture", 5))
    whole = simulation("mixture")
    assert whole.recipe is not None
    for unit, reason in whole.recipe.refusals.items():
        assert whole.refusal(unit, INT8) == reason
