"""``agent run`` of a converted region whose filters have a scale for each channel."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import operand_code
from nnapi_prof.device.protocol.actions import (
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import all_values, to_memory
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE

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
def test_a_region_with_channel_scales(agent_build: Path, tmp_path: Path, engine: Engine) -> None:
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    program = prepare(torch.export.export(Layer().eval(), (x,)), (x,), "layer")
    number = next(u.index for u in program.units.units if "conv2d" in u.label)
    region = convert_region(program, [number], 29)
    assert region.operations == ("CONV_2D",)
    values = all_values(program, (x,))

    request = RequestBuilder()
    blob = request.add_blob(to_memory(values[region.inputs[0]], region.input_types[0]))
    (read,), (written,) = region.input_types, region.output_types
    source = TensorSpec(operand_code(read), read.memory_shape, TensorSource.BLOB, blob)
    target = TensorSpec(operand_code(written), written.memory_shape, keep=True)
    segment = SegmentSpec(engine, request.add_region(region), (0,), (1,))
    request.add_action(ActionSpec(1, (source, target), (segment,), Timing.once()))
    for name, data in request.blobs.items():
        assert hashlib.sha256(data).hexdigest() == name
        (tmp_path / name).write_bytes(data)
    (tmp_path / "request").write_bytes(request.build())
    command = [agent_build / "agent", "run", "request", "--store", ".", "--work", "."]
    library = ["--nnapi-library", agent_build / "libneuralnetworks.so"]
    answer = subprocess.run([*command, *library], cwd=tmp_path, capture_output=True, check=False)
    lines = [json.loads(line) for line in answer.stdout.splitlines()]
    (result,) = [line for line in lines if line["type"] == "result"]
    assert result["status"] == "ok", result

    expected = to_memory(values[region.outputs[0]], region.output_types[0])
    actual = (tmp_path / result["outputs"][0]["file"]).read_bytes()
    steps = [abs(a - b) for a, b in zip(actual, expected, strict=True)]
    assert max(steps) <= 1
    assert sum(steps) < len(steps) / 50
