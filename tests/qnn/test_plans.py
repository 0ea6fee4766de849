"""Plans for a chip: in a folder, in a report, with advice, and what is refused."""

import json
import re
import sys

import click
import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx", reason="no onnx: pip install -e '.[qnn]'")

import nnapi_prof as nnp
from nnapi_prof.api.chips import profile_on_chip
from nnapi_prof.api.model import load
from nnapi_prof.cli.output import ms
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.qnn.network import FLOAT_REFUSED
from nnapi_prof.reports.frames import baseline_frame, unit_frame
from nnapi_prof.reports.headline import headline, rivals_of, tie_words
from tests.cli.common import save
from tests.models import Function

pytestmark = pytest.mark.slow("each region of a network is compiled for a chip")
CHIP = "qnn:SM8750"


@pytest.fixture(scope="module")
def file(wheel, tmp_path_factory):
    """GELU, which the compiler rewrites itself, and an operation that no NPU takes."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 128, 3, 2, 1), nn.GELU(), nn.Conv2d(128, 128, 3, 1, 1), nn.CELU()),
        *(nn.Conv2d(128, 128, 3, 1, 1), Function(lambda y: y.mean((2, 3))), nn.Linear(128, 10)),
    )
    return save(net, tmp_path_factory.mktemp("qnn") / "net.pt2", (torch.randn(1, 3, 112, 112),))


@pytest.fixture(scope="module")
def result(file, cache):
    return profile_on_chip(load(file), CHIP)


def test_a_folder_has_the_plan_its_costs_and_their_origin(result, tmp_path):
    folder = result.planned.save(tmp_path / "net.nnprof")
    read = nnp.read_plan(folder)
    assert read.plans == result.planned.plans
    assert read.costs.origin == result.origin
    assert read.estimated and read.costs.estimated
    priced, again = result.costs.priced, read.costs.priced
    assert isinstance(again, ChipCosts)
    assert (again.estimates, again.refusals) == (priced.estimates, priced.refusals)
    assert (again.prices, again.compiled) == (priced.prices, priced.compiled)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["estimated"] is True
    manifest["origin"]["calibration"]["median_error"] = 0.0
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SerializationError):
        nnp.read_plan(folder)


def test_a_report_says_that_all_is_estimated(result, tmp_path):
    data = result.planned.report_data()
    assert data.origin == result.origin and data.planned_unit == "ms, estimated"
    statuses = set(unit_frame(data.cost_model)["status"])
    assert statuses <= {"estimated", "refused"} and "estimated" in statuses
    for cost in data.cost_model.compiled:
        priced = data.cost_model.region_cost(*cost)
        assert priced is None or (priced.estimated and not priced.measured)
    page = result.planned.report(tmp_path / "net.html").read_text()
    words = f"calibrated on {result.calibration.networks} published networks"
    assert words in page and "Nothing in this report was measured" in page


def test_a_gain_within_the_error_is_a_tie(result):
    data = result.planned.report_data()
    tie = result.calibration.tie
    assert tie >= 0.15
    rivals = rivals_of(baseline_frame(data.plans, None), tie)
    assert all((r.verdict == "good") == (r.factor > 1 + tie) for r in rivals)
    for name in result.ties:
        rival = next(plan for plan in data.plans if plan.name == name)
        assert rival.predicted_ns / data.plan.predicted_ns < 1 + tie
    sentence = headline(data, baseline_frame(data.plans, None)).sentence
    assert ("within the estimate's error" in sentence) == bool(result.ties)


def test_nothing_runs_or_gates_such_a_folder(result, tmp_path, cache, cli):
    folder = result.planned.save(tmp_path / "net.nnprof")
    assert "estimated" in cli.error("run", "--device", "local", folder)
    assert "estimated" in cli.error("compare", "--fail-if-slower", "5%", folder, folder)
    assert "estimated" in cli.error("ship", folder)
    with pytest.raises(UsageError, match="estimated"):
        nnp.compare(result.planned, result.planned, fail_if_slower=0.05)
    with pytest.raises(UsageError, match="estimated"):
        nnp.run(result.planned, device="local")


def test_commands_write_bundle_and_report(file, cache, tmp_path, cli, monkeypatch):
    folder, page = tmp_path / "cut.nnprof", tmp_path / "all.html"
    cli.ok("partition", "--device", CHIP, "--pin", "conv2d*=cpu", "-o", folder, file)
    pinned = nnp.read_plan(folder)
    graph = pinned.model.graph
    on_cpu = {u for s in pinned.plan.segments if s.target.key == "cpu" for u in s.units}
    assert {u.index for u in graph.units if u.operation.startswith("conv2d")} <= on_cpu
    monkeypatch.setattr(click, "launch", lambda url: False)
    went = cli.ok("go", "--device", CHIP, "-o", page, "--open", file)
    assert went.err.splitlines()[-3:] == [
        f"bundle in {page.with_suffix('.nnprof')}",
        f"report in {page}",
        "note: no browser was opened: the system has none",
    ]
    text = cli.ok("report", "--format", "md", "-o", "-", page.with_suffix(".nnprof")).out
    assert "estimated by Qualcomm's simulator" in text


def test_profile_prints_what_its_document_has(result, file, cache, cli):
    asked = ("profile", "--device", CHIP, file)
    document = cli.ok(*asked, "--json").document("chip-plan")
    out = cli.ok(*asked).out
    slowest = sorted(document["units"], key=lambda unit: -max(unit["costs"].values()))
    rows = [line for line in out.partition("└")[0].splitlines() if line.startswith("│")]
    assert [re.split(r" *│ *", row)[1:-1] for row in rows] == [
        [unit["label"], *(ms(unit["costs"].get(key)) for key in ("cpu", f"{CHIP}/fp16"))]
        for unit in slowest
    ]
    (celu,) = (unit["label"] for unit in document["units"] if unit["refusals"])
    off = sorted(map(abs, document["region_errors"]))
    tie = tie_words(result.planned.report_data()).strip()
    assert out.partition("Not on the NPU\n")[2].splitlines() == [
        f"{celu}  Celu: Operators of type `Celu` are not supported by QNN EP",
        *([tie] if tie else []),
        *(f"? {at}: {d['words']}." for at, odd in document["doubts"].items() for d in odd),
        f"Sums of units were {off[len(off) // 2]:.0%} off in the median, {off[-1]:.0%} at worst,"
        f" over {len(off)} regions compiled whole; those of the plan are all compiled whole.",
        *(f"{note[0].upper()}{note[1:]}." for note in document["notes"]),
        "Nothing of this was measured. Take the plan to a phone: `nnapi-prof go --device SERIAL`"
        " measures it by NNAPI, Qualcomm AI Hub the whole network on the NPU.",
    ]


def test_where_nothing_can_be_compiled_every_unit_says_why(file, tmp_path, cli, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    why = "the compiler's process ended with exit code 1"
    asked = ("profile", "--device", CHIP, file)
    document = cli.ok(*asked, "--json").document("chip-plan")
    units = [unit["label"] for unit in document["units"]]
    failures = document["failures"]
    assert set(failures) >= set(units) and set(failures.values()) == {why}
    assert [unit["refusals"] for unit in document["units"]] == len(units) * [
        {f"{CHIP}/fp16": f"no estimate: {why}"}
    ]
    out = cli.ok(*asked).out
    assert re.findall(r"^\? (.*)", out, re.M) == [f"{at}: no estimate: {why}" for at in failures]
    out = cli.ok("estimate", "--device", CHIP, file).out
    assert f"Not on the NPU\nSM8750  {why}\n" in out
    target = tmp_path / "net.onnx"
    error = cli.error("convert", "--to", "qnn", "--device", CHIP, "-o", target, file, code=1)
    assert error == f"the compiler wrote nothing for SM8750: {why}" and not target.exists()


def test_a_chip_without_floats_is_refused_floats_and_its_cpu_is_anothers(file, cache, cli):
    document = cli.ok("profile", "--device", "qnn:SM8350", file, "--json").document("chip-plan")
    why = {"qnn:SM8350/fp16": FLOAT_REFUSED}
    assert [unit["refusals"] for unit in document["units"]] == [why] * len(document["units"])
    assert document["plan"]["segments"][0]["target"] == "cpu"
    assert document["notes"][-1] == (
        "that CPU is another phone's than SM8350's: of a plan between the two only the NPU's part"
        " is the chip's own"
    )
    error = cli.error("convert", "--to", "qnn", "--device", "qnn:SM8350", file, code=1)
    assert error == f"SM8350: {FLOAT_REFUSED}"


@pytest.mark.parametrize(
    "arguments",
    [
        "profile --threads 2",
        "partition --objective throughput",
        "go --runs 3",
        "partition --calibration data.npz",
    ],
)
def test_options_that_only_devices_have_are_refused(wheel, file, cache, cli, arguments):
    cli.error(*arguments.split(), "--device", CHIP, file)


def test_a_rewrite_that_the_compiler_makes_itself_is_not_offered(result, cache):
    advised = nnp.advise(result.planned, tries=2)
    rewrites = {one.rewrite.name: one for one in advised.advice}
    assert not any("tanh" in name for name in rewrites)
    placed = {u: s.target.key for s in result.plan.segments for u in s.units}
    for unit in result.planned.model.graph.units:  # its convolution is not dragged to the CPU
        assert placed[unit.index].startswith("qnn:") or unit.operation != "conv2d"
    celu = next(one for one in rewrites.values() if "celu" in one.labels[0])
    assert celu.kind.value == "refused" and celu.saves_ns > 0.01 * celu.before_ns
    assert celu.estimated and celu.verified is None
    assert "(estimated)" in str(celu)


def input_scale(model) -> float:
    from onnx import numpy_helper

    constants = {c.name: numpy_helper.to_array(c) for c in model.graph.initializer}
    first = next(n for n in model.graph.node if n.op_type == "QuantizeLinear")
    return float(constants[first.input[1]])


def test_samples_of_ones_own_set_the_ranges_of_8_bits(file, cache, tmp_path):
    """Ranges a hundred times as wide give other scales, hence other graphs."""
    from nnapi_prof.api import SILENT
    from nnapi_prof.api.chips import _cutter
    from nnapi_prof.api.costs import CalibrationOptions
    from nnapi_prof.qnn import QnnPrecision

    model = load(file)
    scales = []
    for factor in (1, 100):
        data = tmp_path / f"{factor}.npz"
        rng = np.random.default_rng(0)
        np.savez(data, x=factor * rng.standard_normal((4, 3, 112, 112)).astype(np.float32))
        options = CalibrationOptions(str(data))
        form = _cutter(model, QnnPrecision.INT8, options, SILENT)([0, 1])
        scales.append(input_scale(form.model))
    assert scales[1] == pytest.approx(100 * scales[0], rel=0.01)
    with pytest.raises(UsageError, match="8 bits"):
        _cutter(model, QnnPrecision.FP16, options, SILENT)
