"""Advice: five models with a planted hindrance each, and what advice is made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nnapi_prof as nnp
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.advice import Hindrance

PHONE = "sim:npu-phone"
FAST = ["fast"]


class Net(nn.Module):
    """Four convolutions that the simulated NPU runs fast, and a hindrance between them."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.front = nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU()
        )
        self.middle = middle
        self.back = nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 8, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.back(self.middle(self.front(x)))


class Upsample(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=True)


class LinearInLastPlace(nn.Module):
    """A product over channels that asks for another order of dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Squeeze(nn.Module):
    """A gate that is tiny and divides what could run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Conv2d(32, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.gate(F.avg_pool2d(x, x.shape[2:])))


class Double(nn.Module):
    """64 bits, which NNAPI does not have."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.double() * 0.5).float()


PLANTED = {
    "activation": (nn.SiLU(), Hindrance.REFUSED, "silu"),
    "resize": (Upsample(), Hindrance.REFUSED, "upsample"),
    "layout": (LinearInLastPlace(), Hindrance.LAYOUT, "permute"),
    "precision": (Double(), Hindrance.REFUSED, "_to_copy"),
    "tiny": (Squeeze(), Hindrance.REFUSED, "sigmoid"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_first_and_saves_what_was_predicted(name: str, tmp_path: Path):
    middle, kind, operation = PLANTED[name]
    model = nnp.load(Net(middle), inputs=[(1, 3, 128, 128)], name=name)
    costs = nnp.profile(model, PHONE, costs=tmp_path / "costs.sqlite", preferences=FAST)
    plan = nnp.partition(model, costs, verify=False)
    first = nnp.advise(plan, tries=1).advice[0]
    assert first.kind is kind
    assert first.labels[0].startswith(operation)
    assert first.rewrite is not None and first.simulated
    verified = first.verified
    assert verified is not None and not verified.failure
    assert verified.saves_ns > 0
    assert first.saves_ns == pytest.approx(verified.saves_ns, rel=0.1)
    if first.rewrite.exact:
        assert verified.moved < 1e-5


def test_a_unit_that_accuracy_keeps_off_is_let_go(tmp_path: Path):
    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x * 3e5 + 1e5) * 1e-5

    model = nnp.load(Net(Large()), inputs=[(1, 3, 128, 128)], name="bar")
    costs = nnp.profile(
        model, PHONE, costs=tmp_path / "costs.sqlite", preferences=FAST, relaxed=True
    )
    plan = nnp.partition(model, costs, max_error=0.002)
    assert len(plan.plan.segments) > 1
    first = nnp.advise(plan, tries=1).advice[0]
    assert first.kind is Hindrance.KEPT_OFF
    assert first.verified is not None
    assert first.saves_ns == pytest.approx(first.verified.saves_ns, rel=0.1)


def test_advice_is_kept_in_the_bundle(tmp_path: Path):
    model = nnp.load(Net(nn.SiLU()), inputs=[(1, 3, 64, 64)], name="kept")
    table = tmp_path / "costs.sqlite"
    costs = nnp.profile(model, PHONE, costs=table, preferences=FAST, refine=False)
    advised = nnp.advise(nnp.partition(model, costs, verify=False))
    assert advised.frame()["rewrite"].tolist()[0] == advised.advice[0].rewrite.name
    folder = advised.planned.save(tmp_path / "kept.nnprof")
    again = nnp.read_plan(folder)
    assert again.advice == advised.advice
    html = again.report(tmp_path / "report.html", costs=table).read_text()
    assert "What would help" in html and "F.relu6(x + 3)" in html
    text = again.report(tmp_path / "report.md", costs=table).read_text()
    assert "## What would help" in text
    assert nnp.advise(folder, costs=table).advice[0].saves_ns == pytest.approx(
        advised.advice[0].saves_ns, rel=0.02
    )


def test_costs_of_ones_own_have_no_advice(way):
    estimated = nnp.estimate(way.model, "pixel4")
    with pytest.raises(UsageError, match="measured"):
        nnp.advise(nnp.partition(way.model, estimated))
