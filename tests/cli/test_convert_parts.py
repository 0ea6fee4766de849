"""Models that NNAPI cannot run whole, and bundles, for stock PyTorch; what stays behind."""

import html
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.bundle import Bundle
from nnapi_prof.bundle.deployment import AppRuntime, deploy_steps, float32_cpu
from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.frontend import load, reference
from nnapi_prof.frontend.torch_logging import quiet_torch
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Engine, Plan, Preference, Segment, Target
from tests.api.test_model import scripted
from tests.cli.common import INPUT, SIM, Profiled, TinyNet, save, trace
from tests.cli.test_convert import run, stated
from tests.models import Function


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A model with an operation that nobody can convert."""
    torch.manual_seed(0)
    return trace(TinyNet(lambda x: torch.logcumsumexp(x, 1) * 0.1), tmp_path / "odd.pt")


def test_an_operation_stays_on_the_cpu(cli, nnapi_library, odd):
    result = cli.ok("convert", "--input", INPUT, "--preference", "low_power", "--relaxed", odd)
    (row,) = (line for line in result.out.splitlines() if "logcumsumexp" in line)
    assert "NNAPI has no such operation" in row
    assert f"in 2 parts and 1 unit on the CPU in {odd.with_suffix('.nnapi.pt')}" in result.err
    assert "what float16 costs in accuracy is measured where NNAPI runs the whole" in result.err
    x = torch.randn(1, 3, 16, 16)
    ran = run(odd, x, wanted=reference(odd)(x)[0])
    assert ran == ["nnapi_0 nnapi_1 cpu_0", "0 True", "0 True"]


def nested(named, pair):
    """Dicts and lists around what runs in parts."""
    early = torch.relu(named["x"] + pair[0])
    late = torch.logcumsumexp(early, 1)
    return [late, early], {"b": torch.tanh(late)}, pair[1]


@pytest.mark.parametrize("ending", ["pt", "pt2"])
def test_nested_values(cli, nnapi_library, tmp_path, ending):
    inputs = {"x": torch.randn(2, 3)}, (torch.randn(2, 3), torch.randn(4))
    model = save(Function(nested), tmp_path / f"nested.{ending}", inputs)
    cli.ok("convert", *stated("2x3", "2x3", "4"), model)
    ran = run(model, *inputs, wanted=nested(*inputs))
    assert ran[0] == "nnapi_0 nnapi_1 cpu_0"


def test_small_parts_and_float16(cli, nnapi_library, odd):
    result = cli("convert", "--input", INPUT, "--min-region", "9", odd)
    assert result.code == 1 and "NNAPI can run nothing of the model" in result.error
    assert "fewer than 9" in result.out
    cli.ok("convert", "--input", INPUT, "--float16", odd)
    x = torch.randn(1, 3, 16, 16)
    eager = reference(odd)(x)[0]
    run(odd, x, wanted=eager, tolerance=2e-2)
    with quiet_torch():
        output = torch.jit.load(odd.with_suffix(".nnapi.pt"))(x)
    assert 1e-5 < (output - eager).abs().max() / eager.abs().max() < 1e-2


SENTENCE = (
    "aten.logcumsumexp.default cannot run on NNAPI: NNAPI has no such operation and nothing here"
    " rewrites it into others"
)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--whole",), f"{SENTENCE}; without --whole the rest stays on the CPU"),
        (("--format", "json"), "--format json is for models that NNAPI can run whole"),
        (("--format", "stock", "--format", "cpp"), "--format cpp is for models that NNAPI can run"),
        (("--input", "1x3x?x16"), "sizes left open need the model whole on NNAPI"),
    ],
)
def test_what_must_be_whole(cli, odd, options, reason):
    named = () if "--input" in options else ("--input", INPUT)
    result = cli("convert", *named, *options, odd)
    assert result.code == 1 and reason in result.error
    assert "Stays on the CPU" in result.out and "logcumsumexp" in result.out
    assert [path.name for path in odd.parent.iterdir()] == ["odd.pt"]


def test_a_bundle_follows_its_plan(cli, profiled, nnapi_library):
    """The plan where it names no accelerator, else the best of the others."""
    bundle = read_bundle(profiled.bundle)
    named, auto = (
        next(plan for plan in bundle.plans if plan.name.startswith(f"largest-supported nnapi:{on}"))
        for on in ("sim-npu", "auto")
    )
    n, on_auto = len(bundle.graph.units), Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)
    targets = [CPU if index == 1 else on_auto for index in range(n)]
    segments = (Segment((u,), target, 1.0, "for the test") for u, target in enumerate(targets))
    mixed = Plan("mixed", tuple(segments), simulated=True)
    program = load(profiled.model)
    regions = {((u,), 30, ()): convert_region(program, (u,), 30) for u in range(n)}
    bundle = replace(bundle, regions={**bundle.regions, **regions})
    x = torch.randn(1, 3, 16, 16)
    each = " ".join(f"nnapi_{number}" for number in range(n - 1))
    for plans, followed, parts in (
        ((mixed, named, auto), mixed, f"{each} cpu_0"),
        ((named, auto), auto, "nnapi_0"),
    ):
        write_bundle(profiled.bundle, replace(bundle, plans=plans), profiled.model)
        result = cli.ok("convert", "--relaxed", profiled.bundle)
        text = "stock PyTorch cannot name the accelerators of the plan" in result.err
        assert text == (followed is auto)
        assert ("the plan has it on the CPU: for the test" in result.out) == (followed is mixed)
        ran = run(profiled.bundle, x, wanted=reference(profiled.model)(x)[0])
        assert ran[0] == parts and set(ran[1:]) == {"1 True"}


def test_that_others_compute_the_cpus_parts_in_float32_is_said(cli, profiled, auto, tmp_path):
    everywhere = Segment(tuple(range(len(auto.graph.units))), CPU, 1.0, "for the test")
    on_cpu = Plan("all-cpu", (everywhere,), simulated=True)
    half = replace(auto, conditions=Conditions(Precision.RELAXED))
    assert str(float32_cpu(half, on_cpu, "ExecuTorch")).startswith("ExecuTorch computes")
    assert float32_cpu(auto, on_cpu, "ExecuTorch") is None, "its plan is in float32 itself"
    has_cpu = any(s.target == CPU for s in auto.plan.segments)
    write_bundle(profiled.bundle, half, profiled.model)
    result = cli.ok("convert", "-o", tmp_path / "tiny.nnapi.pt", profiled.bundle)
    assert ("stock PyTorch computes what the plan has on the CPU" in result.err) == has_cpu


def addressed_table(costs: Path, slow: str | None) -> Path:
    """A copy of a cost table with rows of NNAPI's own choice for tensors at addresses, too: where
    the unit ``slow`` is among a row's, a thousand times what it took, else a thousandth."""
    table = costs.with_name(f"{'slow' if slow else 'fast'}.sqlite")
    shutil.copyfile(costs, table)
    with CostStore(table) as store:
        rows = store.select(Selection())
        own = [row for row in rows if row.target.accelerator == AUTO and row.usable]
        assert own
        for row in own:
            factor = 1000.0 if slow in row.members else 0.001
            samples = tuple(round(ns * factor) for ns in row.samples_ns)
            conditions = replace(row.conditions, mode=Mode.POINTERS)
            store.add(replace(row, conditions=conditions, samples_ns=samples))
    return table


@pytest.fixture
def auto(profiled: Profiled) -> Bundle:
    """The profiled model's bundle, whose plan leaves the choice to NNAPI."""
    bundle = read_bundle(profiled.bundle)
    (plan,) = (p for p in bundle.plans if p.name.startswith("largest-supported nnapi:auto"))
    bundle = replace(bundle, plans=(plan,))
    write_bundle(profiled.bundle, bundle, profiled.model)
    return bundle


def test_stock_pytorch_follows_costs_of_addresses(cli, profiled, auto, tmp_path):
    """Tables that differ in rows of that mode alone give different plans, and a table without them
    that of the bundle."""
    slow = auto.graph.units[0].signature
    parts_by_table = {}
    for name, table in (
        ("none", profiled.costs),
        ("fast", addressed_table(profiled.costs, None)),
        ("slow", addressed_table(profiled.costs, slow)),
    ):
        converted = tmp_path / f"{name}.pt"
        result = cli.ok("convert", "--costs", table, "-o", converted, profiled.bundle)
        anew = "planned anew by costs of tensors at addresses" in result.err
        lacking = "nothing was measured on this device's NNAPI with --mode pointers" in result.err
        assert (anew, lacking) == (name != "none", name == "none")
        assert "forbidden" not in result.out
        with quiet_torch():
            parts = [child for child, _ in torch.jit.load(converted).named_children()]
        parts_by_table[name] = parts, result.out.count("the plan has it on the CPU")
    whole = (["nnapi_0"], 0)
    assert parts_by_table == {"none": whole, "fast": whole, "slow": (["nnapi_0", "cpu_0"], 1)}


def test_a_table_that_cannot_be_read_is_no_table_without_rows(cli, profiled, auto, tmp_path):
    broken, other = tmp_path / "broken.sqlite", tmp_path / "other.sqlite"
    broken.write_bytes(b"SQLite format 3\0" + bytes(100))
    CostStore(other).close()
    for table, code, words in (
        (broken, 1, str(broken)),
        (tmp_path / "missing.sqlite", 2, "does not exist"),
        (other, 0, "has nothing of simulated npu-phone"),
        (None, 0, f"add --costs {auto.costs}"),
    ):
        named = () if table is None else ("--costs", table)
        result = cli("convert", *named, "-o", tmp_path / "out.pt", profiled.bundle)
        assert result.code == code and words in result.err, result.err


def test_steps_into_an_app_are_refused_as_their_commands_are(cli, profiled):
    bundle = read_bundle(profiled.bundle)
    on_cpu = next(plan for plan in bundle.plans if plan.name == "all-cpu")
    on_nnapi = next(
        plan for plan in bundle.plans if {s.target.engine for s in plan.segments} == {Engine.NNAPI}
    )
    refusals: list[list[AppRuntime]] = []
    for plans in ((on_cpu,), (on_cpu, on_nnapi), (on_nnapi, on_cpu), (on_nnapi,)):
        write_bundle(profiled.bundle, replace(bundle, plans=plans), profiled.model)
        ways = deploy_steps(read_bundle(profiled.bundle), profiled.bundle)
        refusals.append([step.runtime for step in ways if step.refusal])
        for step in ways:
            if step.runtime in (AppRuntime.LIBRARY, AppRuntime.CPP, AppRuntime.STOCK):
                result = cli(*shlex.split(step.command)[1:])
                assert (result.code, step.refusal is None) in ((0, True), (2, False)), result.err
            if step.runtime is AppRuntime.STOCK and step.refusal:
                assert result.error == step.refusal
    assert refusals == [[AppRuntime.CPP, AppRuntime.STOCK]] * 2 + [[AppRuntime.STOCK]] * 2


def test_what_only_pytorch_runs_goes_to_executorch_all_the_same(profiled):
    """Its kernels run what neither NNAPI nor our CPU engine does."""
    bundle = read_bundle(profiled.bundle)
    (whole,) = next(plan for plan in bundle.plans if plan.name == "all-cpu").segments
    first = replace(whole, units=whole.units[:1], target=CPU)
    rest = replace(whole, units=whole.units[1:], target=HOST)
    for segments, ways in (((first, rest), {AppRuntime.EXECUTORCH}), ((rest,), set())):
        planned = replace(bundle, plans=(Plan("host", segments, True),))
        steps = deploy_steps(planned, profiled.bundle)
        assert {step.runtime for step in steps if step.refusal is None} == ways


class Deciding(nn.Module):
    """What stands between two convolutions hangs on the first one's values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        if bool(y.mean() > 0):
            y = y * 2.0
        return torch.relu(self.last(y))


@pytest.mark.slow
def test_a_branch_on_data(cli, nnapi_library, tmp_path):
    torch.manual_seed(0)
    module, model = Deciding().eval(), tmp_path / "deciding.pt"
    scripted(module).save(str(model))
    result = cli.ok("convert", "--input", INPUT, model)
    assert "if_on_data" in result.out and "depends on the values of a tensor" in result.out
    x = torch.randn(1, 3, 16, 16)
    ran = run(model, x, wanted=module(x))
    assert ran[0] == "nnapi_0 nnapi_1 cpu_0"
    for options in (("--whole",), ("--format", "json")):
        error = cli.error("convert", "--input", INPUT, *options, model, code=1)
        assert "test_convert_parts.py:" in error and "branch depend" in error
    assert "if_on_data" in cli.ok("profile", *SIM, "--input", INPUT, model).out


@pytest.mark.slow
def test_an_operation_that_nobody_converts(cli, odd, tmp_path):
    node, sentence = "logcumsumexp", re.escape(SENTENCE)
    costs, bundle = ("--costs", tmp_path / "costs.sqlite"), tmp_path / "odd.nnprof"
    named = (*SIM, "--input", INPUT, *costs)

    out = cli.ok("profile", *named, "--preference", "fast", odd).out
    counts = re.search(r"(\d+) measured, (\d+) refused by the converter", out)
    assert counts is not None and int(counts[1]) > 0
    # One on the CPU and one on each of sim-npu and sim-gpu; on nnapi-reference and auto where a
    # trial does not leave them at that.
    assert 3 <= int(counts[2]) <= 5

    out = cli.ok("partition", *named, "--output", bundle, odd).out
    planned = read_bundle(bundle)
    units, segments = planned.graph.units, planned.plan.segments
    (behind,) = (s for s in segments if s.target == HOST)
    assert [units[index].label.split()[0] for index in behind.units] == [node]
    assert re.search(rf"no engine of the agent runs {node} [0-9x]+ \(unit \d+\)", out)
    table = out[: out.index("Why")]  # by the labels that other tables have, not by nodes
    assert all(units[segment.units[0]].label in table for segment in segments)

    page = html.unescape(cli.ok("report", *costs, "-o", "-", bundle).out)
    assert re.search(sentence, page)
    assert not re.search(rf"{node}(_\d+)?: {sentence}", page)  # the cost is any such unit's


class Detector(nn.Module):
    """[1, 3, 32, 32] -> boxes [n, 4] and scores [n] of a detector, those that are likely."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 6, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.second(self.first(x).relu()).flatten(2)[0].T
        scores = rows[:, 4].sigmoid()
        likely = scores > 0.5
        return rows[:, :4][likely], scores[likely]


class Suppressing(Detector):
    """The same, without boxes that overlap a likelier one: non-maximum suppression, greedy."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = self.second(self.first(x).relu()).flatten(2)[0].t()
        scores, corner = rows[:, 4].sigmoid(), rows[:, :2]
        far = corner + rows[:, 2:4].exp()
        order, area = scores.argsort(descending=True), (far - corner).prod(1)
        survivors: list[torch.Tensor] = []
        while order.numel() > 0:
            best, rest = order[0], order[1:]
            survivors.append(best)
            low, high = corner[rest].maximum(corner[best]), far[rest].minimum(far[best])
            shared = (high - low).clamp(min=0).prod(1)
            order = rest[shared <= 0.5 * (area[rest] + area[best] - shared)]
        likely = torch.stack(survivors)
        return rows[:, :4][likely], scores[likely]


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "node"), [("pt", "loop_on_data"), ("pt2", "index_on_data")])
def test_what_depends_on_data_stays_on_the_host(cli, tmp_path, ending, node):
    torch.manual_seed(0)
    model = tmp_path / f"detector.{ending}"
    if ending == "pt":
        scripted(Suppressing().eval()).save(str(model))
    else:
        save(Detector(), model, (torch.randn(1, 3, 32, 32),))
    shape = ("--input", "1x3x32x32")
    named = (*SIM, "--costs", tmp_path / "c.sqlite", *shape)
    result = cli.ok("go", *named, model)
    assert f"{node} on the host (eager PyTorch)" in result.out and "no advice" not in result.err
    assert node in (tmp_path / "detector.html").read_text()
    pin = ("--pin", "conv2d*=nnapi:sim-npu/fast")
    cli.ok("partition", *named, *pin, "-o", tmp_path / "d.nnprof", model)
    out = cli.ok("run", *SIM, tmp_path / "d.nnprof").out
    assert f"on the host, in eager PyTorch: {node}" in out
    assert "agrees with eager PyTorch" in out and "DIFFERS" not in out
    assert re.search(rf"host +│ {node} +│ [0-9.<]+ est\.", out)
    cli.ok("convert", *shape, model)
    cli.error("convert", "--whole", *shape, model, code=1)
