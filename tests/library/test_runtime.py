"""The runtime library through its C API: bundles in one file, run on the emulator and the CPU."""

import ctypes
import re
import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from nnapi_prof.bundle.deployment import runtime_bundle
from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.cli.convert import command
from nnapi_prof.costs import Conditions
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.build import DescribedDevice, bundle_at
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, HOST, Plan, Segment
from nnapi_prof.precision.calibrate import calibrate
from nnapi_prof.precision.program import quantise
from tests.library import embedding
from tests.library.conftest import REFERENCE
from tests.library.embedding import (
    ASYNC,
    BURST,
    CPU_FALLBACK,
    POINTERS,
    UNKNOWN_NS,
    RuntimeFailure,
    make_bundle,
    plan_of,
)
from tests.processes import output_of

BAD_ARGUMENT, BAD_BUNDLE, MISSING = 1, 2, 6
NO_LIBRARY, NO_ACCELERATOR = 1, 2
FLAGS = [0, BURST, ASYNC, POINTERS, POINTERS | ASYNC, embedding.DURATIONS, embedding.TRIAL]


@pytest.fixture(scope="session")
def content(sample):
    return runtime_bundle(sample.bundle)


@pytest.fixture(scope="session")
def runtime(opened, content):
    return opened(content)


def close(result: bytes, expected: torch.Tensor) -> bool:
    values = np.frombuffer(result, np.float32)
    return bool(np.allclose(values, expected.numpy().ravel(), rtol=1e-5, atol=1e-6))


def test_what_is_in_it(runtime):
    (image,) = runtime.inputs()
    (scores,) = runtime.outputs()
    assert runtime.plans() == ["mixed", "auto", "cpu", "elsewhere"]
    assert (image.type, list(image.dims[: image.rank])) == (3, [1, 3, 12, 10])
    assert list(image.dim_order[:4]) == [0, 1, 2, 3]
    assert image.n_bytes == 3 * 12 * 10 * 4
    assert (list(scores.dims[: scores.rank]), scores.n_bytes) == ([1, 10], 40)


@pytest.mark.parametrize("limit_ns", [0, 60_000_000_000])
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("plan", [0, 1, 2])
def test_outputs_are_those_of_eager_pytorch(runtime, sample, plan, flags, limit_ns):
    model = runtime.model(plan, flags, compile_limit_ns=limit_ns, run_limit_ns=limit_ns)
    for turn in range(3):
        image = sample.image.numpy() if turn != 1 else np.zeros((1, 3, 12, 10), np.float32)
        (result,) = model.run([image], [40])
        assert close(result, sample.expected) == (turn != 1)
    on_nnapi = [s.engine == b"nnapi" for s in model.segments()]
    assert on_nnapi == [[True, False, True], [True], [False]][plan]
    for segment in model.segments():
        assert segment.fell_back == 0
        assert segment.shared_memory == (segment.engine == b"nnapi" and not flags & POINTERS)
        assert 0 < segment.last_ns < UNKNOWN_NS
        assert 0 < segment.first_ns < UNKNOWN_NS
        asked = segment.accelerator is not None and flags & embedding.DURATIONS
        assert (segment.hardware_ns != UNKNOWN_NS) == bool(asked)
    assert model.last_ns() >= sum(s.last_ns for s in model.segments())


def test_its_own_buffers_and_the_callers_in_turn(runtime, sample):
    model = runtime.model()
    assert model.last_ns() == UNKNOWN_NS
    model.write_input(0, sample.image.numpy().tobytes())
    model.run(None)
    assert close(model.read_output(0, 40), sample.expected)
    (other,) = model.run([sample.image.numpy() * 2], [40])
    assert not close(other, sample.expected)
    model.write_input(0, sample.image.numpy().tobytes())
    for _ in range(2):
        assert close(model.run(None, [40])[0], sample.expected)


def test_an_accelerator_that_is_not_there(runtime, sample):
    words = 'no accelerator is called "some-other-npu"'
    with pytest.raises(RuntimeFailure, match=words) as failure:
        runtime.model(3)
    assert (failure.value.status, failure.value.segment) == (MISSING, 0)
    events = []

    @embedding.LOG
    def note(_context, event):
        it = event.contents
        events.append((it.plan, it.segment, it.accelerator, it.cause, it.message))

    model = runtime.model(3, CPU_FALLBACK, log=note)
    (segment,) = model.segments()
    assert (segment.engine, segment.fell_back, segment.cause) == (b"cpu", 1, NO_ACCELERATOR)
    assert b"some-other-npu" in segment.why
    line = b"segment 0 of plan 3 runs on the CPU instead of some-other-npu: " + segment.why
    assert events == [(3, 0, b"some-other-npu", NO_ACCELERATOR, line)]
    assert close(model.run([sample.image.numpy()], [40])[0], sample.expected)


def test_units_say_where_they_run_and_their_share(runtime, sample):
    graph = sample.bundle.graph
    for index, name in enumerate(runtime.plans()):
        plan = next(p for p in sample.bundle.plans if p.name == name)
        model = runtime.model(index, CPU_FALLBACK)
        units = model.units()
        order = [(graph.units[u].label, i) for i, s in enumerate(plan.segments) for u in s.units]
        assert [(u.name.decode(), u.segment) for u in units] == order
        shares = [s.predicted_ns / plan.predicted_ns for s in plan.segments]
        for segment, share in enumerate(shares):
            own = [u.share for u in units if u.segment == segment]
            assert sum(own) == pytest.approx(share)
        elsewhere = [bool(u.fell_back) for u in units]
        assert elsewhere == [
            plan.segments[u.segment].target.accelerator == "some-other-npu" for u in units
        ]
        assert model.line().startswith(f"plan {name}, predicted ")
        assert ("fell back from some-other-npu: " in model.line()) == any(elsewhere)


def test_a_phone_without_nnapi(runtime, sample):
    with pytest.raises(RuntimeFailure, match="no NNAPI library") as failure:
        runtime.model(0, 0, library="libno-such-library.so")
    assert failure.value.status == MISSING
    model = runtime.model(0, CPU_FALLBACK, library="libno-such-library.so")
    assert [s.fell_back for s in model.segments()] == [1, 0, 1]
    assert [s.cause for s in model.segments()] == [NO_LIBRARY, 0, NO_LIBRARY]
    assert close(model.run([sample.image.numpy()], [40])[0], sample.expected)
    runtime.model(2, 0, library="libno-such-library.so")  # the CPU's plan asks for none


def test_misuse_is_told(runtime, sample, tmp_path):
    for plan, flags in ((9, 0), (0, 128), (0, BURST | ASYNC)):
        with pytest.raises(RuntimeFailure) as failure:
            runtime.model(plan, flags)
        assert failure.value.status == BAD_ARGUMENT
    model = runtime.model(2)
    with pytest.raises(RuntimeFailure, match="multiple of 4 bytes"):
        model.run_addresses([sample.image.numpy().ctypes.data + 1], [0])
    with pytest.raises(RuntimeFailure, match="mask"):
        runtime.model(2, cpu_mask=1 << 63)
    with pytest.raises(RuntimeFailure, match="cannot be opened"):
        folder, bundle = str(tmp_path).encode(), ctypes.c_void_p()
        runtime.check("nnp_bundle_open", folder, ctypes.byref(bundle))
    assert runtime.library.nnp_version() == b"0.2.0"


def test_models_share_nothing_with_each_other(runtime, sample):
    models = [runtime.model(plan, threads=2, cpu_mask=1) for plan in (0, 1, 2, 0)]
    images = [sample.image.numpy() * factor for factor in (1, -1, 3, 1)]
    first, *others, last = (
        model.run([image], [40])[0] for model, image in zip(models, images, strict=True)
    )
    assert close(first, sample.expected) and close(last, sample.expected)
    assert len({first, *others}) == 3


def test_a_changed_byte(opened, content):
    """The weights', which are last, are looked at on request."""
    for at in (200, len(content) // 2, len(content) - 8):
        changed = bytearray(content)
        changed[at] ^= 1
        with pytest.raises(RuntimeFailure) as failure:
            runtime = opened(bytes(changed))
            runtime.check("nnp_bundle_check", runtime.bundle)
        assert failure.value.status == BAD_BUNDLE
    whole = opened(content)
    whole.check("nnp_bundle_check", whole.bundle)


def test_opening_reads_no_weights(built, content, tmp_path):
    """Of a file in the middle of another, as an asset in an app's package is."""
    n_bytes = 32 << 20
    table = struct.unpack_from("<I", content, 8)[0] * 24 + 16
    rows = bytearray(content[:table])
    at = next(row for row in range(16, table, 24) if rows[row : row + 4] == b"WGHT")
    offset = struct.unpack_from("<Q", rows, at + 8)[0]
    weights = content[offset:] + bytes(n_bytes)
    struct.pack_into("<IQQ", rows, at + 4, zlib.crc32(weights), offset, len(weights))
    struct.pack_into("<I", rows, 12, zlib.crc32(rows[16:], zlib.crc32(rows[:12])))
    asset = tmp_path / "base.apk"
    asset.write_bytes(b"PK\3\4" + bytes(rows) + content[table:offset] + weights)
    program = (
        "import ctypes, os, resource, sys\n"  # and not torch, which takes seconds
        "library, bundle = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()\n"
        "error = ctypes.create_string_buffer(512)\n"
        "file = os.open(sys.argv[2], os.O_RDONLY)\n"
        "size = ctypes.c_uint64(os.fstat(file).st_size - 4)\n"
        "resident = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "before, start = resident(), resource.getrusage(resource.RUSAGE_SELF).ru_utime\n"
        "status = library.nnp_bundle_open_fd(\n"
        "  file, ctypes.c_uint64(4), size, ctypes.byref(bundle), ctypes.byref(error))\n"
        "assert status == 0, error.raw\n"
        "cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime - start\n"
        "print(resident() - before, cpu)\n"
        "assert library.nnp_bundle_check(bundle, ctypes.byref(error)) == 0, error.raw\n"
        "library.nnp_bundle_close(bundle)\n"
    )
    numbers = output_of([sys.executable, "-c", program, built.shared, asset])
    resident, cpu = map(float, numbers.split())
    assert resident <= n_bytes / 8  # the kernel may map 2 MB for one page of a file
    assert cpu < 0.02


def test_weights_are_there_once(sample, content):
    """Four plans share them; the rest is small."""
    weights = {b for region in sample.bundle.regions.values() for b in region.buffers}
    assert len(content) < sum(map(len, weights)) + 64 * len(weights) + 12_000
    assert all(content.count(weight) == 1 for weight in weights)


def test_a_plan_of_mixed_precision(opened):
    """Convolutions in 8 bits on the accelerator, what follows in floats on the CPU."""
    torch.manual_seed(2)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Hardswish(), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(8 * 8 * 6, 5)).eval()
    samples = [(torch.randn(1, 3, 12, 10),) for _ in range(4)]
    program = prepare(model, samples[0], "mixed")
    convolutions = [unit.index for unit in program.units.units if "conv" in unit.label]
    mixed = quantise(program, calibrate(program, samples, 30), convolutions)
    n_units = len(mixed.program.units.units)
    last = max(mixed.unit_of[index] for index in convolutions)
    plan = plan_of("mixed", (range(last + 1), REFERENCE), (range(last + 1, n_units), CPU))
    runtime = opened(make_bundle(mixed.program, (plan,)))
    loaded = runtime.model()
    for sample in samples:
        (result,) = loaded.run([sample[0].numpy()], [runtime.outputs()[0].n_bytes])
        values = np.frombuffer(result, np.float32)
        (expected,) = mixed.program.module(*sample)
        step = 0.02 * float(expected.abs().max())  # an integer that is rounded the other way
        assert np.abs(values - expected.numpy().ravel()).max() <= step
        assert not np.allclose(values, model(*sample).detach().numpy().ravel(), atol=1e-4)
    assert [facts.fell_back for facts in loaded.segments()] == [0, 0]


class Beside(nn.Module):
    """Outputs of each type that nothing computes: constants, and inputs as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 40)
        for name, value in CONSTANTS.items():
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor, mask: torch.Tensor, ids: torch.Tensor) -> Any:
        constants = [getattr(self, name) for name in CONSTANTS]
        return self.layer(x).relu(), *constants, x, mask, ids


DEVICE_TYPES = {torch.float32: np.float32, torch.int64: np.int32, torch.bool: np.bool_}
CONSTANTS = {
    "anchors": torch.arange(120.0).reshape(40, 3),
    "classes": torch.arange(-2, 5),
    "flags": torch.tensor([[True, False, True]]),
}


def test_outputs_that_no_unit_computes(opened, tmp_path):
    """They are copied, by an app that opens the bundle as by one that was read from its folder."""
    torch.manual_seed(3)
    model = Beside().eval()
    example = torch.randn(2, 6), torch.tensor([[True, False]]), torch.tensor([[7, -8, 9]])
    program = prepare(model, example, "beside")
    units = range(len(program.units.units))
    plans = tuple(plan_of(str(target), (units, target)) for target in (CPU, REFERENCE))
    device = DescribedDevice({CPU.key: 30, REFERENCE.key: 30}, "a device", "f00", False)
    bundle = bundle_at(program, "model.pt", device, plans, Conditions(), ())
    (tmp_path / "model.pt").write_bytes(b"a model")
    write_bundle(tmp_path / "b", bundle, tmp_path / "model.pt")
    content = runtime_bundle(bundle)
    assert content == runtime_bundle(read_bundle(tmp_path / "b"))
    runtime = opened(content)
    arrays = [value.numpy().astype(DEVICE_TYPES[value.dtype]) for value in example]
    for plan in range(2):
        loaded = runtime.model(plan)
        results = loaded.run(arrays, [tensor.n_bytes for tensor in runtime.outputs()])
        for result, expected in zip(results, model(*example), strict=True):
            own = np.frombuffer(result, DEVICE_TYPES[expected.dtype])
            assert np.allclose(own, expected.detach().numpy().ravel(), rtol=1e-5, atol=1e-6)


def test_the_command(sample, content, tmp_path, caplog):
    caplog.set_level("INFO", "nnapi_prof")
    (tmp_path / "small.pt").write_bytes(b"the model")
    write_bundle(tmp_path / "small.nnprof", sample.bundle, tmp_path / "small.pt")

    def convert(*arguments):
        return CliRunner().invoke(command, [*arguments, str(tmp_path / "small.nnprof")])

    done = convert("--format", "runtime", "-o", str(tmp_path / "out.nnprt"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out.nnprt").read_bytes() == content
    assert "plan mixed" in caplog.text and "other plans in it: auto, cpu" in caplog.text
    both = convert("--format", "runtime", "--format", "json")
    assert both.exit_code == 0
    assert (tmp_path / "small.nnprt").read_bytes() == content
    assert (tmp_path / "small_0.json").exists()
    asked = CliRunner().invoke(command, ["--format", "runtime", str(tmp_path / "small.pt")])
    assert isinstance(asked.exception, UsageError)
    assert "is for bundles" in str(asked.exception)


def test_segments_that_need_pytorch_are_refused(sample):
    units = sample.bundle.plan.segments[0].units + sample.bundle.plan.segments[1].units
    host = Plan("dp", (Segment(units, HOST, 1.0, "no engine runs it", estimated=True),), False)
    with pytest.raises(UsageError, match=r"conv.*no engine runs it"):
        runtime_bundle(make_bundle(sample.program, (host, *sample.bundle.plans)))
    refused = make_bundle(sample.program, (*sample.bundle.plans, host))
    assert b"elsewhere" in runtime_bundle(refused)


@pytest.mark.parametrize("which", ["classify", "classify_static", "classify_installed"])
def test_the_example(built, sample, content, emulator_library, tmp_path, which):
    (tmp_path / "small.nnprt").write_bytes(content)
    (tmp_path / "image.raw").write_bytes(sample.image.numpy().tobytes())
    command = [getattr(built, which), "small.nnprt", "image.raw"]
    library = ["--nnapi-library", emulator_library]
    text = output_of([*command, "scores.raw", "--runs", "3", *library], cwd=tmp_path)
    assert close((tmp_path / "scores.raw").read_bytes(), sample.expected)
    assert text.startswith("plan mixed\n")
    for words in (
        f"top 1: class {int(sample.expected.argmax())},",
        "segment 0: nnapi nnapi-reference, compiled in ",
        "segment 1: cpu, compiled in ",
        "whole: first run ",
    ):
        assert words in text
    assert "frames" not in text
    frames = output_of([*command, "--runs", "1", "--frames", "40", *library], cwd=tmp_path)
    assert re.search(r"^40 frames, 12 in flight: \d+\.\d a second, each takes ", frames, re.M)
    for lane in ("nnapi-reference", "cpu", "nnapi"):
        assert re.search(rf"^lane {lane}: 40 segments, busy for \d+ %$", frames, re.M)
    command[2] = "small.nnprt"
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    first, second, last = failed.stderr.splitlines()
    assert (failed.returncode, last) == (1, "small.nnprt must have 1440 bytes")
    assert first.startswith("classify: segment 0 of plan 0 runs on the CPU instead of nnapi-ref")
    assert second.startswith("classify: segment 2 of plan 0 runs on the CPU instead of NNAPI's cho")


def test_only_the_api_is_exported(built):
    listed = output_of(["nm", "-D", "--defined-only", built.shared]).splitlines()
    names = {line.split()[2].partition("@")[0] for line in listed if " T " in line}
    header = (built.prefix / "include" / "nnapi_prof_runtime.h").read_text()
    assert names and all(name.startswith("nnp_") and f"{name}(" in header for name in names)
    assert header.count("\nNNP_API") == len(names)
