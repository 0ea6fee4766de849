"""Plans as .pte files: what is in them, and that they compute what eager PyTorch does."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

import nnapi_prof
from nnapi_prof import executorch
from nnapi_prof.errors import UsageError
from nnapi_prof.executorch import NnapiPartitioner, choose, host, lower
from nnapi_prof.executorch.aot import XnnpackPartitioner, to_edge_transform_and_lower
from nnapi_prof.executorch.runner import HOST_TIMES
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import Engine
from tests import warm
from tests.executorch.conftest import (
    convert,
    estimated_plan,
    exported,
    pictures,
    profiled_plan,
    refusal,
)
from tests.models import Function


@pytest.fixture(scope="session")
def bundle(picture_plan, tmp_path_factory):
    return picture_plan.save(tmp_path_factory.mktemp("bundle") / "pictures.nnprof")


@pytest.fixture(scope="session")
def lowered(bundle):
    return lower(str(bundle))


COMMANDS = """
import json, sys
from click.testing import CliRunner
from nnapi_prof.cli import cli
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, words)
    print(json.dumps([done.stdout.splitlines(), str(done.exception or "")]))
"""
"""Runs several commands in one process, which has loaded ExecuTorch then."""


def outcomes(*commands):
    """The lines that each command printed, and its error."""
    words = [list(map(str, command)) for command in commands]
    program = [*warm.python(), "-c", COMMANDS, json.dumps(words)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return map(json.loads, done.stdout.splitlines())


def test_convert_and_run_agree_with_eager(bundle, picture_model, tmp_path):
    paths = tmp_path / "parts.pte", tmp_path / "whole.pte"
    for path, options in zip(paths, ((), ("--whole",)), strict=True):
        convert("--as-planned", *options, "-o", path, bundle)
    segments = nnapi_prof.read_plan(bundle).plan.segments
    command = "run", "--json", "--device", "sim:gpu-phone", "--against", picture_model
    for lines, error in outcomes(*((*command, path) for path in paths)):
        assert error == ""
        document = json.loads("\n".join(lines))
        assert document["agrees"] and document["outputs"] and document["simulated"]
        names = [part["name"] for part in document["parts"]]
        n_nnapi = sum("nnapi:sim-gpu" in name for name in names)
        assert n_nnapi == sum(s.target.engine is Engine.NNAPI for s in segments)
        assert not any("fell back" in name for name in names)


def test_what_run_prints_of_a_file(lowered, picture_model, tmp_path):
    path = lowered.save(tmp_path / "pictures.pte")
    models = [(), ("--against", picture_model)]
    for size in (16, 8):
        other = Function(pictures, first=nn.Conv2d(3, 8, 3, padding=1), second=nn.Conv2d(8, 8, 1))
        name = tmp_path / f"{size}.pt2"
        models.append(("--against", exported(other, name, torch.rand(1, 3, size, size)).path))
    command = ("run", path, "--runs", 2, "--device", "sim:gpu-phone")
    commands = [(*command, *more) for more in (*models, ("--boundary", "app"))]
    commands.append(("run", path, "--device", "sim:npu-phone"))
    broken = tmp_path / "broken.pte"
    broken.write_bytes(path.read_bytes()[:2000])
    commands.append((command[0], broken, *command[2:]))
    (alone, _), (same, _), (other, differs), *refused = outcomes(*commands)
    title, _, _, _, _, *table, _, loaded, not_compared, note = alone
    parts = ("TanH (NC) #1", "Multiply (ND) #1", "Add (ND) #1")
    assert title == "pictures.pte on sim:gpu-phone: 0.01 MB"
    assert [row.split("│")[1].strip() for row in table] == [
        *("segment 0 nnapi:sim-gpu", *parts[:2], "segment 0 nnapi:sim-gpu", parts[2], "all")
    ]
    assert re.fullmatch(r"loaded in [\d.]+ ms, first run [\d.]+ ms", loaded)
    assert not_compared == "outputs are not compared: --against MODEL names what it was made of"
    assert note == f"note: {HOST_TIMES}"
    verdict, of_largest = same[-2].split(" eager PyTorch: ")
    assert verdict == "output clone_1 [1, 8, 16, 16] agrees with"
    assert float(of_largest.split()[0]) < 1e-5
    match = re.fullmatch(
        r"output clone_1 \[1, 8, 16, 16\] DIFFERS from eager PyTorch: (\S+) of its largest value"
        r" \(1e-04 allowed\)",
        other[-2],
    )
    assert match is not None and differs == (
        f"output clone_1 of {path} differs from eager PyTorch by {match[1]} of its largest value,"
        " 1e-04 is allowed: `nnapi-prof bisect --executorch` finds the operation"
    )
    assert [error for _, error in refused] == [
        f"{path} takes 1x3x16x16, and 1x3x8x8 is there: name the model that it was made of",
        f"--boundary is for bundles: leave it out for {path}",
        "this process's NNAPI is that of sim:gpu-phone, and stays so: load sim:npu-phone in another"
        " process",
        f"{broken} cannot be loaded: Failed to load program, error: 0x:23; ExecuTorch's log, above,"
        " says why",
    ]


@pytest.mark.slow("lowers a network and runs it in a process without an accelerator")
def test_segments_fall_back_on_a_host_without_the_accelerator(
    lowered, picture_model, run_pte, tmp_path
):
    path = lowered.save(tmp_path / "pictures.pte")
    document = run_pte(path, "--device", "sim:dsp-phone", "--against", str(picture_model))
    assert document["agrees"]
    assert any("fell back" in part["name"] for part in document["parts"])
    assert document["log"].count("runs on the CPU") >= 1


def test_truth_values_go_to_the_delegate_and_back(run_pte, tmp_path):
    example = (torch.randn(2, 6), torch.tensor([True, False, True, True, False, True]))
    choice = Function(lambda x, keep: (torch.where(keep, x, -x), (x > 0) & keep))
    model = exported(choice, tmp_path / "net.pt2", *example)
    plan = profiled_plan(model, tmp_path, {"*": "nnapi:nnapi-reference/fast"})
    path = lower(plan).save(tmp_path / "net.pte")
    document = run_pte(path, "--device", "sim:gpu-phone", "--against", str(model.path))
    assert document["agrees"] and len(document["outputs"]) == 2
    assert any("nnapi:nnapi-reference" in part["name"] for part in document["parts"])


def test_weights_are_in_a_file_once(lowered):
    hashes = [name for call in lowered.calls for name in call.weights]
    assert len(set(hashes)) == 2  # two convolutions; biases are small and stand in the models
    for call in lowered.calls:
        for data in call.weights.values():
            assert lowered.buffer.count(data) == 1


def quantised_program(x):
    """As ExecuTorch's users quantise: PT2E, by XNNPACK's quantizer."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Sigmoid())
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    observed = prepare_pt2e(torch.export.export(layers.eval(), (x,)).module(), quantizer)
    observed(x)
    return torch.export.export(convert_pt2e(observed), (x,))


@pytest.mark.slow("quantises, lowers and runs a network")
def test_a_quantised_program_runs_in_8_bits(run_pte, tmp_path):
    from nnapi_prof.executorch.aot import silence

    with silence():
        torch.export.save(quantised_program(torch.rand(1, 3, 12, 12)), tmp_path / "small.pt2")
    pins = {"quantised conv2d+relu*": "nnapi:sim-npu/fast", "quantised conv2d 3x3 8->4*": "cpu"}
    lowered = lower(estimated_plan(nnapi_prof.load(tmp_path / "small.pt2"), pins))
    assert lowered.backends() == {"NnapiBackend": 1, "XnnpackBackend": 2}
    assert any("QUANT8" in o.type.name for r in lowered.calls[0].regions for o in r.model.operands)
    document = run_pte(
        lowered.save(tmp_path / "small.pte"),
        *("--device", "sim:npu-phone", "--against", str(tmp_path / "small.pt2")),
    )
    assert document["agrees"] and document["outputs"]


def test_torchscript_on_the_cpu_is_one_call_of_xnnpacks():
    """As stock ExecuTorch has the same model: no kernel lays out images beside it."""
    layers = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 4)),
    )
    with quiet_torch():
        script = torch.jit.trace(layers.eval(), torch.rand(1, 3, 12, 12))
    planned = estimated_plan(nnapi_prof.load(script, "1x3x12x12"), "*=cpu")
    graph = lower(planned).manager.exported_program().graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    assert [str(node.target) for node in calls[:-1]] == ["executorch_call_delegate"]


class Nested(nn.Module):
    """Arguments and results in tuples and dicts, one of them an input as it is."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)

    def forward(self, pair, scale):
        return {"sum": self.first(pair[0]) * scale, "image": pair[1]}


def test_the_partitioner_rewrites_a_program_of_the_users():
    args = ((torch.rand(1, 3, 8, 8), torch.rand(2)), torch.rand(1))
    exported = torch.export.export(Nested().eval(), args)
    costs = nnapi_prof.estimate(nnapi_prof.load(exported), "npu-phone")
    partitioner = NnapiPartitioner(
        costs, objective=nnapi_prof.Latency(pin={"*": "nnapi:sim-npu/fast"})
    )
    with quiet_torch():
        partitioners = [partitioner, XnnpackPartitioner()]
        edge = to_edge_transform_and_lower(exported, partitioner=partitioners).to_executorch()
    assert len(partitioner.calls) == 1
    assert b"NnapiBackend" in edge.buffer


def test_a_model_without_a_plan_is_refused(picture_model):
    with pytest.raises(UsageError, match="give costs"):
        lower(str(picture_model))
    assert "is for bundles" in refusal("convert", "--to", "executorch", picture_model)


def test_every_public_name_is_there():
    assert [getattr(executorch, name).__name__ for name in executorch.__all__] == executorch.__all__


def test_another_version_is_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(host, "TORCH", "1.0")
        with pytest.raises(UsageError, match=r"torch .* is installed, and executorch .* for 1\.0"):
            host.require()
    monkeypatch.setattr(host, "VERSION", "0.0.1")
    with pytest.raises(UsageError, match=r"executorch .* is installed, and 0\.0\.1"):
        host.require()
    assert "pip install" in refusal("run", "--runs", "1", "absent.pte")


@pytest.mark.parametrize("content", [b"", b"no program at all"])
def test_a_file_that_is_no_program_is_refused(tmp_path, content):
    path = tmp_path / "model.pte"
    path.write_bytes(content)
    assert "not a program of ExecuTorch's" in refusal("run", path)


THREADS = """
import os, sys
from nnapi_prof.executorch import load
from nnapi_prof.executorch.runner import HOST_TIMES
from nnapi_prof.frontend.torch_logging import quiet_torch
def tasks():
    found = {}
    for task in os.listdir("/proc/self/task"):
        lines = open(f"/proc/self/task/{task}/status").read().splitlines()
        found[task] = next(line.split()[1] for line in lines if line.startswith("Cpus_allowed:"))
    return found
methods = []
for threads, mask in ((0, 0), (1, 0), (3, int(sys.argv[2]))):
    load("sim:dsp-phone", threads=threads, cpu_mask=mask)
    from executorch.runtime import Runtime
    runtime = Runtime.get()
    before = tasks()
    methods.append(runtime.load_program(sys.argv[1]).load_method("forward"))
    new = [cpus for task, cpus in tasks().items() if task not in before]
    print(len(new), *sorted({int(cpus.replace(",", ""), 16) for cpus in new}))
"""


def test_threads_and_cores_are_the_files_unless_they_are_asked_for(bundle, tmp_path):
    """A phone without the plan's accelerator: the CPU has all of it, by XNNPACK's threads."""
    if os.environ.get("NNAPI_PROF_XNNPACK") == "":
        pytest.skip("a build without XNNPACK")

    lower(str(bundle), whole=True).save(tmp_path / "pictures.pte")
    mask = 1 << min(os.sched_getaffinity(0))
    command = [sys.executable, "-c", THREADS, tmp_path / "pictures.pte", str(mask)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    as_planned, one, three = ([*map(int, line.split())] for line in done.stdout.splitlines())
    planned = nnapi_prof.read_plan(bundle).bundle.conditions.threads
    assert one == [0]
    assert three[0] % 2 == 0 and three[0] > 0 and three[1:] == [mask]
    assert as_planned[0] == (planned - 1) * three[0] // 2


# ---- sizes left open -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def batches():
    """A program whose batch is 1 to 8."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    sizes = {"input": {0: torch.export.Dim("batch", min=1, max=8)}}
    return torch.export.export(layers.eval(), (torch.rand(4, 8),), dynamic_shapes=sizes)


def test_an_exported_program_with_open_sizes_is_refused(batches):
    """They have no form in a delegated call."""
    planned = estimated_plan(nnapi_prof.load(batches), "*=nnapi:sim-npu/fast")
    with pytest.raises(UsageError, match=r"leaves sizes open \(s.*: 1 to 8\).*export it without"):
        lower(planned)
    with pytest.raises(UsageError, match="leaves sizes open"):
        choose(batches, {"xnnpack": XnnpackPartitioner()})
    with pytest.raises(UsageError, match="the program leaves sizes open"):
        NnapiPartitioner("nnapi:sim-npu/fast").transform_for_pre_decomposition(batches)


def test_sizes_that_a_plan_leaves_open_are_refused(batches):
    planned = estimated_plan(nnapi_prof.load(batches, inputs=["?=4x8"]), "*=nnapi:sim-npu/fast")
    with pytest.raises(UsageError, match=r"leaves sizes open \(\?.*make the plan with each stated"):
        lower(planned)


def test_a_plan_on_the_cpu_keeps_them_open(batches):
    planned = estimated_plan(nnapi_prof.load(batches), "*=cpu")
    assert set(lower(planned).backends()) == {"XnnpackBackend"}
