"""The first lines of a report, from frames with known latencies."""

import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from nnapi_prof.execution.report import Evidence, OutputCheck
from nnapi_prof.graph.plan import CPU, HOST, BaselineName, Proof, ProofKind, Rule
from nnapi_prof.reports import frames, html, markdown
from nnapi_prof.reports.data import ReportData
from nnapi_prof.reports.headline import Card, Headline, Rival, headline, rivals_of
from tests.reports.sample import NPU, split

RIVAL = "the fastest rule that needs no partitioner"
COLUMNS = ["plan", "predicted_ms", "measured_ms"]


def told(data: ReportData, *rows: tuple[str, float, float]) -> Headline:
    """By (name, predicted, measured) in ms of each plan, or as it ran."""
    if not rows:
        return headline(data, frames.baseline_frame(data.plans, data.run))
    return headline(data, pd.DataFrame(rows, columns=COLUMNS))


def placed(data: ReportData, *targets, **fields) -> ReportData:
    """With a plan of one unit on each target in turn, and these fields."""
    first = data.plan.segments[0]
    segments = tuple(replace(first, units=(u,), target=t) for u, t in enumerate(targets))
    return replace(data, plan=replace(data.plan, segments=segments, **fields))


def card(shown: Headline, about: str) -> Card:
    return next(each for each in shown.cards if about in each.about)


@pytest.mark.parametrize(
    "rival, phrase, verdict",
    [(2.5, "1.25 × as fast", "good"), (2.03, "as fast", ""), (1.97, "as fast", ""),
     (1.6, "25 % slower", "bad")],
)  # fmt: skip
def test_phrases(rival, phrase, verdict):
    beaten = Rival(BaselineName(Rule.ALL_CPU), 2.0, rival, True)
    assert (beaten.phrase, beaten.verdict) == (phrase, verdict)


def test_rivals_are_measured_only_where_both_were():
    rows = ("dp", 1.0, 2.0), ("all-cpu", 3.0, math.nan), ("greedy", 5.0, 3.0)
    greedy, cpu = rivals_of(pd.DataFrame(rows, columns=COLUMNS))
    assert (greedy.name, greedy.plan_ms, greedy.rival_ms, greedy.measured) == ("greedy", 2, 3, True)
    assert (cpu.plan_ms, cpu.rival_ms, cpu.measured) == (1.0, 3.0, False)


def test_a_split_plan_is_told_against_the_best_single_target(data):
    rule, single = "largest-3 nnapi:sim-npu/fast", "best-single nnapi:sim-gpu/fast"
    rows = ("dp", 2.0, 2.0), ("all-cpu", 9.0, 8.0), (single, 4.0, 3.0), (rule, 1.0, 2.1)
    shown = told(split(data), *rows)
    assert shown.sentence == (
        "Split over sim-npu and the CPU, the model takes 2.00 ms (simulated) from end to end. "
        f"That is 1.05 × as fast as {RIVAL}, largest 3, sim-npu (fast)."
    )
    first, second, third = shown.cards[:3]
    assert (first.about, first.value) == (f"against {RIVAL}", "1.05 × as fast")
    assert (second.about, second.value) == ("against the best single target", "1.50 × as fast")
    assert (third.about, third.value) == ("against the CPU alone", "4.00 × as fast")
    assert first.verdict == "good"
    assert first.detail == "largest 3: sim-npu (fast): measured 2.10 ms (simulated)"
    assert second.detail == "sim-gpu (fast): measured 3.00 ms (simulated)"


@pytest.mark.parametrize(
    "others, said",
    [
        ([], "sim-npu refuses upsample_bilinear."),
        ([("all-cpu", 9.0, 8.0)],
         "that it is this rule; CPU alone takes 4 × as long; sim-npu"),
        ([("all-cpu", 9.0, 8.0), ("greedy", 9.0, 3.0), ("largest-3 nnapi:a/fast", 2.0, 2.01)],
         "which of the 4 rules it is; greedy takes 1.5 × as long, CPU alone takes 4 × as long; "
         "sim-npu refuses upsample_bilinear."),
    ],
)  # fmt: skip
def test_a_plan_that_gains_nothing_says_so_and_what_it_was_good_for(data, others, said):
    rule, data = "largest-supported nnapi:sim-npu/fast", split(data)
    rows = ("dp", 2.0, 2.0), (rule, 2.0, 2.0), *others
    shown = told(data, *rows)
    assert f"The plan is as fast as {RIVAL}, largest" in shown.sentence
    assert f"What measuring tells: {said}" in shown.sentence
    first = shown.cards[0]
    assert "without" not in first.about and (first.value, first.verdict) == ("as fast", "")
    shown = told(replace(data, baselines=(replace(data.plan, name=rule),)), *rows)
    assert f"The plan is {RIVAL}, largest" in shown.sentence
    first = shown.cards[0]
    assert first.value == "the same"
    assert first.detail.startswith("the plan is largest supported: sim-npu (fast), 2.00")


def test_one_target_is_told_against_the_cpu(data):
    rule = "best-single nnapi:sim-npu/fast"
    plan = replace(data.plan, segments=(replace(data.plan.segments[0], target=NPU[1]),))
    data = replace(data, plan=plan, baselines=(replace(plan, name=rule),))
    shown = told(data, ("dp", 2.0, 2.0), ("all-cpu", 9.0, 8.0), (rule, 2.0, 2.0))
    assert shown.sentence.startswith("On sim-npu alone, the model takes 2.00 ms (simulated)")
    for words in (
        f"The plan is {RIVAL}, best single",
        "CPU alone takes 4 × as long",
        "No split over several targets is faster",
    ):
        assert words in shown.sentence
    others = ["against the CPU alone", "predicted against measured"]
    assert [each.about for each in shown.cards[:3]] == [f"against {RIVAL}", *others]
    assert shown.cards[0].value == "the same"


EXACT = Proof(ProofKind.EXACT, 2e6, 2e6)
GAP = Proof(ProofKind.GAP, 2.062e6, 2e6)
WITHIN = "Planning ended within 3.1 % of the optimum"


@pytest.mark.parametrize(
    "proof, said",
    [
        (EXACT, "No split over several targets is faster by more than 1 %"),
        (Proof(ProofKind.BOUND_MET, 2e6, 2e6), "No split over several targets is faster"),
        (replace(EXACT, constrained=True), None),
        (GAP, f"{WITHIN}, by these costs."),
        (replace(GAP, constrained=True), f"{WITHIN} under the constraints, by these costs."),
        (replace(GAP, constrained=True, objective="energy in mJ"), None),
        (replace(GAP, bound_ns=0.0), None),
        (None, None),
    ],
)
def test_of_the_optimum_it_says_what_is_proven(data, proof, said):
    """Whatever the notes say."""
    notes = ("optimal over all plans under these costs",)
    plan = replace(data.plan, segments=data.plan.segments[:1], remarks=notes, proof=proof)
    sentence = told(replace(data, plan=plan), ("dp", 2.0, 2.0), ("all-cpu", 2.0, 2.0)).sentence
    if said is None:
        assert "optimum" not in sentence and "No split" not in sentence
    else:
        assert said in sentence


def test_the_cpu_in_segments_against_the_cpu_in_one_and_a_slower_plan(data):
    cut = placed(data, CPU, CPU, remarks=(), proof=None)
    assert told(cut, ("dp", 2.0, 2.0), ("all-cpu", 3.0, 3.0)).sentence == (
        "On the CPU alone, in 2 segments, the model takes 2.00 ms (simulated) from end to end. "
        f"That is 1.50 × as fast as {RIVAL}, CPU alone in one segment."
    )
    shown = told(data, ("dp", 2.0, 2.0), ("all-cpu", 1.0, 1.0))
    assert f"That is 100 % slower than {RIVAL}, CPU alone." in shown.sentence
    assert shown.cards[0].verdict == "bad"


def test_what_the_host_computes_is_not_timed(data):
    helped = placed(data, CPU, HOST, remarks=(), proof=None)
    assert told(helped, ("dp", 2.0, 2.0)).sentence == (
        f"On the CPU, {data.graph.units[1].operation} on the host (eager PyTorch), the model takes "
        "2.00 ms (simulated) from end to end, without what the host computes, which is not timed."
    )
    alone = told(placed(data, HOST, remarks=(), proof=None), ("dp", 2.0, math.nan))
    assert alone.sentence.startswith("On the host alone, ")


def test_predictions_that_rest_on_estimates_say_so(data):
    first = data.plan.segments[0]
    guess = replace(first, measured=False, estimated=True)
    guessed = replace(data, plan=replace(data.plan, segments=(guess,)), run=None)
    shown = told(guessed, ("dp", 2.0, math.nan), ("all-cpu", 3.0, math.nan))
    assert "takes 2.00 ms (simulated, estimated in part), as predicted" in shown.sentence
    assert "(simulated, estimated in part)" in card(shown, "predicted").detail
    assert "estimated" not in shown.cards[0].detail  # that baseline was measured
    assert guessed.what_is_estimated.startswith("The plan's only segment was not measured")
    assert data.what_is_estimated == ""
    host = replace(first, units=(1,), target=HOST, estimated=True)  # no run times it
    helped = replace(data, plan=replace(data.plan, segments=(replace(first, units=(0,)), host)))
    shown = told(helped, ("dp", 2.0, 2.0), ("all-cpu", 3.0, 3.0))
    assert "estimated" not in card(shown, "predicted").detail


@pytest.mark.parametrize(
    "predicted, value, verdict",
    [(1.0, "0.0 % too high", "good"), (0.97, "3.0 % too low", "good"), (1.1, "10.0 % too high", ""),
     (1.5, "50.0 % too high", "bad"), (math.nan, "–", "")],
)  # fmt: skip
def test_predicted_against_measured(data, predicted, value, verdict):
    shown = card(told(data, ("dp", predicted, 1.0), ("all-cpu", 2.0, 2.0)), "predicted")
    assert shown.verdict == verdict and shown.value.startswith(value)


def test_before_a_run(data):
    shown = told(replace(data, run=None))
    assert shown.sentence.split(". ")[0].endswith("as predicted: it was not run yet")
    assert card(shown, "predicted").value == card(shown, "outputs").value == "not run yet"
    assert card(shown, "CPU alone").detail.startswith("CPU alone: predicted")


def outputs(data: ReportData, *checks: OutputCheck) -> tuple[ReportData, Card]:
    data = replace(data, run=replace(data.run, checks=checks))
    return data, card(told(data), "outputs")


@pytest.mark.parametrize(
    ("relative", "tolerance", "value", "texts"),
    [
        (3e-4, 1e-4, "1 of 2 differ", ("3.0e-04", "1e-04")),
        (1.44e-2, 1.47e-2, "agree", ("1.4e-02", "1.5e-02")),
        (1.474e-2, 1.466e-2, "1 of 2 differ", ("1.474e-02", "1.466e-02")),
    ],
)
def test_the_worst_output_is_told_by_what_it_was_allowed(data, relative, tolerance, value, texts):
    """Both have as many digits as show which is larger."""
    worst = OutputCheck("b", (1,), 1e-3, relative, tolerance)
    _, shown = outputs(data, OutputCheck("a", (1,), 1.0, 2e-2, 1e-1), worst)
    assert (shown.value, shown.verdict) == (value, "good" if worst.ok else "bad")
    assert shown.detail == f"largest difference {texts[0]} of the largest value, {texts[1]} allowed"


def test_outputs_that_are_not_finite_differ_in_words(data):
    data, shown = outputs(data, OutputCheck("a", (), math.inf, math.inf, 1e-4))
    assert shown.detail == "largest difference infinite, 1e-04 allowed"
    for page in (html.render(data), markdown.render(data)):
        cells = [cell.strip() for cell in re.split(r"<[^>]+>|\|", page)]
        assert "inf" not in cells and "infinite" in cells and "scalar" in cells


@pytest.mark.parametrize(
    "first, second, value, verdict, detail",
    [
        (Evidence.VALUES, Evidence.VALUES, "agree", "good", "1e-04 allowed"),
        (Evidence.ZEROS, Evidence.VALUES, "agree", "good",
         "1e-04 allowed; 1 of 2 left little to compare"),
        (Evidence.ZEROS, Evidence.CONSTANT, "little to compare", "",
         "a is 0 everywhere; b is the same number everywhere"),
    ],
)  # fmt: skip
def test_agreeing_needs_something_to_compare(data, first, second, value, verdict, detail):
    pairs = (("a", first), ("b", second))
    checks = [OutputCheck(name, (4,), 0.0, 0.0, 1e-4, each) for name, each in pairs]
    data, shown = outputs(data, *checks)
    assert (shown.value, shown.verdict) == (value, verdict)
    assert shown.detail.endswith(detail)
    for page in (html.render(data), markdown.render(data)):
        assert ("agrees, but it is 0 everywhere" in page) == (first is Evidence.ZEROS)
