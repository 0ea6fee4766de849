"""Runs converted regions by the agent."""

import json
import subprocess
from pathlib import Path

import torch

from nnapi_prof.convert.region import Region, operand_code
from nnapi_prof.costs import SegmentFlag
from nnapi_prof.device.protocol.actions import (
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import to_memory


def computed(
    build: Path,
    region: Region,
    x: torch.Tensor,
    folder: Path,
    engine: Engine = Engine.CPU,
    flags: SegmentFlag = SegmentFlag.NONE,
) -> bytes:
    """What the agent of a build makes of a region's one input, as it lies in memory."""
    folder.mkdir(exist_ok=True)
    request = RequestBuilder()
    (read,), (written,) = region.input_types, region.output_types
    blob = request.add_blob(to_memory(x, read))
    tensors = (
        TensorSpec(operand_code(read), read.memory_shape, TensorSource.BLOB, blob),
        TensorSpec(operand_code(written), written.memory_shape, keep=True),
    )
    segment = SegmentSpec(engine, request.add_region(region), (0,), (1,), flags=flags)
    request.add_action(ActionSpec(1, tensors, (segment,), Timing.once()))
    for name, data in request.blobs.items():
        (folder / name).write_bytes(data)
    (folder / "request").write_bytes(request.build())
    command = [build / "agent", "run", "request", "--store", ".", "--work", "."]
    command += ["--nnapi-library", build / "libneuralnetworks.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    (result,) = [r for r in map(json.loads, done.stdout.splitlines()) if r["type"] == "result"]
    assert result["status"] == "ok", result
    return (folder / result["outputs"][0]["file"]).read_bytes()
