"""Plans for a chip: in a folder, in a report, with advice, and what is refused."""

import json

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx", reason="no onnx: pip install -e '.[qnn]'")

import nnapi_prof as nnp
from nnapi_prof.api.chips import profile_on_chip
from nnapi_prof.api.model import load
from nnapi_prof.cli import main
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.qnn.costs import ChipCosts
from nnapi_prof.reports.frames import baseline_frame, unit_frame
from nnapi_prof.reports.headline import headline, rivals_of

pytestmark = pytest.mark.slow("each region of a network is compiled for a chip")
CHIP = "qnn:SM8750"


class Net(nn.Module):
    """GELU, which the compiler rewrites itself, and an operation that no NPU takes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 128, 3, 2, 1)
        self.second = nn.Conv2d(128, 128, 3, 1, 1)
        self.third = nn.Conv2d(128, 128, 3, 1, 1)
        self.last = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.first(x))
        y = self.third(torch.nn.functional.celu(self.second(y)))
        return self.last(y.mean((2, 3)))


@pytest.fixture(scope="module")
def file(wheel, tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("qnn") / "net.pt2"
    torch.export.save(torch.export.export(Net().eval(), (torch.randn(1, 3, 112, 112),)), path)
    return path


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


def test_nothing_runs_or_gates_such_a_folder(result, tmp_path, cache, misused):
    folder = result.planned.save(tmp_path / "net.nnprof")
    assert "estimated" in misused("run", "--device", "local", folder)
    assert "estimated" in misused("compare", "--fail-if-slower", "5%", folder, folder)
    assert "estimated" in misused("ship", folder)
    with pytest.raises(UsageError, match="estimated"):
        nnp.compare(result.planned, result.planned, fail_if_slower=0.05)
    with pytest.raises(UsageError, match="estimated"):
        nnp.run(result.planned, device="local")


def run(*arguments) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    assert ended.value.code in (0, None)


def test_commands_write_bundle_and_report(file, cache, tmp_path, capsys):
    folder, page = tmp_path / "cut.nnprof", tmp_path / "all.html"
    run("partition", "--device", CHIP, "--pin", "conv2d*=cpu", "-o", folder, file)
    pinned = nnp.read_plan(folder)
    graph = pinned.model.graph
    on_cpu = {u for s in pinned.plan.segments if s.target.key == "cpu" for u in s.units}
    assert {u.index for u in graph.units if u.operation.startswith("conv2d")} <= on_cpu
    run("go", "--device", CHIP, "-o", page, file)
    assert page.exists() and page.with_suffix(".nnprof").is_dir()
    run("report", "--format", "md", "-o", "-", page.with_suffix(".nnprof"))
    assert "estimated by Qualcomm's simulator" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        "profile --threads 2",
        "partition --objective throughput",
        "go --runs 3",
        "partition --calibration data.npz",
    ],
)
def test_options_that_only_devices_have_are_refused(wheel, file, cache, misused, arguments):
    misused(*arguments.split(), "--device", CHIP, file)


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
