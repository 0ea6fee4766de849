"""The CPU engine in float16 (flag bit 1 of a segment) against eager PyTorch's float16."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.costs import SegmentFlag
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Precision
from nnapi_prof.graph.program import from_memory
from nnapi_prof.precision.metrics import BuiltInMetric, stacked
from nnapi_prof.precision.sensitivity import AccuracyEvaluator, Data
from nnapi_prof.precision.simulation import MOVES, PrecisionSimulation, kept_in_float32
from tests.agent.regions import computed
from tests.models import Function


def residual(x, first, second):
    """Layers in a row, with an EXP, which stays in float32, between them."""
    return x + second(torch.exp(-nn.functional.relu6(first(x))))


IMAGE = (1, 8, 12, 10)
torch.manual_seed(0)  # weights
OPERATIONS: dict[str, tuple[Any, ...]] = {
    "conv": (nn.Conv2d(8, 24, 3, padding=1), IMAGE, 72),
    "conv over 2304": (nn.Conv2d(256, 16, 3), (1, 256, 6, 6), 2304),
    "pointwise": (nn.Conv2d(8, 40, 1), IMAGE, 8),
    "strided": (nn.Conv2d(8, 8, 5, stride=2, dilation=2, padding=4), IMAGE, 200),
    "grouped": (nn.Conv2d(8, 16, 3, groups=4), IMAGE, 18),
    "depthwise": (nn.Conv2d(8, 8, 3, padding=1, groups=8), IMAGE, 9),
    "depthwise 5x5": (nn.Conv2d(8, 8, 5, padding=2, groups=8), IMAGE, 25),
    "transposed": (nn.ConvTranspose2d(8, 6, 4, stride=2, padding=1), IMAGE, 32),
    "linear": (nn.Linear(300, 70), (3, 300), 300),
    "product": (Function(lambda x: x @ x.transpose(1, 2)), (2, 9, 40)),
    "add": (Function(lambda x: x + x.flip(3)[..., :1]), IMAGE),
    "subtract": (Function(lambda x: x - x.mean(3, keepdim=True)), IMAGE),
    "multiply": (Function(lambda x: x * (x + 1)), IMAGE),
    "divide": (Function(lambda x: x / (torch.abs(x) + 1)), IMAGE),
    "maximum": (Function(lambda x: torch.maximum(x, -x)), IMAGE),
    "minimum": (Function(lambda x: torch.minimum(x, x * 0.5)), IMAGE),
    "prelu": (nn.PReLU(8, 0.3), IMAGE),
    "relu": (nn.ReLU(), IMAGE),
    "relu6": (nn.ReLU6(), IMAGE),
    "sigmoid": (nn.Sigmoid(), IMAGE, 8),  # a polynomial and a quotient
    "tanh": (nn.Tanh(), IMAGE),
    "hardswish": (nn.Hardswish(), IMAGE),
    "elu": (nn.ELU(), IMAGE),
    "floor": (Function(lambda x: torch.floor(x * 4)), IMAGE),
    "softmax": (nn.Softmax(-1), (4, 1000)),
    "average pool": (nn.AvgPool2d(3, 2), IMAGE),
    "max pool": (nn.MaxPool2d(3, 2), IMAGE),
    "mean": (Function(lambda x: x.mean((2, 3))), (1, 8, 40, 40)),
    "sum": (Function(lambda x: x.sum(-1)), (3, 200)),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "exp": (Function(torch.exp), IMAGE),
    "log": (Function(lambda x: torch.log(torch.abs(x) + 1)), IMAGE),
    "sine": (Function(torch.sin), IMAGE),  # no kernel of XNNPACK's
    "square root": (Function(lambda x: torch.sqrt(torch.abs(x))), IMAGE),
    "concatenation": (Function(lambda x: torch.cat([x, x * 2], 1)), IMAGE),
    "layer norm": (nn.LayerNorm(64), (3, 64)),
    "several": (
        Function(residual, **{at: nn.Conv2d(8, 8, 3, padding=1) for at in ("first", "second")}),
        *(IMAGE, 72),
    ),
}
"""Module, shape, and terms of sums, which Arm's kernels round to float16 at every step
(docs/precision.md)."""
REFUSED = {"product"}
"""By XNNPACK, though it has others of their operations in float16: errors count as float16's."""


@pytest.fixture
def arithmetic(agent):
    """How the processor computes in float16."""
    return agent.info()["cpu_float16"]


@pytest.fixture
def native(arithmetic):
    """Whether it rounds at each step."""
    if arithmetic == "none":
        pytest.skip("this processor has no float16 for the CPU engine")
    return arithmetic == "native"


def exported(module, x):
    """The program of a module, its units, and the region that has them all."""
    program = prepare(torch.export.export(module, (x,)), (x,), "operation")
    units = [unit.index for unit in program.units.units]
    return program, units, convert_region(program, units, 30)


def output(build, region, x, flags, folder):
    """What the CPU engine makes of a region's input."""
    return from_memory(computed(build, region, x, folder, flags=flags), region.output_types[0])


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_within_twice_its_float16_rounding(name, agent_build, native, tmp_path):
    """The rounding is what eager float16 itself is off eager float32 by, and at least half a step
    of the largest result. Where a sum is rounded at each step, it grows with the root of its terms.
    """
    module, shape, *sums = OPERATIONS[name]
    module = module.eval()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    program, units, region = exported(module, x)
    half = output(agent_build, region, x, SegmentFlag.HALF, tmp_path / "half")
    single = output(agent_build, region, x, SegmentFlag.NONE, tmp_path / "single")
    with torch.no_grad():
        exact = module(x)
        eager = module.half()(x.half()).float()
        module.float()
    rounding = max(float((eager - exact).abs().max()), 2.0**-11 * float(exact.abs().max()))
    terms = max(sums, default=1) if native else 1
    off = float((half - eager).abs().max())
    print(f"{name}: {off / rounding:.2f} roundings off")
    assert off <= 2 * rounding * max(1, math.sqrt(terms) / 2)
    torch.testing.assert_close(single, exact, rtol=1e-4, atol=1e-5)
    in_half = float((half - single).abs().max()) > 0.1 * rounding
    alone = {unit: convert_region(program, [unit], 30).model.operations for unit in units}
    computing = [unit for unit in units if not {each.code for each in alone[unit]} <= MOVES]
    in_float32 = kept_in_float32(program, units, native)
    assert in_half == (not in_float32.issuperset(computing) and name not in REFUSED)


def attention(x, qkv, out, mlp):
    """A block of a transformer, without its residuals' norms. [1, 12, 48] -> the same"""
    query, key, value = qkv(x).chunk(3, -1)
    weights = torch.softmax(query @ key.transpose(1, 2) / math.sqrt(48), -1)
    x = x + out(weights @ value)
    return x + mlp(x)


def inverted(channels: int, size: int) -> list[nn.Module]:
    """Layers of MobileNetV3's blocks."""
    return [
        *(nn.Conv2d(channels, 4 * channels, 1), nn.Hardswish()),
        nn.Conv2d(4 * channels, 4 * channels, size, padding=size // 2, groups=4 * channels),
        *(nn.Hardswish(), nn.Conv2d(4 * channels, channels, 1)),
    ]


NETWORKS = {
    "convolutions": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 24, 3, 2), nn.ReLU(), nn.Conv2d(24, 32, 3), nn.ReLU()),
            *(nn.Conv2d(32, 48, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            nn.Linear(48, 10),
        ),
        (1, 3, 24, 24),
    ),
    "depthwise": (
        lambda: nn.Sequential(nn.Conv2d(3, 16, 3, 2), *inverted(16, 3), *inverted(16, 5)),
        (1, 3, 24, 24),
    ),
    "long sums": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 256, 3, 2), nn.ReLU(), nn.Conv2d(256, 32, 3), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
        ),
        (1, 3, 16, 16),
    ),
    "attention": (
        lambda: Function(
            attention,
            **dict(qkv=nn.Linear(48, 144), out=nn.Linear(48, 48)),
            mlp=nn.Sequential(
                *(nn.LayerNorm(48), nn.Linear(48, 192), nn.GELU(), nn.Linear(192, 48))
            ),
        ),
        (1, 12, 48),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_networks_error_lies_in_the_interval_that_its_plan_has(
    name, agent_build, emulator_library, native, tmp_path
):
    """All of it in float16, on other data than the interval is from."""
    factory, shape = NETWORKS[name]
    samples = [torch.randn(shape) * (0.2 + i % 5 / 2) for i in range(16)]  # outputs vary
    program, units, region = exported(factory().eval(), samples[0])
    simulation = PrecisionSimulation(program, HostNnapi(emulator_library))
    in_float32 = kept_in_float32(program, units, native)
    others = [unit for unit in units if unit not in in_float32]
    halves = [unit for unit in others if not simulation.refusal(unit, Precision.FLOAT16)]
    chosen = dict.fromkeys(halves, Precision.FLOAT16)
    judge = AccuracyEvaluator(simulation, Data([(x,) for x in samples[:10]]))
    printed = judge.error(chosen, chosen if native else ()).calibrated
    outputs = [
        output(agent_build, region, x, SegmentFlag.HALF, tmp_path / str(i))
        for i, x in enumerate(samples[10:])
    ]
    reference = judge.reference.over(stacked([simulation.reference((x,)) for x in samples[10:]]))
    error = BuiltInMetric().estimate(stacked([(y,) for y in outputs]), reference).error
    assert printed.low <= error <= printed.high, (error, printed)


def test_relaxed_is_float32_where_float16_is_not_faster(agent_build, arithmetic, tmp_path):
    module, shape, _ = OPERATIONS["conv"]
    x = torch.randn(shape)
    _, _, region = exported(module, x)
    single = output(agent_build, region, x, SegmentFlag.NONE, tmp_path / "single")
    relaxed = output(agent_build, region, x, SegmentFlag.RELAXED, tmp_path / "relaxed")
    assert torch.equal(single, relaxed) == (arithmetic != "native")
