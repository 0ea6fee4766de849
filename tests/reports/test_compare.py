"""Comparisons of plans, devices and dates: what changed, as data, Markdown and JSON."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from nnapi_prof.costs.measurement import Measurement
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.documents.report import of_comparison
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.plan import CPU
from nnapi_prof.partition import baselines, solve
from nnapi_prof.reports import compare_markdown
from nnapi_prof.reports.compare_changes import by_target
from nnapi_prof.reports.compare_markdown import headline_rows
from nnapi_prof.reports.compare_summary import LETTERS, Compared, compared
from nnapi_prof.reports.data import ReportData
from tests.documents.common import check
from tests.reports.sample import NPU, REFUSAL, measured_on_hardware, run_of, sample


@pytest.fixture(scope="module")
def plain() -> ReportData:
    """Ten units; the NPU refuses the fifth."""
    return sample(10, (4,))


@pytest.fixture(scope="module")
def freed() -> ReportData:
    """The same units, none refused. (The label says which unit is a resize.)"""
    data = sample(10, (4,))
    rows = [
        replace(m, status=type(m.status).OK, message=None, samples_ns=(400_000,) * 9)
        if m.message == REFUSAL and m.n_units == 1
        else m
        for m in data.measurements
    ]
    return planned(data, rows)


def planned(data: ReportData, rows: list[Measurement]) -> ReportData:
    """The data as they are with these measurements, partitioned and run anew."""
    costs = fit(data.graph, rows)
    plan, rivals = solve(data.graph, costs), baselines(data.graph, costs)
    return replace(
        data,
        cost_model=costs,
        measurements=tuple(rows),
        plan=plan,
        baselines=rivals,
        run=run_of(data.graph, (plan, *rivals), data.model),
    )


def slowed(data: ReportData, target: object, factor: float) -> ReportData:
    """The same plan measured again, on one target slower."""
    noise = random.Random(3)
    rows = [
        replace(
            m,
            samples_ns=tuple(
                round(ns * (factor if m.target == target else 1) * noise.uniform(0.99, 1.01))
                for ns in m.samples_ns
            ),
            measured_at="2024-06-01T12:00:00.000+00:00",
        )
        for m in data.measurements
    ]
    return replace(data, measurements=tuple(rows), cost_model=fit(data.graph, rows))


def run_scaled(data: ReportData, factor: float, runs: int = 9) -> ReportData:
    """The plan's run, slower by a factor, of so many recorded runs."""
    assert data.run is not None
    own, *rest = data.run.runs
    scaled = replace(own, total_ns=tuple(round(ns * factor) for ns in own.total_ns[:runs]))
    return replace(data, run=replace(data.run, runs=(scaled, *rest)))


def pair(first: ReportData, second: ReportData) -> Compared:
    return compared([("one", first), ("two", second)])


def words(found: Compared) -> str:
    return "\n".join(sentence.text for sentence in found.sentences)


def test_a_side_against_itself_changed_in_nothing(plain: ReportData) -> None:
    result = pair(plain, plain)
    assert result.moves == () and result.refusals == () and result.conditions == ()
    assert result.descriptions == () and result.n_moved == 0
    assert len(result.matched) == 10 and result.only(result.sides[0]) == ()
    (latencies,) = result.latencies
    assert latencies.differences == () and latencies.same_row == len(plain.measurements)
    (ratio,) = result.ratios
    assert ratio is not None and ratio.value == 1 and ratio.verdict == "the same within noise"
    assert words(result).splitlines()[1:] == [
        "All 10 units in common run on the same targets.",
        "No unit was measured again.",
    ]
    assert not any(row.differs for row in headline_rows(result)[:5])


def test_a_refusal_that_went_and_the_unit_that_moved(plain: ReportData, freed: ReportData) -> None:
    result = pair(plain, freed)
    (refusal,) = result.refusals
    assert (refusal.unit, refusal.targets) == (4, tuple(sorted(t.key for t in NPU)))
    assert refusal.reasons == (f"refused: {REFUSAL}", None)
    moved = {unit for move in result.moves for unit in move.units[0]}
    (move,) = (move for move in result.moves if 4 in move.units[0])
    assert move.stays[0].target != move.stays[1].target
    assert result.n_moved == len(moved)
    run = "runs" if result.n_moved == 1 else "run"
    assert f"{result.n_moved} of 10 units {run} elsewhere in B." in words(result)
    placed = [
        {u: s.target.key for s in data.plan.segments for u in s.units} for data in (plain, freed)
    ]
    assert moved == {u for u in range(10) if placed[0][u] != placed[1][u]}
    causes = [
        {s.target.key: s.cause for s in d.plan.segments if 4 in s.units} for d in (plain, freed)
    ]
    assert [{stay.target: stay.cause} for stay in move.stays] == causes
    assert "What is refused differs for 1 unit: nnapi:sim-npu/fast" in words(result)


def test_neighbours_that_moved_together_are_one_row(plain: ReportData) -> None:
    """All on the CPU against the plan: a row for each segment that is not there already."""
    on_cpu = next(p for p in plain.baselines if p.name == "all-cpu")
    result = pair(plain, replace(plain, plan=on_cpu))
    elsewhere = [s.units for s in plain.plan.segments if s.target != CPU]
    assert [move.units[0] for move in result.moves] == elsewhere
    assert all(move.units[0] == move.units[1] for move in result.moves)


@pytest.mark.parametrize(("factor", "verdict"), [(1.5, "slower"), (0.5, "faster")])
def test_latencies_that_changed_on_one_target(
    plain: ReportData, factor: float, verdict: str
) -> None:
    result = pair(plain, slowed(plain, NPU[0], factor))
    (latencies,) = result.latencies
    rows = {row.target: row for row in by_target(latencies)}
    first = by_target(latencies)[0]
    assert first.target == NPU[0].key and first.median_ratio == pytest.approx(factor, rel=0.02)
    assert getattr(first, verdict) == first.compared > 0
    assert all(row.slower == row.faster == 0 for key, row in rows.items() if key != NPU[0].key)
    assert {each.first.target for each in latencies.changed} == {NPU[0]}
    count = f"{first.compared} became slower, 0 faster" if factor > 1 else "0 became slower"
    assert count in words(result)


def test_conditions_do_not_keep_latencies_apart(plain: ReportData) -> None:
    """A plan for burst mode against one for sync: their latencies are what one wants to see."""
    from nnapi_prof.costs.conditions import Conditions, Mode

    burst = slowed(plain, NPU[0], 0.8)
    rows = tuple(
        m if m.target == CPU else replace(m, conditions=Conditions(mode=Mode.BURST))
        for m in burst.measurements
    )
    result = pair(plain, replace(burst, measurements=rows))
    assert by_target(result.latencies[0])[0].faster > 0
    assert next(d for d in result.conditions if d.name == "NNAPI execution").values == (
        "sync",
        "burst",
    )


@pytest.mark.parametrize(
    ("factor", "runs", "verdict"),
    [
        (1.5, 9, "slower"),
        (0.6, 9, "faster"),
        (1.005, 9, "the same within noise"),
        (1.5, 3, "not certain"),
    ],
)
def test_the_ratio_of_two_runs(plain: ReportData, factor: float, runs: int, verdict: str) -> None:
    result = pair(run_scaled(plain, 1, runs), run_scaled(plain, factor, runs))
    (ratio,) = result.ratios
    assert ratio is not None and ratio.measured
    assert ratio.value == pytest.approx(factor, rel=1e-3) and ratio.verdict == verdict
    if runs >= 5:
        assert ratio.low is not None and ratio.high is not None
        assert ratio.low <= ratio.value <= ratio.high
    else:
        assert ratio.low is None and ratio.high is None
    assert f"B takes {ratio.value:.3f} × as long as A, measured end to end" in words(result)


def test_before_a_run_predictions_are_compared(plain: ReportData, freed: ReportData) -> None:
    result = pair(replace(plain, run=None), freed)
    (ratio,) = result.ratios
    assert ratio is not None and not ratio.measured and ratio.low is None
    expected = freed.plan.predicted_ns / plain.plan.predicted_ns
    assert ratio.value == pytest.approx(expected)
    rows = {row.name: row for row in headline_rows(result)}
    assert rows["latency, measured"].cells[0].text == "not run"
    assert "predicted" in words(result).splitlines()[0]


def test_simulated_beside_measured_on_hardware(plain: ReportData) -> None:
    result = pair(plain, measured_on_hardware(plain))
    rows = {row.name: row for row in headline_rows(result)}
    for name in ("latency, measured", "latency, predicted"):
        simulated, real = rows[name].cells
        assert simulated.text.endswith(" ms, simulated") and real.text.endswith(" ms")
    assert "A is simulated and B is neither simulated nor estimated: this ratio says lit" in words(
        result
    )
    assert [d.values for d in result.conditions if d.name == "latencies"] == [
        ("simulated", "measured on hardware")
    ]


def test_the_rival_that_is_hardest_to_beat_is_named(plain: ReportData) -> None:
    assert plain.run is not None
    own, *rivals = plain.run.runs
    tied = replace(rivals[-1], total_ns=own.total_ns)
    data = replace(plain, run=replace(plain.run, runs=(own, *rivals[:-1], tied)))
    side = pair(data, data).sides[0]
    assert side.fastest is not None and side.fastest.measured
    every = [side._rival(plan) for plan in data.baselines]
    assert side.fastest.speedup == min(rival.speedup for rival in every if rival)
    rows = {row.name: row for row in headline_rows(pair(data, data))}
    assert rows["against the fastest baseline"].cells[0].text == (
        "as fast" if side.fastest.speedup > 0.98 else f"{1 / side.fastest.speedup:.2f} × slower"
    )


def test_estimated_is_said(plain: ReportData) -> None:
    segments = (replace(plain.plan.segments[0], estimated=True), *plain.plan.segments[1:])
    guessed = replace(plain, plan=replace(plain.plan, segments=segments))
    rows = {row.name: row for row in headline_rows(pair(plain, guessed))}
    assert rows["latency, predicted"].cells[1].text.endswith("ms, simulated, estimated in part")


def test_a_plan_that_failed_and_outputs_that_differ(plain: ReportData) -> None:
    assert plain.run is not None
    own = replace(plain.run.runs[0], error="sim-npu: crashed: SIGSEGV", total_ns=())
    bad = OutputCheck("out", (1,), 1.0, 0.5, 1e-4)
    broken = replace(plain.run, runs=(own, *plain.run.runs[1:]), checks=(bad,))
    result = pair(plain, replace(plain, run=broken))
    rows = {row.name: row for row in headline_rows(result)}
    assert rows["latency, measured"].cells[1].text == "failed"
    assert rows["latency, measured"].cells[1].soft == "sim-npu: crashed: SIGSEGV"
    assert "Outputs against eager PyTorch: A: agree, B: differ." in words(result)
    assert "The plan of B did not run to its end: sim-npu: crashed: SIGSEGV" in words(result)


def test_other_models(plain: ReportData) -> None:
    """What both have is compared, the rest is listed."""
    longer = sample(13, (4,), "longer.pt")
    result = pair(plain, longer)
    a, b = result.sides
    assert len(result.matched) == 10
    assert result.only(a) == () and result.only(b) == (10, 11, 12)
    assert "Other models: 10 units in common; 0 only in A, 3 only in B." in words(result)
    text = compare_markdown.render([("one", plain), ("two", longer)])
    assert "## Units only in B" in text and "## Units only in A" not in text


def test_models_with_nothing_in_common(plain: ReportData) -> None:
    units = tuple(replace(u, signature=f"other{u.index}") for u in plain.graph.units)
    other = replace(
        plain, graph=replace(plain.graph, units=units), measurements=(), model="other.pt"
    )
    result = pair(plain, other)
    assert result.matched == () and result.moves == () and result.refusals == ()
    assert result.latencies[0].differences == ()
    assert "The models have no unit in common." in words(result)
    assert "Other models: 10 only in A, 10 only in B." in words(result)
    assert result.sentences[0].verdict == ""  # another model may well be slower
    check(of_comparison([("one", plain), ("two", other)]), "compare")


def test_three_sides_against_the_first(plain: ReportData, freed: ReportData) -> None:
    comparison = compared(
        [("one", plain), ("two", freed), ("three", run_scaled(slowed(plain, CPU, 2), 2))]
    )
    assert [side.letter for side in comparison.sides] == ["A", "B", "C"]
    assert len(comparison.ratios) == len(comparison.latencies) == 2
    assert by_target(comparison.latencies[1])[0].target == "cpu"
    assert "C takes 2.000 × as long as A" in words(comparison)
    assert all(len(move.stays) == 3 for move in comparison.moves)
    assert "between A and C" in words(comparison)


@pytest.mark.parametrize("n", [0, 1, len(LETTERS) + 1])
def test_too_few_and_too_many_sides(plain: ReportData, n: int) -> None:
    with pytest.raises(UsageError, match=f"a comparison has 2 to {len(LETTERS)} sides, not {n}"):
        compare_markdown.render([("x", plain)] * n)


SIDES: list[Callable[[ReportData, ReportData], list[ReportData]]] = [
    lambda plain, freed: [plain, freed],
    lambda plain, freed: [plain, plain],
    lambda plain, freed: [replace(plain, run=None), replace(freed, run=None), plain],
    lambda plain, freed: [measured_on_hardware(plain), slowed(plain, NPU[0], 3)],
    lambda plain, freed: [plain, sample(5, (), "short.pt")],
]


@pytest.mark.parametrize("make", SIDES)
def test_the_document_keeps_to_its_schema(
    plain: ReportData,
    freed: ReportData,
    make: Callable[[ReportData, ReportData], list[ReportData]],
) -> None:
    named = [(f"side {i}", data) for i, data in enumerate(make(plain, freed))]
    document = of_comparison(named)
    check(document, "compare")
    comparison = compared(named)
    assert document["changed"] == [sentence.text for sentence in comparison.sentences]
    assert [side["name"] for side in document["sides"]] == [name for name, _ in named]
    assert document["placement"]["units_elsewhere"] == comparison.n_moved
    numbers = [r["ratio"] for r in document["ratios"] if r["ratio"] is not None]
    assert numbers and all(math.isfinite(number) for number in numbers)


@pytest.mark.parametrize("make", SIDES)
def test_markdown_is_tables_of_even_rows(
    plain: ReportData,
    freed: ReportData,
    make: Callable[[ReportData, ReportData], list[ReportData]],
) -> None:
    named = [(f"side | {i}", data) for i, data in enumerate(make(plain, freed))]
    text = compare_markdown.render(named)
    assert text.startswith("# side \\| 0 (A) against side \\| 1 (B)")
    for table in text.split("\n\n"):
        rows = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1, table
    comparison = compared(named)
    for side in comparison.sides:
        if side.simulated:
            assert "**simulated**" in text
    assert "\n\n\n" not in text and text.endswith("\n") and not text.endswith("\n\n")
    assert text.index("## What changed") < text.index("## In numbers")


def test_markdown_means_nothing_of_what_models_say(plain: ReportData) -> None:
    evil = "*bold* `code` [link](x) <script> | # \n- item"
    units = tuple(replace(u, label=evil) for u in plain.graph.units)
    poisoned = replace(plain, model=evil, graph=replace(plain.graph, units=units))
    on_cpu = next(p for p in plain.baselines if p.name == "all-cpu")
    text = compare_markdown.render([(evil, poisoned), ("b", replace(poisoned, plan=on_cpu))])
    assert "\\*bold\\* \\`code\\` \\[link\\](x) &lt;script> \\| &#35; - item" in text
    assert "\n- item" not in text
