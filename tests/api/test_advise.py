"""Advice: five models with a planted hindrance each, and what advice is made of."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nnapi_prof as nnp
from nnapi_prof.advice import (
    Advice,
    Hindrance,
    Rewrite,
    Verified,
    advice_from_json,
    advice_to_json,
)
from nnapi_prof.advice.forms import left_out
from nnapi_prof.advice.hindrances import ERROR, fit_prices
from nnapi_prof.advice.search import rewritten, rules_for
from nnapi_prof.api.advise import INTERRUPTED, _rank
from nnapi_prof.cli.advise import show_advice
from nnapi_prof.cli.output import stdout
from nnapi_prof.device.find import phone_file
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.unit import Work
from tests.cli.common import raises, save
from tests.cli.conftest import cli as cli
from tests.models import Function
from tests.parts import again_but

PHONE = "sim:npu-phone"


def net(middle: nn.Module) -> nn.Module:
    """Four convolutions that the simulated NPU runs fast, and a hindrance between them."""
    torch.manual_seed(0)
    front = (nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())
    back = (nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 8, 3, 1, 1))
    return nn.Sequential(*front, middle, *back)


# A product over channels that asks for another order of dimensions.
LAYOUT = Function(
    lambda x, linear: linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), linear=nn.Linear(32, 32)
)
# A gate that is tiny and divides what could run at once.
TINY = Function(
    lambda x, gate: x * torch.sigmoid(gate(F.avg_pool2d(x, x.shape[2:]))), gate=nn.Conv2d(32, 32, 1)
)
PLANTED = {
    "activation": (nn.SiLU(), Hindrance.REFUSED, "silu"),
    "resize": (nn.UpsamplingBilinear2d(scale_factor=2), Hindrance.REFUSED, "upsample"),
    "layout": (LAYOUT, Hindrance.LAYOUT, "permute"),
    "precision": (Function(lambda x: (x.double() * 0.5).float()), Hindrance.REFUSED, "_to_copy"),
    "tiny": (TINY, Hindrance.REFUSED, "sigmoid"),
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
    page = again.report(tmp_path / "report.html", costs=table).read_text()
    assert "What would help" in page and "F.relu6(x + 3)" in page
    assert "## What would help" in again.report(tmp_path / "report.md", costs=table).read_text()
    reread = nnp.advise(folder, costs=table)
    first, saves_ms = reread.advice[0], reread.advice[0].saves_ns / 1e6
    assert first.saves_ns == pytest.approx(advised.advice[0].saves_ns, rel=0.02)
    count = f"Advised('net', {len(reread.advice)} pieces of advice"
    assert repr(reread) == f"{count}, the first saves {saves_ms:.3f} ms)"
    assert re.findall(r"<t[hd] [^>]*>([^<]*)</t[hd]>", reread._repr_html_()) == [
        *("cause", "rewrite", "in PyTorch", "saves, ms, simulated"),
        *(first.cause, first.rewrite.name, first.rewrite.code, f"{saves_ms:.3f}"),
    ]
    with pytest.raises(UsageError, match=r"the plan is for .*, this device is .*: try rewrites on"):
        nnp.advise(folder, costs=table, device="sim:gpu-phone", tries=1)
    stopped = nnp.advise(folder, costs=table, progress=raises(KeyboardInterrupt()))
    assert (stopped.advice, stopped.notes[-1]) == ((), INTERRUPTED)


def test_advice_of_a_models_file(cli, tmp_path):
    x = torch.rand(1, 3, 64, 64)
    save(net(nn.SiLU()), tmp_path / "net.pt2", (x,))
    profiled(nn.SiLU(), tmp_path, threads=1)
    costs = ("--costs", tmp_path / "costs.sqlite", "--device", PHONE, "--threads", 1)
    assert " ".join(cli.ok("advise", *costs, tmp_path / "net.pt2").out.split()) == (
        "What would help, the most first: 1. sim-npu does not run silu 1x32x32x32: sim-npu does not"
        " support LOGISTIC. Hard-swish in parts: that would save 0.713 ms (simulated) of 1.72 ms,"
        " predicted. x * F.relu6(x + 3) * (1 / 6) Up to 0.2 away from SiLU, near x = ±3. Train for"
        " some more epochs with it: accuracy mostly comes back."
    )
    tried = cli.document("advise", "--try", "--tries", 1, *costs, tmp_path / "net.pt2")
    (first, *_) = tried["advice"]
    assert first["rewrite"]["name"] == "hard-swish in parts" and not first["verified"]["failure"]


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


LINE = torch.linspace(-6, 6, 99)
ROWS, IMAGE = LINE.reshape(33, 3), torch.linspace(-6, 6, 144).reshape(1, 4, 6, 6)
UNFIT = math.nan  # of a rewrite that does not fit
RECIPROCAL, PERMUTES = "a product with the reciprocal", "the same without permutes"
CORNERS, NEAREST = "bilinear without align_corners", "nearest neighbour"
SPREAD = "transposed convolution with bilinear weights"
SHUFFLE, COPIES = f"{NEAREST} by a pixel shuffle", "transposed convolution that copies pixels"
GELU = (
    "GELU's tanh form",
    "GELU's sigmoid form",
    "GELU with a hard sigmoid",
    "ReLU in place of GELU",
)
FORMS: list[tuple[Any, Tensor, dict[str, float]]] = [
    (
        *(F.silu, LINE),
        {"hard-swish": 0.137, "hard-swish in parts": 0.137, "ReLU in place of SiLU": 0.278},
    ),
    (F.gelu, LINE, dict(zip(GELU, (0.000473, 0.0203, 0.0608, 0.170), strict=True))),
    (nn.GELU("tanh"), LINE, dict(zip(GELU, (UNFIT, 0.0206, 0.0609, 0.170), strict=True))),
    (F.hardswish, LINE, {"hard-swish in parts": 0}),
    (F.hardsigmoid, LINE, {"hard sigmoid in parts": 0}),
    (torch.sigmoid, LINE, {"hard sigmoid": 0.0691}),
    (F.mish, LINE, {"hard-swish": 0.289, "hard-swish in parts": 0.289}),
    (torch.tanh, LINE, {"hard tanh": 0.227}),
    (F.leaky_relu, LINE, {"leaky ReLU as a maximum": 0}),
    (nn.LeakyReLU(2.0), LINE, {"leaky ReLU as a maximum": UNFIT}),
    (F.softplus, LINE, {"ReLU": math.log(2)}),
    (torch.neg, LINE, {"a product with -1": 0}),
    (torch.abs, LINE, {"absolute value by ReLU": 0}),
    (lambda x: x**2, LINE, {"a product with itself": 0}),
    (lambda x: x**3, LINE, {"a product with itself": UNFIT}),
    (lambda x: x / 3, LINE, {RECIPROCAL: 0}),
    (lambda x: x / 0, LINE, {RECIPROCAL: UNFIT}),
    (lambda x: x / torch.tensor([2.0, 3, 4]), ROWS, {RECIPROCAL: 0}),
    (lambda x: x / torch.tensor([2.0, 0, 4]), ROWS, {RECIPROCAL: UNFIT}),
    (lambda x: x / (x + 9), ROWS, {RECIPROCAL: UNFIT}),
    (
        *(nn.UpsamplingBilinear2d(scale_factor=2), IMAGE),
        {CORNERS: 0.120, NEAREST: 0.267, SHUFFLE: 0.267, SPREAD: 2.625, COPIES: 0.267},
    ),
    (
        *(nn.Upsample(scale_factor=(3, 2), mode="bilinear"), IMAGE),
        {CORNERS: UNFIT, NEAREST: 0.189, SHUFFLE: UNFIT, SPREAD: 3, COPIES: 0.189},
    ),
    (
        *(nn.Upsample((9, 7), mode="bilinear"), IMAGE),
        {CORNERS: UNFIT, NEAREST: 0.318, SHUFFLE: UNFIT, SPREAD: UNFIT, COPIES: UNFIT},
    ),
    (nn.Upsample(scale_factor=2), IMAGE, {"pixel shuffle of copied channels": 0, COPIES: 0}),
    (nn.Upsample((7, 7)), IMAGE, {"pixel shuffle of copied channels": UNFIT, COPIES: UNFIT}),
    (lambda x: x.mean((2, 3)), IMAGE, {"average pooling": 0}),
    (lambda x: x.mean(1), IMAGE, {"average pooling": UNFIT}),
    (nn.Conv2d(4, 6, 3, groups=2), IMAGE, {"a convolution without groups": 0}),
    (nn.Conv2d(4, 4, 3, groups=4), IMAGE, {"a convolution without groups": UNFIT}),
    (nn.ChannelShuffle(2), IMAGE, {"convolution that shuffles": 0}),
    (nn.BatchNorm2d(4), IMAGE, {"batch norm as scale and shift": 0}),
    (nn.LayerNorm(6), IMAGE, {"batch norm for layer norm": 7.044}),
    (nn.GroupNorm(2, 4), IMAGE, {"batch norm": 4.292}),
    (nn.GroupNorm(2, 4, affine=False), IMAGE, {"batch norm": 4.292}),
    (lambda x: (x.double() * 0.5).float(), LINE, {"float32 in place of float64": 0}),
    (lambda x: x.permute(0, 2, 3, 1).softmax(-1).permute(0, 3, 1, 2), IMAGE, {PERMUTES: 0}),
    (lambda x: x.permute(0, 2, 3, 1).flip(1, 2).permute(0, 3, 1, 2), IMAGE, {PERMUTES: 0}),
    (lambda x: x.permute(0, 2, 3, 1).softmax(-1).permute(0, 2, 3, 1), IMAGE, {PERMUTES: UNFIT}),
    (lambda x: x.permute(0, 2, 3, 1).sin().permute(0, 3, 1, 2), IMAGE, {PERMUTES: UNFIT}),
    (lambda x: x.permute(0, 2, 3, 1).cumsum(1), IMAGE, {PERMUTES: UNFIT}),
]
"""A model, its input, and how far each rewrite moves the output."""


@pytest.mark.parametrize(("function", "x", "expected"), FORMS)
def test_rewrites_move_an_output_as_far_as_they_say(function, x, expected):
    program = prepare(Function(function).eval(), (x,), "net")
    before, changes = program.module(x)[0], dict.fromkeys(expected, UNFIT)
    for node in program.module.graph.nodes:
        for rule in rules_for(node.target):
            if (module := rewritten(program, {node.name: rule.form})) is None:
                continue
            apart = (module(x)[0] - before).abs()
            changes[rule.rewrite.name] = change = float(apart.max())
            stated = re.match(r"(?:At most|Up to) ([\d.]+) away", rule.rewrite.accuracy)
            assert stated is None or change <= float(stated[1]) <= 1.5 * change
            assert not rule.rewrite.exact or change < 1e-5
            if rule.rewrite.name == SPREAD and function.align_corners is None:
                assert apart[..., 1:-1, 1:-1].max() < 1e-5
    assert changes == pytest.approx(expected, rel=5e-3, abs=1e-5, nan_ok=True)


GATE = Rewrite("hard sigmoid", "F.relu6(x + 3) / 6", "Up to 0.08 away.")
TEXTS = {
    Hindrance.REFUSED: "npu does not run silu: no LOGISTIC. Replace it by what the accelerator"
    " runs, or move it to an end of the model",
    Hindrance.CUT: "silu divides what npu could run in one call. Replace it by what the accelerator"
    " runs, or move it to an end of the model",
    Hindrance.KEPT_OFF: "silu is kept off npu by the plan's constraints. Allow it there",
    Hindrance.SLOW: "silu is slow on npu for its size. Give it sizes and options like those of the"
    " faster layers",
    Hindrance.LAYOUT: "silu only moves values into another order. Keep one order of dimensions",
}


@pytest.mark.parametrize("kind", Hindrance)
def test_what_advice_says_without_a_rewrite(kind, capsys):
    advice = Advice(kind, (0,), ("silu",), ("silu",), ("npu",), ("no LOGISTIC",), 2e6, 1e6)
    text = f"{TEXTS[kind]}: that would save 1.00 ms of 2.00 ms, predicted"
    assert str(advice) == text
    several = replace(advice, labels=("silu", "gelu"), operations=("silu", "gelu")).cause
    words = advice.cause.replace(" is ", " are ").replace(" its ", " their ")
    words = words.replace("divides", "divide").replace("moves", "move")
    assert several == words.replace("silu", "silu, gelu (2 units)")
    failed = replace(advice, rewrite=GATE, sure=False, verified=Verified(failure="it hangs"))
    tried = f"{text.partition('. ')[0]}. Hard sigmoid: that would save 1.00 ms of 2.00 ms"
    tried += ", predicted; whether the accelerator runs it was never tried on this device"
    tried += "; tried: it hangs"
    show_advice(stdout(), [failed, advice, advice, advice], 2)
    show_advice(stdout(), [])
    lines = ["What would help, the most first:", f"1. {tried}.", f"     {GATE.code}"]
    lines += [f"   {GATE.accuracy}", f"2. {text}.", "(2 more: `nnapi-prof advise`)"]
    lines.append("Nothing that would help was found: no hindrance costs 1 % of the plan.")
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"before_ns": -1}, r"ValueError\('a plan takes -1.0 ns, or 1000000.0'\)"),
        ({"kind": "none"}, r"ValueError\(\"'none' is not a valid Hindrance\"\)"),
        (
            {"verified": {"before_ns": 1e16, "failure": ""}},
            r"ValueError\(.plans took \{'before_ns'",
        ),
        ({"units": None}, r"TypeError\("),
    ],
)
def test_damaged_advice_is_refused(changes, words):
    whole = Advice(Hindrance.CUT, (0,), ("silu",), ("silu",), ("npu",), (), 2e6, 1e6)
    (row,) = json.loads(advice_to_json([whole]))["advice"]
    text = json.dumps({"advice": [{**row, **changes}]})
    with pytest.raises(SerializationError, match=f"^this is not advice: {words}.*; write it anew"):
        advice_from_json(text)


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
