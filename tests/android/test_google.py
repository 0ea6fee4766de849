"""What the converter makes, the agent, and the whole way over adbd, on the NNAPI runtimes that
Google built for Android 9 and 10 (google.py has where they are).

Where our emulator is kinder than they are, a phone is not.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import Region, operand_code
from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.store import CostStore
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
from nnapi_prof.execution.report import RunReport
from nnapi_prof.graph.node import torch_dtype
from nnapi_prof.graph.plan import Engine
from tests.android.google import ABI, APIS, NNAPI, RELEASES
from tests.android.phone import AndroidPhone
from tests.android.test_agent import run_the_agents_tests, say
from tests.android.test_commands import call, classify
from tests.cli.common import trace
from tests.convert.cases import CASES
from tests.convert.harness import Case, from_memory, to_memory

SHAPE = (1, 3, 16, 16)
INPUT = "1x3x16x16"
pytestmark = pytest.mark.again("other versions of Android")

# ---- the converter's cases, many in one process -------------------------------------------------
# A request's action is a process, and opening NNAPI costs it more than running a case. So an action
# has many cases, each a segment of its own; where one fails, its cases go one by one.

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
    command += ["--nnapi-library", "/" + phone.library.relative_to(phone.root).as_posix()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
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


@pytest.mark.parametrize("api", APIS)
def test_cases_are_eager_pytorchs(api, google_phone, tmp_path):
    """Each that converts at the level."""
    cases = {n: c for n, c in CASES.items() if api in c.levels and api not in c.refused}
    assert len(cases) > 800
    faults = faults_of(cases, api, google_phone(api), tmp_path)
    assert not faults, "\n".join(f"{name}: {fault}" for name, fault in faults.items())


def test_a_fault_is_told_of_its_case_alone(google_phone, tmp_path):
    """Among others in one action: an operation that Android 10 does not know, and a wrong value."""
    cases = {name: CASES[name] for name in ("add", "elu", "relu", "sub")}
    cases["sub"] = copy(cases["sub"])
    assert cases["sub"].program is not None  # of the true function
    object.__setattr__(cases["sub"], "function", lambda x, y: y - x)
    faults = faults_of(cases, 30, google_phone(29), tmp_path)
    assert set(faults) == {"elu", "sub"}
    assert "BAD_DATA" in faults["elu"] and "not close" in faults["sub"]


# ---- agent and commands -------------------------------------------------------------------------


def test_what_android_10_says_of_its_cpu(google_phone):
    """The level that is none, for which no model must be made."""
    phone = google_phone(29)
    info = json.loads(say(phone, "info", "--nnapi-library", NNAPI))
    (cpu,) = info["nnapi"]["accelerators"]
    assert (cpu["name"], cpu["feature_level"]) == ("nnapi-reference", 10000)
    info = json.loads(say(google_phone(28), "info", "--nnapi-library", NNAPI))
    assert info["nnapi"]["accelerators"] == [] and info["nnapi"]["error"] is None


FILES = (
    *("test_run_nnapi.py", "test_hand_over.py", "test_groups.py"),
    *("test_faults.py", "test_files.py", "test_info.py", "test_run_cpu.py"),
)
"""Tests of the agent that compute, and those of its life beside Android's code."""
OF_THE_EMULATOR = (
    *("simulated", "unreadable_phone", "every_fault", "cooling_down_has_a_limit", "rounds_share"),
    *("unsupported_operation_is_refused", "pipeline_of_two_engines", "emulator_in_real_time"),
    "android_9_cannot_name",  # the emulator without some functions
    "run_again_where_it_can_be and 31",  # at a level that these do not have
    "library_of_shared_memory",  # Android's own is loaded
)
NOT_HERE = (
    # Android's linker has handlers of its own for a crash, which QEMU does not survive
    *("crash_while_compiling", "breaks_when_opened and segv", "cut_off_midway"),
    "dies_while_the_devices",
    "closes_every_file",  # among them what Android's runtime computes with
)
SINCE_API_29 = (
    *("real_time", "unknown_accelerator", "channel_scales", "two_segments and 1-256"),
    *("durations_that_cannot_be", "run_again_where_it_can_be", "memory_runs_out"),
    # computations at once, which faulty.c stands before
    *("never_returns and execute", "leaks and execute", "prints_get_into", "take_turns"),
    *("single_run", "costs_its_line", "library_that_prints"),
    "many_runs_take_no_more_memory",  # each is a thread, and ten thousand are slow
)


@pytest.mark.parametrize("api", APIS)
def test_the_agents_own_tests(api, google_phone, tmp_path):
    left_out = OF_THE_EMULATOR + NOT_HERE + (SINCE_API_29 if api < 29 else ())
    run_the_agents_tests(google_phone(api), tmp_path, left_out, FILES)


class Telling(nn.Module):
    """What a mobile network is made of, and where Android 9 or 10 computes otherwise than one
    would think. [1, 3, 16, 16] -> [1, 5]"""

    def __init__(self, lstm: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU6()
        )
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.LayerNorm(8)
        self.lstm = nn.LSTM(8, 40, batch_first=True, bidirectional=True) if lstm else None
        self.head = nn.Linear(80 if lstm else 8, 5)
        shows = torch.eye(16, dtype=torch.bool).logical_not()
        shows[3] = False  # a row that is hidden wholly
        self.register_buffer("shows", shows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = F.max_pool2d(x + torch.relu(self.depthwise(x)), 2)
        tokens = x.flatten(2).transpose(1, 2)
        tokens = F.scaled_dot_product_attention(tokens, tokens, tokens, self.shows)
        tokens = F.pad(self.norm(tokens + 30), (0, 0, 1, 0))
        if self.lstm is not None:
            tokens, _ = self.lstm(tokens)
        return torch.softmax(self.head(tokens.mean(1)), 1)


@pytest.mark.parametrize("api", APIS)
def test_the_whole_way(api, start_google, embedded, tmp_path):
    """profile, partition, run, convert, and an app; all of the plan is on Google's code."""
    torch.manual_seed(4)
    network = Telling(lstm=api >= 29).eval()
    model = trace(network, tmp_path / "telling.pt", SHAPE)
    costs, bundle = tmp_path / "costs.sqlite", tmp_path / "telling.nnprof"
    device = start_google(api)
    named = ("--device", device, "--input", INPUT, "--costs", costs, "--preference", "fast")
    accelerator = "nnapi-reference" if api >= 29 else "auto"
    measured = ("--accelerator", accelerator, "--runs", 3, "--budget-ms", 0)
    call("profile", *named, *measured, model)
    target = f"nnapi:{accelerator}/fast"
    call("partition", *named, "--pin", f"*={target}", "--no-verify", "--output", bundle, model)
    call("run", "--device", device, "--runs", 3, bundle)
    report = RunReport.from_json((bundle / "run.json").read_text())
    says = "NNAPI: nnapi-reference" if api >= 29 else "NNAPI without names of accelerators"
    assert f"Android {RELEASES[api]}, API {api}, {ABI}; {says}" in report.device
    assert {segment.target for segment in report.runs[0].segments} == {target}
    assert report.checks and all(c.ok and c.tolerance <= 1e-4 for c in report.checks)
    assert all(run.error is None and run.total_ns for run in report.runs)
    with CostStore(costs) as store:
        (phone,) = store.devices()
        rows = list(store.measurements(phone.fingerprint))
    assert {row.status for row in rows} == {Status.OK}

    embeddable, image = tmp_path / "telling.nnprt", torch.randn(SHAPE)
    call("convert", "--format", "runtime", "--output", embeddable, bundle)
    bytes_, library = embeddable.read_bytes(), ("--nnapi-library", NNAPI)
    text, scores = classify(device, embedded(True), bytes_, image, *library)
    assert "segment 0: nnapi" in text
    with torch.inference_mode():
        expected = network(image).numpy().ravel()
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
