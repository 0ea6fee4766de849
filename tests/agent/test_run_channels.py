"""``agent run`` of a converted region whose filters have a scale for each channel."""

import pytest
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import all_values, to_memory
from tests.agent.regions import Channels, computed


@pytest.mark.parametrize("engine", [Engine.CPU, Engine.NNAPI])
def test_a_region_with_channel_scales(agent_build, tmp_path, engine):
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    program = prepare(torch.export.export(Channels(40).eval(), (x,)), (x,), "layer")
    number = next(u.index for u in program.units.units if "conv2d" in u.label)
    region = convert_region(program, [number], 29)
    assert region.operations == ("CONV_2D",)
    values = all_values(program, (x,))
    actual = computed(agent_build, region, values[region.inputs[0]], tmp_path, engine=engine)
    expected = to_memory(values[region.outputs[0]], region.output_types[0])
    steps = [abs(a - b) for a, b in zip(actual, expected, strict=True)]
    assert max(steps) <= 1
    assert sum(steps) < len(steps) / 50
