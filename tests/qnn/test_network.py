"""A network for chips: whole, as a file to ship, cut into regions, and what its units cost."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("onnx", reason="no onnx: pip install -e '.[qnn]'")

import onnx

import nnapi_prof as nnp
from nnapi_prof.api.chips import convert_for_chip, estimate_chips, profile_on_chip, whole_form
from nnapi_prof.api.model import load
from nnapi_prof.cli.output import ms
from nnapi_prof.errors import ConversionError, UsageError
from nnapi_prof.qnn import CHIPS, LICENCE, QnnPrecision, compiler_available, qairt_version
from nnapi_prof.qnn.calibration import calibrate
from nnapi_prof.qnn.costs import RegionTime, fit_units
from nnapi_prof.qnn.graphs import Form, export_onnx, quantise_form, samples_for
from nnapi_prof.qnn.network import FLOAT_REFUSED, exported_form, other_form
from nnapi_prof.qnn.regions import RegionCutter, activation_groups, prepared_export
from nnapi_prof.reports.words import calibration_words
from tests import warm
from tests.cli.common import raises, save, trace
from tests.models import Function
from tests.processes import output_of
from tests.qnn import graphs


def classes(x, first, second, last):
    """Convolutions with activations that are units of their own, and an operation for the CPU."""
    y = torch.relu(second(F.gelu(first(x))))
    return last(y.mean((2, 3)))


def net() -> nn.Module:
    layers = {"first": nn.Conv2d(3, 16, 3, 2, 1), "second": nn.Conv2d(16, 32, 3, 2, 1)}
    return Function(classes, **layers, last=nn.Linear(32, 10))


def small() -> nn.Module:
    layers = {"first": nn.Conv2d(3, 16, 3, 2, 1), "last": nn.Linear(16, 10)}
    return Function(lambda x, first, last: last(torch.relu(first(x)).mean((2, 3))), **layers)


@pytest.fixture(scope="module")
def file(wheel, tmp_path_factory):
    torch.manual_seed(0)
    return save(small(), tmp_path_factory.mktemp("qnn") / "net.pt2", (torch.randn(1, 3, 64, 64),))


@pytest.mark.slow
def test_each_chip_has_a_time_within_its_band_or_a_reason(file, cache):
    made = estimate_chips(file, "qnn:SM8350,SM8550,SM8750")
    old, middle, new = made.chips
    assert old.whole_ns is None and not old.taken and old.refused and old.error
    for one in (middle, new):
        assert one.low_ns < one.whole_ns < one.high_ns
        assert one.taken["Conv"] == 1 and not one.refused
        assert one.calibration.networks >= 25
    assert new.whole_ns < middle.whole_ns
    frame = made.frame()
    assert frame[["chip", "taken", "refused", "doubts"]].to_numpy().tolist() == [
        ["SM8350", 0, 4, 0],
        ["SM8550", 4, 0, 0],
        ["SM8750", 4, 0, 0],
    ]
    assert frame["whole_ms"].dropna().tolist() == [middle.whole_ns / 1e6, new.whole_ns / 1e6]


@pytest.mark.slow
def test_estimate_prints_a_row_for_each_chip(file, cache, cli):
    asked = ("estimate", "--device", "qnn:SM8350,SM8750", file)
    old, new = cli.ok(*asked, "--json").document("chips")["chips"]
    printed = cli.ok(*asked)
    assert LICENCE in printed.err
    low, whole, high = (ms(new[f"{name}_ns"]) for name in ("low", "whole", "high"))
    calibrated = calibration_words(calibrate(CHIPS["SM8750"], QnnPrecision.FP16, qairt_version()))
    assert old["error"] == FLOAT_REFUSED
    assert printed.out.splitlines()[4:] == [
        "│ SM8350 │     – │                  – │          0 │       4 │",
        f"│ SM8750 │ {whole} │     {low} to {high} │          4 │       0 │",
        "└────────┴───────┴────────────────────┴────────────┴─────────┘",
        "Not on the NPU",
        *(f"SM8350  1 {kind}: {FLOAT_REFUSED}" for kind in ("Conv", "Gemm", "ReduceMean", "Relu")),
        f"SM8750: {calibrated}.",
        "Nothing of this was measured. A phone measures it: `nnapi-prof profile`, or Qualcomm AI"
        " Hub for the whole network.",
    ]


def test_torchscript_is_exported_from_its_normalised_graph(wheel, tmp_path):
    path = trace(small(), tmp_path / "net.pt", (1, 3, 64, 64))
    assert other_form(path) is None
    form = whole_form(path, ["1x3x64x64"])
    operations = ["Transpose", "Conv", "Relu", "ReduceMean", "Gemm"]
    assert [node.op_type for node in form.model.graph.node] == operations


@pytest.mark.slow("compiles two forms of a network")
def test_the_form_of_the_faster_exporter_is_taken_and_said(wheel, cache, cli, tmp_path):
    """Softshrink has a form of its own by each exporter; Celu no NPU takes."""
    model = Function(lambda x: F.celu(F.softshrink(x) @ x.transpose(-1, -2)))
    odd = save(model, tmp_path / "odd.pt2", (torch.randn(1, 16, 32, 32),))
    asked = ("estimate", "--device", "qnn:SM8750", odd)
    (one,) = cli.ok(*asked, "--json").document("chips")["chips"]
    celu = "Operators of type `Celu` are not supported by QNN EP"
    assert [(part["operation"], part["count"], part["reason"]) for part in one["refused"]] == [
        ("Celu", 1, celu)
    ]
    assert one["doubts"][0]["kind"] == "exporters differ"
    lines = cli.ok(*asked).out.splitlines()
    assert lines[6:] == [
        "Not on the NPU",
        f"SM8750  1 Celu: {celu}",
        *(f"? {doubt['words']}." for doubt in one["doubts"]),
        lines[-1],
    ]
    page = tmp_path / "out" / "odd.qnn.onnx"
    page.parent.mkdir()
    convert = ("convert", "--to", "qnn", "--device", "qnn:SM8650", "-o", page, odd)
    files, again = cli.ok(*convert, "--json"), cli.ok(*convert)
    (binary,) = map(Path, files.document("chip-files")["binaries"])
    assert {page, binary} == set(page.parent.iterdir())
    n = files.document("chip-files")["on_npu"]
    assert "dynamo=True is faster there, and is taken" in files.err
    assert again.out.splitlines()[:-1] == [
        f"{page} ({page.stat().st_size / 1e6:.1f} MB)",
        f"{binary} ({binary.stat().st_size / 1e6:.1f} MB)",
        f"{n} operations on the NPU of SM8650 in fp16, 1 for ONNX Runtime's CPU",
        "images are channels last now: inputs_0",
    ]


def test_what_cannot_be_traced_has_the_other_form_and_nothing_is_printed(wheel, tmp_path, capfd):
    module = Function(lambda x: x.trunc())
    path = save(module, tmp_path / "trunc.pt2", (torch.randn(2, 3),))
    form = exported_form(path)
    assert [n.op_type for n in form.model.graph.node] == ["Abs", "Floor", "Sign", "Mul"]
    neither = save(Function(torch.special.bessel_j0), tmp_path / "bessel.pt2", (torch.ones(2),))
    assert exported_form(neither) is None
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_eight_bits_are_faster_and_in_units(file, cache):
    (fp16,) = estimate_chips(file, "SM8850").chips
    (int8,) = estimate_chips(file, "SM8850/int8").chips
    assert int8.whole_ns is not None
    assert int8.simulated_ns["v81"] <= fp16.simulated_ns["v81"]
    assert "int8 in float" not in {doubt.kind.value for doubt in int8.doubts}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_file_for_a_chip_has_its_parts_in_a_binary(precision, file, cache, tmp_path):
    files = convert_for_chip(file, f"qnn:SM8650/{precision}", tmp_path / "net.qnn.onnx")
    nodes = [node.op_type for node in onnx.load(files.path, load_external_data=False).graph.node]
    assert "EPContext" in nodes and "Conv" not in nodes
    assert all(binary.stat().st_size for binary in files.binaries) and files.binaries
    assert files.channels_last == ("inputs_0",)
    with pytest.raises(FileNotFoundError, match="/nowhere'"):
        convert_for_chip(file, "qnn:SM8650", tmp_path / "nowhere" / "net.qnn.onnx")


def test_without_the_wheel_one_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr("nnapi_prof.qnn.NEEDED", ("a_package_that_nobody_has",))
    with pytest.raises(UsageError, match="nnapi-prof\\[qnn\\]"):
        estimate_chips(tmp_path / "model.pt2", "SM8650")
    assert not compiler_available()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="on Linux x86-64 only, and this is linux aarch64: use"):
        estimate_chips(tmp_path / "model.pt2", "SM8650")


CHOOSE = "give either --phone or --device qnn:CHIP: see `nnapi-prof estimate --help`"
MISUSES = {
    "estimate": CHOOSE,
    "estimate --phone pixel4 --device qnn:SM8650": CHOOSE,
    "estimate --device local": "estimate needs no device, and takes --device qnn:CHIP only: 'local'"
    " is measured by `nnapi-prof profile`",
    "estimate --device qnn:SM1": f"no chip 'SM1': there are {', '.join(CHIPS)}",
    "estimate --device qnn:SM8650 --threads 2": "--threads is for --phone: leave it out",
    "estimate --device qnn:SM8650 --samples 3": "--calibration and --samples are for 8 bits: add"
    " /int8 to the name of the device",
    "convert --to qnn": "--to qnn writes for one chip: name it, as --device qnn:SM8650",
    "convert --to qnn --to json --device qnn:SM8650": "--to qnn is of a model, and the only format:"
    " leave the others out",
    "partition --device qnn:SM8650,SM8750": "'qnn:SM8650,SM8750' names 2 chips: give one;"
    " `nnapi-prof estimate` compares several",
}


@pytest.mark.parametrize("arguments", MISUSES)
def test_what_makes_no_sense_is_a_mistake_of_usage(file, cli, arguments):
    assert cli.error(*arguments.split(), file) == MISUSES[arguments]


def test_what_the_tools_cannot_do_is_an_error_with_its_cause(wheel):
    image, model = torch.ones(1, 16, 3, 28), graphs.convolutions()
    untold = "torch.onnx cannot export the model (GuardOnDataDependentSymNode: Could not guard on"
    unsupported = "torch.onnx cannot export the model (DispatchError: No ONNX function found for"
    missing = "ONNX Runtime cannot quantise the graph (ValueError: Required inputs (['x'])"
    for message, what in {
        untold: lambda: export_onnx(Function(lambda x: x if x.sum() > 0 else -x), (image,)),
        unsupported: lambda: export_onnx(Function(torch.special.bessel_j0), (image,)),
        missing: lambda: quantise_form(Form(model), [{"y": image.numpy()}]),
        "the graph has not the inputs of": lambda: samples_for(model, [(image, image)]),
        "the graph's input x is not the model's": lambda: samples_for(model, [(image,)]),
    }.items():
        with pytest.raises(ConversionError, match=re.escape(message)):
            what()


# ---- regions ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return load(net(), ["1x3x64x64"], name="net")


@pytest.fixture(scope="module")
def cutter(wheel, model):
    return RegionCutter(model.program)


def test_regions_compute_what_the_model_does(cutter, model):
    import onnxruntime

    everything = range(len(model.graph.units))
    form = cutter.cut(everything)
    session = onnxruntime.InferenceSession(
        form.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (x,) = model.program.example_inputs
    (value,) = session.get_inputs()
    (result,) = session.run(None, {value.name: x.numpy()})
    np.testing.assert_allclose(result, model.eager(x)[0].detach().numpy(), rtol=1e-3, atol=1e-4)


def test_images_at_borders_lie_channels_last_in_float32(cutter, model):
    """Borders channels first in float16 are simulated to take half as long again and more."""
    unit = next(u.index for u in model.graph.units if "conv2d+relu" in u.label)
    graph = cutter.cut([unit]).model.graph
    shapes = [
        [d.dim_value for d in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    ]
    assert shapes == [[1, 32, 32, 16], [1, 16, 16, 32]]
    assert {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} == {1}
    assert [node.op_type for node in graph.node] == ["Transpose", "Conv", "Relu", "Transpose"]


def test_samples_of_a_region_are_the_values_at_its_borders(cutter, model, monkeypatch):
    import onnxruntime

    unit = next(u for u in model.graph.units if "conv2d+relu" in u.label)
    monkeypatch.setattr("nnapi_prof.qnn.regions.MOST_BYTES", 0)
    (values,) = cutter.run([model.program.example_inputs] * 2)
    form = cutter.cut([unit.index])
    (sample,) = cutter.samples([unit.index], form, [values])
    session = onnxruntime.InferenceSession(form.model.SerializeToString())
    (result,) = session.run(None, dict(sample))
    (name,) = unit.outputs
    np.testing.assert_allclose(result, values[name].transpose(0, 2, 3, 1), rtol=1e-3, atol=1e-4)
    with pytest.raises(ConversionError, match="the value nowhere has no counterpart in the export"):
        cutter._between(set(), ["nowhere"])


def test_a_module_without_bytes_to_hash_is_exported_each_time(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    module = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    exported = prepared_export(module, (torch.ones(2),), ["y"])
    assert [node.op_type for node in exported.graph.node] == ["Relu"]
    assert not list(tmp_path.rglob("*.onnx"))


def test_an_activation_is_compiled_with_what_it_follows(model):
    leader = activation_groups(model.graph)
    gelu = next(u for u in model.graph.units if u.operation == "gelu")
    (producer,) = model.graph.predecessors(gelu.index)
    assert leader[gelu.index] == producer != gelu.index


def test_units_are_told_from_regions():
    """Ten units of 20 µs, a fixed part of 5, 2 µs a MB, and 30 where ``v4`` enters or leaves."""
    leader = {unit: unit for unit in range(10)}

    def region(*units):
        crossing = {f"v{border}": 500_000 for border in (units[0], units[-1] + 1)}
        own = 30 * ("v4" in crossing)
        return RegionTime(units, 5 + 20 * len(units) + 2 + own, crossing)

    alone = {unit: region(unit) for unit in range(10)}
    windows = [region(*range(s, s + length)) for length in (2, 4) for s in range(11 - length)]
    model = fit_units(alone, leader, windows, [region(*range(10))])
    assert model.parts[3] == pytest.approx(20, rel=0.05)
    assert model.value_us["v4"] == pytest.approx(30, rel=0.4)
    assert max(own for value, own in model.value_us.items() if value != "v4") < 1
    assert abs(model.errors[0]) < 0.02


@pytest.mark.slow("compiles a network for a chip twice")
def test_a_chip_has_the_same_costs_each_time_and_its_plan_is_compiled_whole(
    wheel, model, tmp_path, monkeypatch
):
    from nnapi_prof.documents.chips import of_chip_plan

    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    first = profile_on_chip(model, "qnn:SM8750")
    assert first.profile.stable and first.profile.n_compiled > 0
    assert all(s.estimated and not s.measured for s in first.plan.segments)
    again = profile_on_chip(model, "qnn:SM8750")
    assert again.profile.n_compiled == 0
    assert json.dumps(of_chip_plan(first)) == json.dumps(of_chip_plan(again))
    assert first.costs.estimated and first.costs.location is None
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(of_chip_plan(first)))
    with pytest.raises(UsageError, match="estimated"):  # a gate compares what ran
        nnp.compare(plan, plan, fail_if_slower=0.05)


@pytest.mark.slow
def test_a_chip_measures_nothing(model):
    with pytest.raises(UsageError, match="estimated"):
        nnp.run(nnp.partition(model, nnp.estimate(model, "pixel4")), device="qnn:SM8750")


@pytest.mark.slow
def test_an_export_is_kept_for_the_same_weights_only(wheel, model, tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    first = RegionCutter(model.program)
    units = range(len(model.graph.units))
    monkeypatch.setattr("nnapi_prof.qnn.regions.export_onnx", raises(AssertionError("asked")))
    again = RegionCutter(model.program)
    assert again.cut(units).model.SerializeToString() == first.cut(units).model.SerializeToString()
    torch.manual_seed(1)
    other = load(net(), ["1x3x64x64"], name="net")
    with pytest.raises(AssertionError, match="asked"):
        RegionCutter(other.program)
    (entry,) = (tmp_path / "qnn" / "exports").iterdir()
    entry.write_bytes(entry.read_bytes()[:1000])
    with pytest.raises(AssertionError, match="asked"):
        RegionCutter(model.program)


def test_without_a_chip_nothing_of_the_extra_is_imported():
    code = (
        "import sys, nnapi_prof, nnapi_prof.cli, nnapi_prof.cli.measure, nnapi_prof.api.profiling, "
        "nnapi_prof.api.planning, nnapi_prof.reports.bundle_data, nnapi_prof.api.advise\n"
        "print([name for name in sys.modules if name.partition('.')[0] in "
        "('onnx', 'onnxruntime', 'onnxruntime_qnn', 'onnxscript', 'onnx_ir')])"
    )
    assert output_of([*warm.python(ours=False), "-c", code]) == "[]\n"
