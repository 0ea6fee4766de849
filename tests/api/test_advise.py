"""Advice: five models with a planted hindrance each, and what advice is made of."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nnapi_prof as nnp
from nnapi_prof.advice import Advice, Hindrance, Verified, advice_from_json, advice_to_json
from nnapi_prof.advice.forms import left_out
from nnapi_prof.advice.hindrances import ERROR, fit_prices
from nnapi_prof.advice.search import rewritten
from nnapi_prof.api.advise import _rank
from nnapi_prof.device.find import phone_file
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.unit import Work
from tests.models import Function
from tests.parts import again_but

PHONE = "sim:npu-phone"


def net(middle: nn.Module) -> nn.Module:
    """Four convolutions that the simulated NPU runs fast, and a hindrance between them."""
    torch.manual_seed(0)
    front = (nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())
    back = (nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 8, 3, 1, 1))
    return nn.Sequential(*front, middle, *back)


def linear_in_last_place(x: Tensor, linear: nn.Module) -> Tensor:
    """A product over channels that asks for another order of dimensions."""
    return linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def squeeze(x: Tensor, gate: nn.Module) -> Tensor:
    """A gate that is tiny and divides what could run at once."""
    return x * torch.sigmoid(gate(F.avg_pool2d(x, x.shape[2:])))


PLANTED = {
    "activation": (nn.SiLU(), Hindrance.REFUSED, "silu"),
    "resize": (nn.UpsamplingBilinear2d(scale_factor=2), Hindrance.REFUSED, "upsample"),
    "layout": (
        Function(linear_in_last_place, linear=nn.Linear(32, 32)),
        Hindrance.LAYOUT,
        "permute",
    ),
    "precision": (Function(lambda x: (x.double() * 0.5).float()), Hindrance.REFUSED, "_to_copy"),
    "tiny": (Function(squeeze, gate=nn.Conv2d(32, 32, 1)), Hindrance.REFUSED, "sigmoid"),
}


def profiled(
    middle: nn.Module, folder: Path, size: int = 64, device: str = PHONE, **conditions: Any
) -> tuple[nnp.Model, nnp.Costs]:
    model = nnp.load(net(middle), inputs=[(1, 3, size, size)], name="net")
    options = nnp.MeasureOptions(preferences=["fast"])
    conditions = nnp.ConditionOptions(**conditions)
    costs = folder / "costs.sqlite"
    return model, nnp.profile(model, device, costs=costs, conditions=conditions, options=options)


@pytest.mark.parametrize(
    "name", again_but(PLANTED, "layout", "tiny", why="another operation is refused")
)
def test_what_was_planted_is_first_and_saves_what_was_predicted(name, tmp_path):
    middle, kind, operation = PLANTED[name]
    model, costs = profiled(middle, tmp_path, 128)
    first = nnp.advise(nnp.partition(model, costs, verify=False), tries=1).advice[0]
    assert first.kind is kind and first.labels[0].startswith(operation)
    assert first.rewrite is not None and first.simulated
    verified = first.verified
    assert verified is not None and not verified.failure
    assert verified.saves_ns > 0
    assert first.saves_ns == pytest.approx(verified.saves_ns, rel=0.1)
    assert not first.rewrite.exact or verified.moved < 1e-5


def test_a_unit_that_accuracy_keeps_off_is_let_go(tmp_path):
    described = json.loads(phone_file("npu-phone").read_text())
    del described["cpu"]["peak"]["relaxed"]  # a CPU in float32 is what holds to the error
    (tmp_path / "phone.json").write_text(json.dumps(described))
    large, phone = Function(lambda x: F.relu(x * 3e5 + 1e5) * 1e-5), f"sim:{tmp_path}/phone.json"
    model, costs = profiled(large, tmp_path, 128, phone, threads=1, relaxed=True)
    plan = nnp.partition(model, costs, nnp.Latency(max_error=0.002))
    assert len(plan.plan.segments) > 1
    first = nnp.advise(plan, tries=1).advice[0]
    assert first.kind is Hindrance.KEPT_OFF and first.verified is not None
    assert first.saves_ns == pytest.approx(first.verified.saves_ns, rel=0.1)


def test_advice_is_kept_in_the_bundle(tmp_path):
    table = tmp_path / "costs.sqlite"
    model, costs = profiled(nn.SiLU(), tmp_path, threads=1)
    advised = nnp.advise(nnp.partition(model, costs, verify=False))
    assert advised.frame()["rewrite"].tolist()[0] == advised.advice[0].rewrite.name
    folder = advised.planned.save(tmp_path / "kept.nnprof")
    again = nnp.read_plan(folder)
    assert again.advice == advised.advice
    html = again.report(tmp_path / "report.html", costs=table).read_text()
    assert "What would help" in html and "F.relu6(x + 3)" in html
    assert "## What would help" in again.report(tmp_path / "report.md", costs=table).read_text()
    saves_ns = nnp.advise(folder, costs=table).advice[0].saves_ns
    assert saves_ns == pytest.approx(advised.advice[0].saves_ns, rel=0.02)


def test_a_small_saving_is_told_with_its_interval(tmp_path):
    """On a phone whose CPU is the fastest: 2 % of the plan, about as much as costs can tell."""
    model, costs = profiled(nn.SiLU(), tmp_path, device="sim:gpu-phone")
    plan = nnp.partition(model, costs, verify=False)
    tried = nnp.advise(plan, tries=1).advice[0]
    assert tried.labels[0].startswith("silu") and tried.verified is not None
    apart = abs(tried.saves_ns - tried.verified.saves_ns)
    assert apart <= 1.5 * math.hypot(tried.margin_ns, tried.verified.margin_ns)
    assert 0 < tried.verified.margin_ns < 0.2 * tried.verified.saves_ns  # runs until it is clear
    assert "give or take" in str(tried)
    frame = nnp.advise(plan).frame()
    assert 0 < frame["margin_ms"][0] < 0.1
    assert advice_from_json(advice_to_json([tried])) == (tried,)


def test_noise_is_called_noise_and_what_nothing_was_tried_of_keeps_its_place():
    small = Advice(
        Hindrance.SLOW, (0,), ("silu",), ("silu",), ("cpu",), (), 1e6, 0.99e6, margin_ns=2e4
    )
    assert "give or take 0.0200 ms: not distinguishable from noise" in str(small)
    assert "give or take" not in str(replace(small, margin_ns=1e2))
    large = replace(small, after_ns=0.9e6, verified=Verified(failure="no rewrite is known"))
    assert sorted([small, large], key=_rank) == [large, small]


def test_what_joins_branches_is_not_left_out():
    """Its other branch would be left out with it, and the saving would be that of all of it."""

    def residual(x: Tensor, branch: nn.Module) -> Tensor:
        y = F.relu(x)
        return torch.sigmoid(y + branch(y))

    model = Function(residual, branch=nn.Conv2d(4, 4, 3, 1, 1))
    program = prepare(model.eval(), (torch.rand(1, 4, 8, 8),), "residual")
    nodes = {str(node.target): node.name for node in program.module.graph.nodes}
    assert rewritten(program, {nodes["aten.add.Tensor"]: left_out}) is None
    assert rewritten(program, {nodes["aten.sigmoid.default"]: left_out}) is not None


def test_prices_know_how_far_they_may_be_off():
    def work(kind: str, n: float) -> Work:
        return Work(kind, "float32", n / 4, n, n, 0.0, n / 16, 8.0, 4.0, 4.0)

    sizes = (1e5, 4e5, 1e6)
    exact = [(work("ADD", n), 1e3 + 0.2 * n) for n in sizes]
    far = zip(sizes, (0.5, 1, 3), strict=True)
    wild = [(work("MUL", n), (1e3 + 0.2 * n) * times) for n, times in far]
    sure, doubtful = fit_prices(exact), fit_prices([*exact, *wild])
    assert sure is not None and doubtful is not None
    assert sure.error(work("ADD", 2e5)) == ERROR < sure.error(work("TANH", 2e5))
    assert doubtful.error(work("MUL", 2e5)) > ERROR
