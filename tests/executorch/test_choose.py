"""Partitioners measured against each other, plans against rules: the fastest file is the answer."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

import nnapi_prof
from nnapi_prof.costs.measurement import Status
from nnapi_prof.errors import NnapiProfError, UsageError
from nnapi_prof.executorch import NnapiPartitioner, aot, choose, fastest, lower, region_times
from nnapi_prof.executorch.aot import XnnpackPartitioner
from nnapi_prof.executorch.command import _show_choice
from nnapi_prof.executorch.partitioner import named, region_candidates
from nnapi_prof.executorch.pte import LoweredPart, concatenate_programs
from nnapi_prof.executorch.runner import HOST_TIMES
from nnapi_prof.executorch.selection import NO_PLAN
from nnapi_prof.executorch.stopwatch import Stopwatch, run_job
from tests import warm
from tests.executorch.conftest import convert, exported, profiled_plan, refusal
from tests.models import Function


class AbsentBackend(aot.BackendDetails):
    """Writes what no runtime here knows."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return aot.PreprocessResult(processed_bytes=b"anything")


class RaisingBackend(aot.BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise RuntimeError("it has no form for this")


class Takes(aot.Partitioner):
    """Tags each node of one operator alone, for a back end."""

    def __init__(self, operator, backend):
        super().__init__()
        self.operator, self.backend = operator, backend

    def partition(self, exported_program):
        tags = {}
        for node in exported_program.graph.nodes:
            if node.op == "call_function" and self.operator in str(node.target):
                node.meta["delegation_tag"] = f"tag_{len(tags)}"
                tags[f"tag_{len(tags)}"] = aot.DelegationSpec(self.backend, [])
        return aot.PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)


@pytest.fixture(scope="module")
def program():
    """XNNPACK has no kernel for the arctangent; its convolutions are the fastest by far."""
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(8, 8, 3, padding=1)
    model = Function(lambda x, layer: layer(torch.atan(layer(x))), layer=layer)
    return torch.export.export(model, (torch.rand(1, 8, 16, 16),))


@pytest.fixture(scope="module")
def choice(program):
    partitioners = {"xnnpack": XnnpackPartitioner(), "absent": Takes("atan", "AbsentBackend")}
    phases = []
    chosen = choose(program, partitioners, progress=lambda each: phases.append(each.phase))
    assert "units" in phases
    return chosen


def test_the_fastest_file_is_the_answer(choice, program, tmp_path):
    files = {file.name: file for file in choice.files}
    assert set(files) == {"xnnpack", "absent", "list-order", "portable"}
    times = [file.median_ns for file in choice.files if file.rounds_ns]
    assert choice.median_ns == min(times) and len(times) > 1
    assert choice.file.status is Status.OK
    assert len(choice.frame()) == len(choice.files)
    assert choice.save(tmp_path / "small.pte").read_bytes() == choice.buffer
    x = program.example_inputs[0][0]
    with Stopwatch(None) as stopwatch:
        timing = stopwatch.time(choice.buffer, [x], 20)
        torch.testing.assert_close(timing.outputs[0], program.module()(x), rtol=1e-4, atol=1e-5)
        os.killpg(stopwatch._process.pid, signal.SIGKILL)
        stopwatch._process.wait()
        with pytest.raises(NnapiProfError, match=r"the process that times .* is gone"):
            stopwatch.time(choice.buffer, [x], 20)


def test_what_does_not_run_is_refused_with_its_reason(choice, tmp_path, capsys):
    path = choice.save(tmp_path / "small.pte")
    _show_choice(choice, path)
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines[4:8]]
    assert {name: call for name, _, call in rows} == {
        "xnnpack": "2 of XnnpackBackend",
        "portable": "none",
        "absent": "1 of AbsentBackend",
        "list-order": "2 of XnnpackBackend, 1 of AbsentBackend",
    }
    conv, failed = (
        "conv2d 3x3 8->8 16x16",
        (
            "Failed to load method forward, error: 0x:20 ([method.cpp:85]"
            " Backend AbsentBackend is not registered.)"
        ),
    )
    ms = f"{choice.plan.segments[0].predicted_ns / 1e6:.3f}"
    assert lines[9:] == [
        f"{path}: xnnpack, 0.01 MB",
        f"  xnnpack: {conv} … {conv} ({ms} ms; the whole model as ExecuTorch lowers it)",
        *(f"{name} failed: {failed}" for name in ("absent", "list-order")),
        f"absent refused {conv}: it takes nothing of it",
        "xnnpack refused atan 1x8x16x16: it takes nothing of it",
        f"absent failed atan 1x8x16x16: {failed}",
    ]


@pytest.mark.slow("lowers one network by each partitioner")
def test_what_a_device_has_is_the_default(tmp_path):
    """In no time only whole files are measured."""
    model = exported(torch.nn.Tanh(), tmp_path / "tanh.pt2", torch.rand(1, 4))
    choice = choose(model.path, device="sim:gpu-phone", seconds=0)
    assert {file.name: (file.status, file.reason) for file in choice.files} == dict.fromkeys(
        ("nnapi-sim-gpu", "nnapi-reference", "xnnpack", "list-order", "portable"), (Status.OK, None)
    )
    assert (choice.notes, choice.planned, choice.refusals) == ((HOST_TIMES, NO_PLAN), None, ())


def test_a_back_end_that_does_not_compile_says_why(program):
    with pytest.raises(region_times.NotLowered, match="RuntimeError: it has no form for this"):
        region_times.lower_program(program, [Takes("atan", "RaisingBackend")])


def test_the_plan_is_the_exact_solvers(choice):
    assert choice.planned is not None and choice.planned.proof is not None
    assert choice.planned.proof.is_optimal
    assert all(segment.measured for segment in choice.planned.segments)
    units = sorted(u for segment in choice.planned.segments for u in segment.units)
    assert units == list(range(len(choice.graph.units)))


@pytest.mark.slow("lowers one network by several partitioners, and times each part")
def test_parts_of_several_partitioners_make_one_program(picture_model):
    program = region_times.without_layout(nnapi_prof.load(picture_model).program)
    inputs = program.example_inputs
    values = region_times.values_of(program, inputs)
    parts, held = [], []
    for unit in program.units.units:
        region = region_times.region_program(program, (unit.index,), values)
        partitioners = [XnnpackPartitioner()] * (unit.index % 2)
        if unit.index == 0:
            partitioners = [NnapiPartitioner("nnapi:sim-gpu/fast")]
        held.append(partitioners)
        edge = region_times.lower_program(region.exported, partitioners).exported_program()
        parts.append(LoweredPart(edge, region.inputs, region.outputs))
    whole = concatenate_programs(parts, program.units.inputs, program.units.outputs, values)
    with Stopwatch("sim:gpu-phone") as stopwatch:
        timing = stopwatch.time(region_times.file_of(whole), inputs, 20)
    assert timing.status is Status.OK, timing.message
    expected = [values[name] for name in program.units.outputs]
    torch.testing.assert_close(timing.outputs, expected, rtol=1e-4, atol=1e-5)


def killed(job, threads):
    os.write(2, b"a driver's last words\n")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("work", "limit_s", "status", "message"),
    [
        (killed, 60, "crashed", "SIGKILL (a driver's last words)"),
        (lambda *_: os._exit(3), 60, "crashed", "its process ended with code 3"),
        (lambda *_: time.sleep(30), 0.5, "timeout", "it took longer than 0.5 s"),
    ],
)
def test_crashes_and_hangs_are_answers(monkeypatch, work, limit_s, status, message):
    monkeypatch.setattr("nnapi_prof.executorch.stopwatch._time", work)
    answer = run_job({"rounds": 1, "limit_s": limit_s}, 1)
    assert answer == {"status": status, "message": message}


def answers(jobs=(), **options):
    """Returns the answers of a stopwatch's process to jobs."""
    options = json.dumps({"threads": 1, "device": None, "libraries": [], **options})
    program = "from nnapi_prof.executorch.stopwatch import main; main()"
    command = [*warm.python(), "-c", program, options]
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_job_has_an_answer(choice, program, tmp_path):
    x = program.example_inputs[0][0]
    torch.save([x], tmp_path / "in.pt")
    torch.save([x[:, :4]], tmp_path / "wrong.pt")
    for file in choice.files:
        (tmp_path / f"{file.name}.pte").write_bytes(file.buffer)
    *both, absent = (str(tmp_path / f"{name}.pte") for name in ("xnnpack", "portable", "absent"))
    job = {"paths": both, "inputs": str(tmp_path / "in.pt"), "outputs": str(tmp_path / "out.pt")}
    job |= {"rounds": 2, "runs": 5, "seconds": 20, "limit_s": 60}
    ready, timed, run, refused, wrong, late = answers(
        [
            *(job, {**job, "paths": both[:1], "rounds": 0, "outputs": str(tmp_path / "run.pt")}),
            *({**job, "paths": [absent]}, {**job, "inputs": str(tmp_path / "wrong.pt")}),
            {**job, "runs": 10**9, "limit_s": 0.5, "outputs": None},
        ]
    )
    assert ready == run == {"status": "ok"} and timed["status"] == "ok"
    assert [[len(own) for own in rounds] for rounds in timed["rounds_ns"]] == [[5, 5]] * 2
    for name in ("out.pt", "run.pt"):
        (output,) = torch.load(tmp_path / name)
        torch.testing.assert_close(output, program.module()(x), rtol=1e-4, atol=1e-5)
    assert refused["status"] == wrong["status"] == "failed"
    assert re.search(r"^Failed to load method .* \(.* Backend AbsentBackend is", refused["message"])
    assert wrong["message"].endswith("Error resizing tensor at input 0)")
    assert late == {"status": "timeout", "message": "it took longer than 0.5 s"}


def test_a_process_that_does_not_start_says_why(monkeypatch):
    (answer,) = answers(libraries=["absent.so"])
    assert answer["status"] == "failed" and answer["message"].startswith("absent.so: cannot open")
    with pytest.raises(NnapiProfError, match=r"no process can time ExecuTorch's .*: absent.so: "):
        Stopwatch(None, libraries=["absent.so"])
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(NnapiProfError, match=r"ExecuTorch's programs is gone: it said nothing$"):
        Stopwatch(None)


@pytest.mark.parametrize(
    ("partitioners", "words"),
    [
        ({}, "nothing to choose among"),
        ({"xnnpack": XnnpackPartitioner}, "its class"),
        ({"portable": XnnpackPartitioner()}, "is reserved"),
        ({"two words": XnnpackPartitioner()}, "is not a name"),
    ],
)
def test_arguments_that_are_no_partitioners(program, partitioners, words):
    with pytest.raises(UsageError, match=words):
        choose(program, partitioners)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("xnnpak", "did you mean xnnpack"),
        ("no_such_module:Partitioner", "No module named"),
        ("math:pi", "cannot be loaded"),
    ],
)
def test_names_that_are_no_partitioners(name, words):
    with pytest.raises(UsageError, match=words):
        named([name], "local")


@pytest.mark.slow("lowers one network by each partitioner")
def test_convert_chooses_and_says_so(program, tmp_path):
    torch.export.save(program, tmp_path / "small.pt2")
    options = ("--partitioners", "xnnpack", "--seconds", 0, "--json")
    document = json.loads(convert(*options, tmp_path / "small.pt2"))
    names = [file["name"] for file in document["files"]]
    assert set(names) == {"xnnpack", "portable"}  # which is faster is a matter of microseconds
    assert document["chosen"] == names[0] and (tmp_path / "small.pte").is_file()
    assert any("time for measuring" in note for note in document["notes"])


def test_accelerators_of_costs_are_candidates_of_their_own(picture_model):
    model = nnapi_prof.load(picture_model)
    costs = nnapi_prof.estimate(model, "npu-phone")
    several = region_candidates({"ours": NnapiPartitioner(costs, priority="low")})
    names = [candidate.name for candidate in several]
    assert names[-1] == "portable" and "ours-sim-npu" in names
    assert all(name.startswith("ours-") for name in names[:-1])
    one = region_candidates({"ours": NnapiPartitioner("nnapi:sim-npu/fast")})
    assert [candidate.name for candidate in one] == ["ours", "portable"]
    with pytest.raises(UsageError, match="not an NNAPI accelerator"):
        NnapiPartitioner("cpu")


# ---- plans against rules -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow_plan(picture_model, tmp_path_factory):
    """What a user has who pins it all to the slowest accelerator of this host."""
    model, folder = nnapi_prof.load(picture_model), tmp_path_factory.mktemp("local")
    pins = {"conv2d*": "nnapi:nnapi-reference/fast", "tanh*": "cpu"}
    return profiled_plan(model, folder, pins, "local")


@pytest.fixture
def bundle(picture_plan, tmp_path):
    return picture_plan.save(tmp_path / "pictures.nnprof")


@pytest.mark.slow("files are timed in turns, for real")
def test_on_this_host_files_run_in_turns_and_the_fastest_is_the_answer(slow_plan):
    choice = fastest(slow_plan)
    assert choice.device == "local" and not choice.simulated_times
    names = [file.name for file in choice.files]
    assert {"plan", "xnnpack"} <= set(names)
    assert all(file.status is Status.OK for file in choice.files), choice.frame()
    assert choice.median_ns == min(file.median_ns for file in choice.files)
    assert all(len(file.rounds_ns) > 1 and file.buffer for file in choice.files)
    xnnpack = choice.files[names.index("xnnpack")]
    assert set(xnnpack.backends) == {"XnnpackBackend"}


@pytest.mark.parametrize("options", [(), ("--device", "sim:gpu-phone")])
def test_convert_times_a_bundle_by_the_simulated_driver(bundle, tmp_path, options):
    path = tmp_path / "pictures.pte"
    document = json.loads(convert("--json", *options, "-o", path, bundle))
    compared = document["executorch"]
    assert compared["device"] == "sim:gpu-phone" and compared["simulated_times"]
    times = {file["name"]: file["median_ns"] for file in compared["files"]}
    assert compared["chosen"] == min(times, key=times.__getitem__)
    assert len(times) > 1 and path.stat().st_size == document["files"][0]["n_bytes"]


def test_the_table_says_that_times_are_simulated(bundle):
    table = convert(bundle)
    assert "simulated latency in ms" in table and "note: times are simulated" in table


def test_a_plan_of_another_device_is_the_plans_file(bundle, picture_plan, monkeypatch):
    monkeypatch.setattr("nnapi_prof.executorch.rivals.made_on", lambda planned: None)
    document = json.loads(convert("--json", bundle))
    assert document["executorch"] is None and len(document["regions"]) == 2
    assert "not timed" in document["notes"][0]
    with pytest.raises(UsageError, match="cannot be timed from here"):
        fastest(picture_plan, "192.0.2.1:5555")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--partitioners xnnpack small.pt2", "--to executorch"),
        ("--threads 2 small.pt2", "is for --partitioners"),
        ("--to executorch --partitioners xnnpack --relaxed small.pt2", "no meaning"),
        ("--to executorch small.pt2", "--partitioners"),
        ("--as-planned pictures.nnprof", "is for --to executorch of a bundle"),
        ("--to executorch --seconds 3 pictures.nnprof", "is for --partitioners"),
        ("--to executorch --partitioners xnnpack pictures.nnprof", "is a bundle and has its plan"),
    ],
)
def test_options_that_do_not_go_together(bundle, options, words, monkeypatch):
    monkeypatch.chdir(bundle.parent)
    assert words in refusal("convert", *options.split())


def test_what_executorch_has_no_kernel_of_is_not_written(tmp_path):
    """It would not load: of a simulated phone's bundle no file is run here."""
    sort = Function(lambda x: torch.sort(x * 2, -1)[0])
    model = exported(sort, tmp_path / "net.pt2", torch.rand(2, 9))
    plan = profiled_plan(model, tmp_path, {"*": "cpu"})
    with pytest.raises(UsageError, match=r"no kernel of aten::sort\.values, which dp of net"):
        lower(plan)
    choice = fastest(plan)  # a rule that has NNAPI sort
    refused = {file.name: file.status for file in choice.files if not file.rounds_ns}
    assert refused["plan"] is Status.REFUSED and choice.file.backends["NnapiBackend"] == 1


def test_what_executorch_cannot_lower_is_said_in_a_sentence(tmp_path):
    model = exported(Function(torch.ops.aten.nextafter), tmp_path / "net.pt2", *torch.rand(2, 2, 9))
    with pytest.raises(UsageError, match=r"ExecuTorch cannot lower dp of net: .*nextafter"):
        lower(profiled_plan(model, tmp_path, {}))
