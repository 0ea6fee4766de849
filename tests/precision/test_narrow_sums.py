"""Sums that are rounded to float16 at every step: how far off the model says they are."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from nnapi_prof.device.protocol import HalfArithmetic
from nnapi_prof.execution.front import FrontSearch, float_precisions
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, Plan, Precision, Preference, Segment, Target
from nnapi_prof.precision.simulation import NARROW_DOUBT, PrecisionSimulation, error_spread

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
