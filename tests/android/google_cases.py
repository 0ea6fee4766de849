"""The converter's cases, run by Android's agent on a phone: many in one process.

A request's action is a process, and opening NNAPI costs it more than running a case. So an action
has many cases, each a segment of its own; where one fails, its cases go one by one.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, operand_code
from nnapi_prof.device.protocol.actions import (
    ActionFlag,
    ActionSpec,
    SegmentSpec,
    TensorSource,
    TensorSpec,
    Timing,
)
from nnapi_prof.device.protocol.request import RequestBuilder
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph.node import torch_dtype
from nnapi_prof.graph.plan import Engine
from tests.android.phone import AndroidPhone
from tests.convert.harness import Case, from_memory, to_memory

TOGETHER = 50
"""Cases in an action."""
TWICE = replace(Timing.once(300_000), warmup_min=1, warmup_max=1)
"""The second run counts: one that leaves something behind is found."""


@dataclass
class Batch:
    """Cases of one action, and where their results are."""

    regions: dict[str, Region]
    tensors: list[TensorSpec] = field(default_factory=list)
    segments: list[SegmentSpec] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)
    """Case -> its result among ``tensors``."""


def faults_of(
    cases: Mapping[str, Case], level: int, phone: AndroidPhone, folder: Path
) -> dict[str, str]:
    """What is wrong with each of the cases that are not right on a phone, converted for a level."""
    faults: dict[str, str] = {}
    regions: dict[str, Region] = {}
    for name, case in cases.items():
        try:
            regions[name] = convert_region(case.program, [0], level)
        except UnsupportedOp as refusal:
            faults[name] = str(refusal)
    names = list(regions)
    parts = [names[i : i + TOGETHER] for i in range(0, len(names), TOGETHER)]
    alone = []
    for part, fault in _run(cases, regions, parts, phone, folder / "together").items():
        alone += [[name] for name in part] if fault else []
    for (name,), fault in _run(cases, regions, alone, phone, folder / "alone").items():
        if fault:
            faults[name] = fault
    return faults


def _run(
    cases: Mapping[str, Case],
    regions: Mapping[str, Region],
    parts: Sequence[Sequence[str]],
    phone: AndroidPhone,
    folder: Path,
) -> dict[tuple[str, ...], str]:
    """Runs an action for each part; what is wrong with it, empty where nothing is."""
    if not parts:
        return {}
    folder.mkdir(parents=True)
    builder = RequestBuilder()
    batches = []
    for number, part in enumerate(parts):
        batch = Batch({name: regions[name] for name in part})
        for name, region in batch.regions.items():
            _add(builder, batch, name, cases[name], region)
        batches.append(batch)
        parts_of = tuple(batch.tensors), tuple(batch.segments)
        builder.add_action(ActionSpec(number, *parts_of, TWICE, ActionFlag.UNTIMED))
    for digest, data in builder.blobs.items():
        (folder / digest).write_bytes(data)
    request = folder / "request"
    request.write_bytes(builder.build())
    command = phone.command("run", str(request), "--store", str(folder), "--work", str(folder))
    done = subprocess.run(
        [*command, "--nnapi-library", "/" + phone.library.relative_to(phone.root).as_posix()],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-1000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    results = {line["action"]: line for line in lines if line["type"] == "result"}
    return {
        tuple(part): _fault(cases, batch, results[number], folder)
        for number, (part, batch) in enumerate(zip(parts, batches, strict=True))
    }


def _add(builder: RequestBuilder, batch: Batch, name: str, case: Case, region: Region) -> None:
    """Adds a case to an action as a segment whose result is kept."""
    values = dict(zip(case.program.units.inputs, case.inputs, strict=True))
    first = len(batch.tensors)
    for sample_inputs, value_type in zip(region.inputs, region.input_types, strict=True):
        array = to_memory(values[sample_inputs], value_type).numpy().astype(value_type.device_dtype)
        blob = builder.add_blob(np.ascontiguousarray(array).tobytes())
        code = operand_code(value_type)
        batch.tensors.append(TensorSpec(code, value_type.memory_shape, TensorSource.BLOB, blob))
    (value_type,) = region.output_types
    code = operand_code(value_type)
    batch.results[name] = len(batch.tensors)
    inputs = tuple(range(first, len(batch.tensors)))
    batch.tensors.append(TensorSpec(code, value_type.memory_shape, keep=True))
    model = builder.add_region(region)
    batch.segments.append(SegmentSpec(Engine.NNAPI, model, inputs, (batch.results[name],)))


def _fault(cases: Mapping[str, Case], batch: Batch, result: dict[str, Any], folder: Path) -> str:
    """What is wrong with an action's result: that it failed, or a value that is not PyTorch's."""
    if result["status"] != "ok":
        return f"{result['status']} at {result['stage']}: {result['message']}"
    files = {outputs["tensor"]: outputs["file"] for outputs in result["outputs"]}
    for name, tensor in batch.results.items():
        case, (value_type,) = cases[name], batch.regions[name].output_types
        raw = (folder / files[tensor]).read_bytes()
        array = np.frombuffer(raw, value_type.device_dtype).reshape(value_type.memory_shape).copy()
        actual = from_memory(torch.from_numpy(array), value_type).to(torch_dtype(value_type.dtype))
        expected = case.function(*case.inputs)
        try:
            torch.testing.assert_close(actual, expected, rtol=case.rtol, atol=case.atol)
        except AssertionError as error:
            return f"{name}: {error}"
    return ""
