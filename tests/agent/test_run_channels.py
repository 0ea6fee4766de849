"""``agent run`` of a converted region whose filters have a scale for each channel."""

import pytest
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import all_values, to_memory
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE
from tests.agent.regions import computed

BYTES = (0, 255, torch.uint8)


class Layer(torch.nn.Module):
    """y[1, 40, 6, 6] of x[1, 3, 8, 8], by filters large enough for a buffer of their own."""

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.Generator().manual_seed(0)
        weight = torch.randint(-127, 128, (40, 3, 3, 3), generator=numbers).to(torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.rand(40, generator=numbers) * 0.004 + 0.001)
        self.register_buffer("zeros", torch.zeros(40, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = DEQUANTIZE(QUANTIZE(x, 0.03, 128, *BYTES), 0.03, 128, *BYTES)
        w = DEQUANTIZE_CHANNELS(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
        y = QUANTIZE(torch.nn.functional.conv2d(x, w), 0.05, 120, *BYTES)
        return DEQUANTIZE(y, 0.05, 120, *BYTES)


@pytest.mark.parametrize("engine", [Engine.CPU, Engine.NNAPI])
def test_a_region_with_channel_scales(agent_build, tmp_path, engine):
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    program = prepare(torch.export.export(Layer().eval(), (x,)), (x,), "layer")
    number = next(u.index for u in program.units.units if "conv2d" in u.label)
    region = convert_region(program, [number], 29)
    assert region.operations == ("CONV_2D",)
    values = all_values(program, (x,))
    actual = computed(agent_build, region, values[region.inputs[0]], tmp_path, engine)
    expected = to_memory(values[region.outputs[0]], region.output_types[0])
    steps = [abs(a - b) for a, b in zip(actual, expected, strict=True)]
    assert max(steps) <= 1
    assert sum(steps) < len(steps) / 50
