"""Search for advice: remove each hindrance, by a rewrite where one is known, and rank the results.

The known rewrites are a table: the operators, the PyTorch code to write instead, and its effect on
the outputs. The rewrites of one operator that change least come first. ``form`` writes a rewrite
into a copy of the program's graph, so that plans with it can be predicted and tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

from nnapi_prof.advice import GOOD_ENOUGH, LEAST_GAIN, Advice, Hindrance, Rewrite, forms
from nnapi_prof.advice.forms import left_out
from nnapi_prof.advice.hindrances import HindranceFinding, find_hindrances
from nnapi_prof.advice.whatif import Basis, SupportDoubt, WhatIf
from nnapi_prof.errors import FrontendError
from nnapi_prof.frontend.loader import prepare
from nnapi_prof.graph.program import Program
from nnapi_prof.passes import Rule, Site, erase_unused

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class KnownRewrite:
    """A row of the table."""

    operators: tuple[Any, ...]
    """ATen overloads, after normalisation."""
    rewrite: Rewrite
    form: Rule


def _rewrite_rule(
    operators: tuple[Any, ...], form: Rule, name: str, code: str, accuracy: str = ""
) -> KnownRewrite:
    exact = not accuracy
    text = accuracy or "The same values, except for rounding."
    return KnownRewrite(operators, Rewrite(name, code, text, exact), form)


_TUNE = "Train for some more epochs with it: accuracy mostly comes back."
_SWISH = f"Up to 0.2 away from SiLU, near x = ±3. {_TUNE}"
_GATE = f"Up to 0.08 away from the sigmoid. {_TUNE}"
_AGAIN = "Values change: the model must be trained with it."
_SILU, _GELU = (aten.silu.default,), (aten.gelu.default,)
_BILINEAR = (aten.upsample_bilinear2d.vec, aten.upsample_bilinear2d.default)
_NEAREST = (aten.upsample_nearest2d.vec, aten.upsample_nearest2d.default)

RULES: tuple[KnownRewrite, ...] = (
    # Activations
    _rewrite_rule(
        _SILU, forms.called(aten.hardswish.default), "hard-swish", "nn.Hardswish()", _SWISH
    ),
    _rewrite_rule(
        *(_SILU, forms.swish_parts, "hard-swish in parts"),
        *("x * F.relu6(x + 3) * (1 / 6)", _SWISH),
    ),
    _rewrite_rule(
        _SILU, forms.called(aten.relu.default), "ReLU in place of SiLU", "nn.ReLU()", _AGAIN
    ),
    _rewrite_rule(
        *(_GELU, forms.gelu_tanh, "GELU's tanh form", "nn.GELU(approximate='tanh')"),
        "At most 0.0005 away from exact GELU.",
    ),
    _rewrite_rule(
        *(_GELU, forms.gelu_sigmoid, "GELU's sigmoid form", "x * torch.sigmoid(1.702 * x)"),
        f"At most 0.021 away from exact GELU. {_TUNE}",
    ),
    _rewrite_rule(
        *(_GELU, forms.gelu_parts, "GELU with a hard sigmoid"),
        *("x * F.relu6(1.702 * x + 3) * (1 / 6)", f"Up to 0.07 away from exact GELU. {_TUNE}"),
    ),
    _rewrite_rule(
        _GELU, forms.called(aten.relu.default), "ReLU in place of GELU", "nn.ReLU()", _AGAIN
    ),
    _rewrite_rule(
        *((aten.hardswish.default,), forms.swish_parts, "hard-swish in parts"),
        "x * F.relu6(x + 3) * (1 / 6)",
    ),
    _rewrite_rule(
        *((aten.hardsigmoid.default,), forms.gate_parts, "hard sigmoid in parts"),
        "F.relu6(x + 3) * (1 / 6)",
    ),
    _rewrite_rule(
        *((aten.sigmoid.default,), forms.gate_parts, "hard sigmoid"),
        *("F.relu6(x + 3) * (1 / 6)  # nn.Hardsigmoid()", _GATE),
    ),
    _rewrite_rule(
        *((aten.mish.default,), forms.called(aten.hardswish.default), "hard-swish"),
        *("nn.Hardswish()", f"Up to 0.3 away from Mish. {_TUNE}"),
    ),
    _rewrite_rule(
        *((aten.mish.default,), forms.swish_parts, "hard-swish in parts"),
        *("x * F.relu6(x + 3) * (1 / 6)", f"Up to 0.3 away from Mish. {_TUNE}"),
    ),
    _rewrite_rule(
        *((aten.tanh.default,), forms.clipped(-1.0, 1.0), "hard tanh", "nn.Hardtanh()"),
        f"Up to 0.24 away from tanh. {_TUNE}",
    ),
    _rewrite_rule(
        *((aten.leaky_relu.default,), forms.larger_of_both, "leaky ReLU as a maximum"),
        "torch.maximum(x, slope * x)",
    ),
    _rewrite_rule(
        (aten.elu.default, aten.celu.default, aten.selu.default, aten.softplus.default),
        *(forms.called(aten.relu.default), "ReLU", "nn.ReLU()", _AGAIN),
    ),
    # Arithmetic
    _rewrite_rule((aten.neg.default,), forms.negated, "a product with -1", "x * -1.0"),
    _rewrite_rule(
        *((aten.abs.default,), forms.relu_of_both, "absolute value by ReLU"),
        "torch.relu(x) + torch.relu(-x)",
    ),
    _rewrite_rule((aten.pow.Tensor_Scalar,), forms.squared, "a product with itself", "x * x"),
    _rewrite_rule(
        *((aten.div.Tensor,), forms.times_reciprocal, "a product with the reciprocal"),
        "x * (1 / c)",
    ),
    # Images
    _rewrite_rule(
        *(_BILINEAR, forms.half_pixels, "bilinear without align_corners"),
        "F.interpolate(x, scale_factor=s, mode='bilinear', align_corners=False)",
        f"Pixels shift by up to half of one. {_TUNE}",
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.nearest, "nearest neighbour"),
        *("F.interpolate(x, scale_factor=s, mode='nearest')", f"Edges turn blocky. {_TUNE}"),
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.shuffled_pixels, "nearest neighbour by a pixel shuffle"),
        *("F.pixel_shuffle(nn.Conv2d(c, s * s * c, 1, bias=False)(x), s)  # weight: copies",),
        f"Edges turn blocky, until the weights are trained. {_TUNE}",
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.spread_pixels, "transposed convolution with bilinear weights"),
        "nn.ConvTranspose2d(c, c, 2 * s, stride=s, padding=s // 2, bias=False)"
        "  # weight[i, i]: a tent",
        "As bilinear without align_corners, except for one pixel at the border; the weights can be"
        " trained.",
    ),
    _rewrite_rule(
        *(_BILINEAR, forms.copied_pixels, "transposed convolution that copies pixels"),
        "nn.ConvTranspose2d(c, c, s, stride=s, bias=False)  # weight[i, i] = 1, else 0",
        f"Nearest neighbour: edges turn blocky, until the weights are trained. {_TUNE}",
    ),
    _rewrite_rule(
        *(_NEAREST, forms.shuffled_pixels, "pixel shuffle of copied channels"),
        "F.pixel_shuffle(nn.Conv2d(c, s * s * c, 1, bias=False)(x), s)  # weight: copies",
    ),
    _rewrite_rule(
        *(_NEAREST, forms.copied_pixels, "transposed convolution that copies pixels"),
        "nn.ConvTranspose2d(c, c, s, stride=s, bias=False)  # weight[i, i] = 1, else 0",
    ),
    _rewrite_rule(
        *((aten.mean.dim,), forms.pooled_mean, "average pooling"),
        "F.avg_pool2d(x, x.shape[2:])",
    ),
    _rewrite_rule(
        *((aten.convolution.default,), forms.dense_groups, "a convolution without groups"),
        "nn.Conv2d(c_in, c_out, k, groups=1)  # weights between groups are zero",
    ),
    _rewrite_rule(
        *((aten.channel_shuffle.default,), forms.shuffling_weights, "convolution that shuffles"),
        "nn.Conv2d(c, c, 1, bias=False)  # weight: a permutation",
    ),
    # Norms
    _rewrite_rule(
        *((aten.batch_norm.default,), forms.batch_norm_parts, "batch norm as scale and shift"),
        "x * scale + shift  # scale = weight / sqrt(var + eps), shift = bias - mean * scale",
    ),
    _rewrite_rule(
        (aten.layer_norm.default,),
        *(forms.scaled_and_shifted(("weight", "bias"), image=False), "batch norm for layer norm"),
        *("nn.BatchNorm1d(features)  # folds into the layer before it", _AGAIN),
    ),
    _rewrite_rule(
        (aten.group_norm.default, aten.instance_norm.default),
        *(forms.scaled_and_shifted(("weight", "bias"), image=True), "batch norm"),
        *("nn.BatchNorm2d(channels)  # folds into the convolution before it", _AGAIN),
    ),
    # Types and layouts
    _rewrite_rule(
        *((aten._to_copy.default,), forms.single_precision, "float32 in place of float64"),
        *("x.float()  # and no .double() before it", "float32 has 24 bits of 53."),
    ),
    _rewrite_rule(
        *((aten.permute.default,), forms.without_permutes, "the same without permutes"),
        "op(x, dim=the dimension before permuting)  # nn.Linear on NHWC: nn.Conv2d(c, d, 1)",
    ),
)

LEFT_OUT = Rewrite(
    "leaving it out",
    "x  # or an operation that the accelerator runs",
    "Only to see what it costs: the model must be trained without it, or compute it at its end.",
)
"""Rewrite of operations without a known one."""


def rules_for(operator: Any) -> tuple[KnownRewrite, ...]:
    """Returns the rows for an overload, those that change least first."""
    return tuple(rule for rule in RULES if operator in rule.operators)


def rewritten(program: Program, forms: Mapping[str, Rule]) -> fx.GraphModule | None:
    """Returns the program's graph with other forms of the named nodes; weights are shared.

    None where no form fits, for example because it does not support the sizes.
    """
    module = _copy(program.module)
    changed = 0
    for node in list(module.graph.nodes):
        form = forms.get(node.name)
        if form is None or not node.users or not isinstance(node.target, OpOverload):
            continue
        replacement = form(Site(node))
        if replacement is None or replacement is node:
            continue
        node.replace_all_uses_with(replacement)
        changed += 1
    if not changed:
        return None
    erase_unused(module.graph)
    module.graph.lint()
    module.recompile()
    return module


def _copy(module: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    output = graph.graph_copy(module.graph, {})
    graph.output(output)
    return fx.GraphModule(module, graph)


def as_program(module: fx.GraphModule, program: Program) -> Program | None:
    """Returns a rewritten graph as a program, normalised again; None where that fails."""
    try:
        return prepare(module, program.example_inputs, program.name)
    except FrontendError:
        return None


def names_of(program: Program, units: Iterable[int]) -> tuple[str, ...]:
    """Returns the names of the nodes in units."""
    return tuple(name for unit in units for name in program.units.units[unit].nodes)


def moved(program: Program, module: fx.GraphModule) -> float:
    """Returns the largest change of an output on the program's example inputs, relative to the
    largest value of that output; infinity where a value becomes NaN."""
    with torch.no_grad():
        before = program.module(*program.example_inputs)
        after = module(*program.example_inputs)
    worst = 0.0
    for was, now in zip(before, after, strict=True):
        if not was.numel():
            continue
        scale = float(was.double().abs().max()) or 1.0
        change = float((was.double() - now.double()).abs().max()) / scale
        worst = max(worst, change if change == change else float("inf"))
    return worst


ALONE = 1 / 3
"""Share of the time in which hindrances are ranked by costs alone."""
LEAST_SECONDS = 0.1
"""Shortest time limit of the search for one plan."""
SAME_NS = 1_000.0
"""Savings are rounded to multiples of this; equal ones count as the same plan's."""
MOST_MIXED = 3
"""Most operators of a hindrance whose rewrites are combined."""


@dataclass(frozen=True)
class Suggestion:
    """A piece of advice, and the rewritten graph if there is one."""

    advice: Advice
    module: fx.GraphModule | None = None
    others: tuple[Suggestion, ...] = ()
    """Other rewrites of the same hindrance, the likeliest first."""


@dataclass(frozen=True)
class _Candidate:
    rewrite: Rewrite
    forms: Mapping[str, Rule]


def suggestions(
    basis: Basis,
    *,
    seconds: float,
    rewriting: bool = True,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Iterator[Suggestion]:
    """Yields suggestions as they are found. The most promising by costs alone are tried first.

    ``rewriting`` says whether the program may be rewritten, which one in 8 bits may not. Ends after
    ``seconds``. A third of them is for ranking by costs alone, in equal parts; hindrances that have
    no plan by then are left out. A hindrance without a rewrite is suggested by costs alone.
    """
    began = time.monotonic()
    graph = basis.program.units
    findings = find_hindrances(graph, basis.costs, basis.plan, basis.prices, basis.kept_off)
    before = basis.plan.predicted_ns
    hoped: list[tuple[float, HindranceFinding, WhatIf | None]] = []
    for number, finding in enumerate(findings):
        left = began + ALONE * seconds - time.monotonic()
        if left <= 0:
            break
        without = basis.without(finding, max(left / (len(findings) - number), LEAST_SECONDS))
        hoped.append((before - without.ns if without is not None else 0.0, finding, without))
    hoped.sort(key=lambda row: -row[0])
    for done, (gain, finding, without) in enumerate(hoped):
        what = graph.units[finding.units[0]].operation
        progress(done, len(hoped), what)
        chosen = None
        if rewriting and time.monotonic() - began < seconds:
            chosen = _best_rewrite(basis, finding, gain)
        if chosen is not None:
            yield chosen
        elif without is not None and gain >= LEAST_GAIN * before:
            yield Suggestion(_advice(basis, finding, without, None))
    progress(len(hoped), len(hoped), "")


def ranked(options: Sequence[Suggestion]) -> list[Suggestion]:
    """Sorts suggestions by their saving, largest first. Of several about the same units, or with
    the same rewrite and saving, keeps the one about the fewest units."""
    chosen: dict[object, Suggestion] = {}
    for one in sorted(options, key=lambda each: len(each.advice.units)):
        advice = one.advice
        key = advice.rewrite and (advice.rewrite.name, round(advice.saves_ns / SAME_NS))
        chosen.setdefault(key or advice.units, one)
    return sorted(chosen.values(), key=lambda each: -each.advice.saves_ns)


def _advice(
    basis: Basis, finding: HindranceFinding, what_if: WhatIf, rewrite: Rewrite | None
) -> Advice:
    units = basis.program.units.units
    places = dict.fromkeys(target.accelerator or target.key for target in finding.targets)
    return Advice(
        kind=finding.kind,
        units=finding.units,
        labels=tuple(units[unit].label for unit in finding.units),
        operations=tuple(units[unit].full_operation for unit in finding.units),
        targets=tuple(places),
        reasons=finding.reasons,
        before_ns=basis.plan.predicted_ns,
        after_ns=what_if.ns,
        rewrite=rewrite,
        sure=what_if.doubt is SupportDoubt.NONE,
        simulated=basis.costs.simulated,
        margin_ns=what_if.margin_ns,
    )


def _best_rewrite(basis: Basis, finding: HindranceFinding, hoped_ns: float) -> Suggestion | None:
    """Picks a hindrance's rewrite: the one that changes least among the least doubtful ones that
    save nearly most. The others follow as alternatives."""
    least = LEAST_GAIN * basis.plan.predicted_ns
    options = [
        option
        for candidate in _candidates(basis, finding)
        if (option := _try_candidate(basis, candidate)) is not None and option.gain_ns >= least
    ]
    if not options and finding.kind is not Hindrance.KEPT_OFF and hoped_ns >= least:
        names = names_of(basis.program, finding.units)
        option = _try_candidate(basis, _Candidate(LEFT_OUT, dict.fromkeys(names, left_out)))
        options = [option] if option is not None and option.gain_ns >= least else []
    if not options:
        return None
    doubt = min(option.what_if.doubt for option in options)
    enough = GOOD_ENOUGH * max(o.gain_ns for o in options if o.what_if.doubt == doubt)
    options.sort(key=lambda option: (option.what_if.doubt, option.gain_ns < enough))
    first, *others = [
        Suggestion(_advice(basis, finding, o.what_if, o.rewrite), o.module) for o in options
    ]
    return replace(first, others=tuple(others))


@dataclass(frozen=True)
class _Option:
    """A rewrite with its prediction."""

    what_if: WhatIf
    rewrite: Rewrite
    module: fx.GraphModule
    gain_ns: float


def _try_candidate(basis: Basis, candidate: _Candidate) -> _Option | None:
    module = rewritten(basis.program, candidate.forms)
    program = None if module is None else as_program(module, basis.program)
    what_if = None if program is None else basis.rewritten(program)
    if module is None or what_if is None:
        return None
    gain = basis.plan.predicted_ns - what_if.ns
    return _Option(what_if, candidate.rewrite, module, gain)


def _candidates(basis: Basis, finding: HindranceFinding) -> Iterator[_Candidate]:
    """Yields the known rewrites of a hindrance: each alone, then its operators combined."""
    if finding.kind is Hindrance.KEPT_OFF:
        return
    rules: dict[KnownRewrite, list[str]] = {}
    operators: dict[object, list[KnownRewrite]] = {}
    for name in names_of(basis.program, finding.units):
        target = basis.program.nodes[name].target
        for rule in rules_for(target):
            rules.setdefault(rule, []).append(name)
            own = operators.setdefault(target, [])
            if rule not in own:
                own.append(rule)
    for rule, names in rules.items():
        yield _Candidate(rule.rewrite, dict.fromkeys(names, rule.form))
    if 1 < len(operators) <= MOST_MIXED:
        yield from _mixtures(rules, list(operators.values()))


def _mixtures(
    rules: Mapping[KnownRewrite, Sequence[str]], operators: Sequence[Sequence[KnownRewrite]]
) -> Iterator[_Candidate]:
    """Yields rewrites of all operators at once: those that change least, then the simplest."""
    for place in (0, -1):
        chosen = [own[place] for own in operators]
        forms = {name: rule.form for rule in chosen for name in rules[rule]}
        texts = [rule.rewrite for rule in chosen]
        yield _Candidate(
            Rewrite(
                " and ".join(text.name for text in texts),
                "\n".join(text.code for text in texts),
                " ".join(dict.fromkeys(text.accuracy for text in texts)),
                all(text.exact for text in texts),
            ),
            forms,
        )
