"""Operators composed of several quant8 operations: within a step for every integer."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.quantize_rules import error_on_the_way
from nnapi_prof.device.build import build_host
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from tests.convert.harness import FIRST, aten, program_of

OPERATORS = {
    "gelu": (aten.gelu.default, lambda x: aten.gelu.default(x)),
    "gelu by tanh": (aten.gelu.default, lambda x: aten.gelu.default(x, approximate="tanh")),
    "silu": (aten.silu.default, aten.silu.default),
    "hardsigmoid": (aten.hardsigmoid.default, aten.hardsigmoid.default),
    "hardswish": (aten.hardswish.default, aten.hardswish.default),
    "neg": (aten.neg.default, aten.neg.default),
    "div": (aten.div.Tensor, lambda x: aten.div.Tensor(x, -3.7)),
}
LEVELS = {28: (2, torch.uint8), 29: (3, torch.uint8), 30: (4, torch.int8)}


@pytest.fixture(scope="module")
def nnapi():
    return HostNnapi(build_host().library)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_integer_within_a_step(name, level, nnapi):
    number, dtype = LEVELS[level]
    info = torch.iinfo(dtype)
    every = torch.arange(info.min, info.max + 1, dtype=dtype).reshape(1, 256)
    target, function = OPERATORS[name]
    limits = (info.min, info.max, dtype)

    @settings(max_examples=12)
    @given(
        st.floats(-3, -0.5).map(lambda power: float(np.float32(10**power))),
        st.integers(info.min, info.max),
        st.floats(1.001, 4),
    )
    def check(scale, zero, coarse):
        low, high = ((end - zero) * scale for end in (info.min, info.max))
        floats = torch.linspace(low, high, 2000)
        result = function(floats)
        least, most = min(float(result.min()), 0.0), max(float(result.max()), 0.0)
        bound = max(
            error_on_the_way(target, number, low, high), scale / 255, (most - least) / 255, 1e-4
        )
        step = float(np.float32(bound * coarse))
        out = (step, min(max(round(info.min - least / step), info.min), info.max))
        program = program_of(
            lambda x: QUANTIZE(function(DEQUANTIZE(x, scale, zero, *limits)), *out, *limits),
            (every,),
            FIRST,
        )
        region = convert_region(program, [0], level)
        assert not region.in_floats
        (actual,) = nnapi.compile(region).run([every])
        (expected,) = (
            program.module(every)
            if isinstance(program.module(every), tuple)
            else (program.module(every),)
        )
        assert int((actual.int() - expected.int()).abs().max()) <= 1

    check()


@pytest.mark.parametrize("name", ["gelu", "silu", "hardsigmoid"])
def test_a_result_of_finer_steps_than_the_way_is_refused(name):
    function = OPERATORS[name][1]
    limits = (0, 255, torch.uint8)
    program = program_of(
        lambda x: QUANTIZE(function(DEQUANTIZE(x, 0.05, 128, *limits)), 0.001, 20, *limits),
        (torch.zeros(1, 8, dtype=torch.uint8),),
        FIRST,
    )
    region = convert_region(program, [0], 29)
    (why,) = region.in_floats.values()
    assert "roundings on the way would move results by" in why
    with pytest.raises(UnsupportedOp, match="less than one is allowed"):
        convert_region(program, [0], 28)


def test_division_by_what_is_computed_is_refused():
    limits = (0, 255, torch.uint8)
    program = program_of(
        lambda x, y: QUANTIZE(
            aten.div.Tensor(DEQUANTIZE(x, 0.05, 128, *limits), DEQUANTIZE(y, 0.05, 0, *limits)),
            0.1,
            20,
            *limits,
        ),
        (torch.zeros(1, 8, dtype=torch.uint8), torch.ones(1, 8, dtype=torch.uint8)),
        FIRST,
    )
    (why,) = convert_region(program, [0], 29).in_floats.values()
    assert "DIV by a computed value has no quant8 form" in why
