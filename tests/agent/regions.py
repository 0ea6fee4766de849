"""Runs converted regions by the agent."""

import json
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nnapi_prof.convert.region import Region, operand_code
from nnapi_prof.costs import SegmentFlag
from nnapi_prof.device.protocol import actions
from nnapi_prof.device.protocol.actions import ActionSpec, SegmentSpec, TensorSource, TensorSpec
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import to_memory
from nnapi_prof.graph.quantisation import DEQUANTIZE, DEQUANTIZE_CHANNELS, QUANTIZE


class Channels(nn.Module):
    """A convolution of bytes with a scale for each of ``n`` channels: [1, 3, h, w] -> [1, n, h - 2,
    w - 2]. Filters of 40 are large enough for a buffer of their own."""

    def __init__(self, n: int, signed: bool = False) -> None:
        super().__init__()
        self.bytes = (-128, 127, torch.int8) if signed else (0, 255, torch.uint8)
        self.zero = 0 if signed else 128
        numbers = torch.Generator().manual_seed(0)
        weight = torch.randint(-127, 128, (n, 3, 3, 3), generator=numbers).to(torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", torch.rand(n, generator=numbers) * 0.004 + 0.001)
        self.register_buffer("zeros", torch.zeros(n, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = DEQUANTIZE(QUANTIZE(x, 0.03, self.zero, *self.bytes), 0.03, self.zero, *self.bytes)
        w = DEQUANTIZE_CHANNELS(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
        y = QUANTIZE(nn.functional.conv2d(x, w), 0.05, self.zero - 8, *self.bytes)
        return DEQUANTIZE(y, 0.05, self.zero - 8, *self.bytes)


def put_request(folder, region, x, engine=Engine.CPU, flags=SegmentFlag.NONE, threads=(1,)):
    """Writes a request that runs a region once for each number of threads, and its blobs; returns
    the agent's arguments in that folder."""
    folder.mkdir(exist_ok=True)
    request = RequestBuilder()
    (read,), (written,) = region.input_types, region.output_types
    blob = request.add_blob(to_memory(x, read))
    tensors = (
        TensorSpec(operand_code(read), read.memory_shape, TensorSource.BLOB, blob),
        TensorSpec(operand_code(written), written.memory_shape, keep=True),
    )
    segment = SegmentSpec(engine, request.add_region(region), (0,), (1,), flags=flags)
    for n in threads:
        request.add_action(ActionSpec(n, tensors, (segment,), actions.Timing.once(), threads=n))
    for name, data in request.blobs.items():
        (folder / name).write_bytes(data)
    (folder / "request").write_bytes(request.build())
    return ["run", "request", "--store", ".", "--work", "."]


def results_of(answer: bytes | str) -> list[dict[str, Any]]:
    """The results in an agent's answer, all well."""
    lines = [json.loads(line) for line in answer.splitlines()]
    results = [line for line in lines if line["type"] == "result"]
    assert all(each["status"] == "ok" for each in results), results
    return results


def computed(build: Path, region: Region, x: torch.Tensor, folder: Path, **options: Any) -> bytes:
    """Returns the outputs of a build's agent for a region's one input, as they lie in memory."""
    command = [build / "agent", *put_request(folder, region, x, **options)]
    command += ["--nnapi-library", build / "libneuralnetworks.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    (result,) = results_of(done.stdout)
    return (folder / result["outputs"][0]["file"]).read_bytes()
