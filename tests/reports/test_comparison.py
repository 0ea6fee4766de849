"""A comparison of two sides: what changed, as values, in words, as Markdown, page and JSON."""

import random
from dataclasses import replace

import pytest

from nnapi_prof.costs import Conditions, Mode
from nnapi_prof.costs.diff import DiffVerdict
from nnapi_prof.costs.measurement import Status
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.documents.report import of_comparison
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.graph.plan import CPU, Target
from nnapi_prof.partition import baselines, make_problem
from nnapi_prof.reports.comparison import Compared, Row, Side, by_target, match_units
from nnapi_prof.reports.comparison_files import html, markdown, sentences, tables
from nnapi_prof.reports.data import ReportData
from tests.documents.common import check
from tests.partition.cases import solve
from tests.reports.sample import NPU, REFUSAL, measured_on_hardware, poisoned, run_of, sample


@pytest.fixture(scope="module")
def plain():
    """Ten units; the NPU refuses the fifth."""
    return sample(10, (4,))


@pytest.fixture(scope="module")
def freed(plain):
    """The same units, none refused, partitioned and run anew. (A label says what is a resize.)"""
    run_at_all = {"status": Status.OK, "message": None, "samples_ns": (400_000,) * 9}
    rows = tuple(
        replace(m, **run_at_all) if m.message == REFUSAL and m.n_units == 1 else m
        for m in plain.measurements
    )
    graph, costs = plain.graph, fit(plain.graph, rows)
    plan, rivals = solve(graph, costs), baselines(make_problem(graph, costs.table))
    run = run_of(graph, (plan, *rivals), plain.model)
    return replace(plain, cost_model=costs, measurements=rows, plan=plan, baselines=rivals, run=run)


def slowed(data: ReportData, target: Target, factor: float) -> ReportData:
    """The same plan measured again, on one target slower."""
    noise, rows = random.Random(3), []
    for m in data.measurements:
        own = factor if m.target == target else 1
        samples = tuple(round(ns * own * noise.uniform(0.99, 1.01)) for ns in m.samples_ns)
        rows.append(replace(m, samples_ns=samples, measured_at="2024-06-01T12:00:00.000+00:00"))
    return replace(data, measurements=tuple(rows), cost_model=fit(data.graph, rows))


def with_run(data: ReportData, factor: float = 1.0, runs: int = 9, **fields) -> ReportData:
    """The plan's run slower by a factor, of so many recorded runs, with these fields."""
    own, *rest = data.run.runs
    samples = tuple(round(ns * factor) for ns in own.total_ns[:runs])
    scaled = replace(own, **{"total_ns": samples, **fields})
    return replace(data, run=replace(data.run, runs=(scaled, *rest)))


def pair(first: ReportData, second: ReportData, limit: float | None = None) -> Compared:
    return Compared(Side.of("one", first), Side.of("two", second), limit)


def words(compared: Compared) -> str:
    return "\n".join(sentences(compared))


def numbers(compared: Compared) -> dict[str, tuple[str, ...]]:
    (table,) = (each for each in tables(compared) if each.id == "numbers")
    return {row[0]: row[1:] for row in table.rows}


def test_a_side_against_itself_changed_in_nothing(plain):
    result = pair(plain, plain, 0.05)
    assert result.moves == result.refusals == result.facts == result.failed == ()
    assert result.matched == tuple((i, i) for i in range(10))
    assert result.latencies.differences == ()
    assert result.latencies.same_row == len(plain.measurements)
    assert result.rows == (result.plan,)
    assert (result.plan.ratio, result.plan.verdict) == (1, DiffVerdict.SAME)
    assert words(result).splitlines()[1:] == [
        "All 10 units in common run on the same targets.", "No unit was measured again.",
    ]  # fmt: skip
    assert [each.id for each in tables(result)] == ["numbers"]
    assert all(one == two for one, two in numbers(result).values())
    # The baseline that is hardest to beat is named.
    side = Side.of("one", plain)
    ns, name = min((run.median_ns, run.plan.name) for run in plain.run.runs[1:] if run.median_ns)
    assert side.fastest_baseline == (name, ns / side.median_ns)


def test_a_refusal_that_went_and_the_unit_that_moved(plain, freed):
    result = pair(plain, freed)
    assert {(each.unit, each.target) for each in result.refusals} == {(4, t.key) for t in NPU}
    assert {(each.base, each.new) for each in result.refusals} == {(f"refused: {REFUSAL}", None)}
    before, after = (
        {u: s.target for s in data.plan.segments for u in s.units} for data in (plain, freed)
    )
    moved = [unit for move in result.moves for unit in move.base_units]
    assert moved == [u for u in range(10) if before[u] != after[u]] and 4 in moved
    for move in result.moves:
        assert move.base_units == move.new_units
        assert before[move.base_units[0]] == move.base.target != move.new.target
    assert f"{len(moved)} of 10 units" in words(result)
    assert "Refusals differ for 1 unit" in words(result)
    # Neighbours that moved together are one row: all on the CPU against the plan has one for each
    # segment that is not there already.
    on_cpu = next(p for p in plain.baselines if p.name == "all-cpu")
    elsewhere = [s.units for s in plain.plan.segments if s.target != CPU]
    result = pair(plain, replace(plain, plan=on_cpu))
    assert [move.base_units for move in result.moves] == elsewhere


@pytest.mark.parametrize(
    ("factor", "verdict", "said"),
    [(1.5, DiffVerdict.SLOWER, "became slower"), (0.5, DiffVerdict.FASTER, "faster")],
)
def test_latencies_that_changed_on_one_target(plain, factor, verdict, said):
    result = pair(plain, slowed(plain, NPU[0], factor))
    grouped = by_target(result.rows)
    first, *others = grouped
    assert first == NPU[0].key
    assert {row.verdict for row in grouped[first]} == {verdict}
    assert {row.verdict for key in others for row in grouped[key]} == {DiffVerdict.SAME}
    for row in grouped[first]:
        assert row.ratio == pytest.approx(factor, rel=0.03) and row.low <= row.ratio <= row.high
    assert f"{len(grouped[first])} {said}" in words(result)


def test_conditions_do_not_keep_latencies_apart(plain):
    """A plan for burst mode against one for sync: their latencies are what one wants to see."""
    slow, burst = slowed(plain, NPU[0], 0.8), Conditions(mode=Mode.BURST)
    rows = (m if m.target == CPU else replace(m, conditions=burst) for m in slow.measurements)
    result = pair(plain, replace(slow, measurements=tuple(rows)))
    assert {row.verdict for row in by_target(result.rows)[NPU[0].key]} == {DiffVerdict.FASTER}
    (fact,) = (each for each in result.facts if each.name == "NNAPI execution")
    assert (fact.base, fact.new) == ("sync", "burst")


@pytest.mark.parametrize(
    ("factor", "runs", "verdict"),
    [(1.5, 9, DiffVerdict.SLOWER), (0.6, 9, DiffVerdict.FASTER), (1.005, 9, DiffVerdict.SAME),
     (1.5, 3, DiffVerdict.UNSURE)],
)  # fmt: skip
def test_the_ratio_of_two_runs(plain, factor, runs, verdict):
    result = pair(with_run(plain, runs=runs), with_run(plain, factor, runs), 0.05)
    row = result.plan
    assert row.verdict is verdict
    assert row.ratio == pytest.approx(factor, rel=1e-3)
    assert (row.low is None) == (runs < 5)
    assert result.failed == ((row,) if verdict is DiffVerdict.SLOWER else ())
    assert f"The plan takes {row.ratio:.3f} × as long" in words(result)


def test_before_a_run_predictions_are_compared(plain, freed):
    result = pair(replace(plain, run=None), replace(freed, run=None))
    assert result.plan is None and result.failed == ()
    ratio = freed.plan.predicted_ns / plain.plan.predicted_ns
    assert f"{ratio:.3f} × as long, as predicted (simulated)" in words(result)
    assert "latency, measured" not in numbers(result)


def test_simulated_beside_measured_on_hardware(plain):
    real = measured_on_hardware(plain)
    result = pair(plain, real)
    for name in ("latency, measured", "latency, predicted"):
        simulated, measured = numbers(result)[name]
        assert simulated.endswith(" ms, simulated") and measured.endswith(" ms")
    assert "one of them simulated: this says little" in words(result)
    assert "one of them simulated" in html(result)
    assert 'class="badge"' not in html(pair(real, real))


def test_a_plan_that_failed_and_outputs_that_differ(plain):
    broken = with_run(plain, error="sim-npu: crashed: SIGSEGV", total_ns=())
    checks = (OutputCheck("out", (1,), 1.0, 0.5, 1e-4),)
    result = pair(plain, replace(broken, run=replace(broken.run, checks=checks)), 0.05)
    assert result.failed == (result.plan,)
    assert numbers(result)["latency, measured"][1] == "failed"
    assert "Outputs against eager PyTorch: agree, then differ." in words(result)
    assert "The plan of two did not run to its end: sim-npu: crashed: SIGSEGV" in words(result)
    gone = Row("conv", "cpu", 1e6, None, DiffVerdict.STATUS)
    assert gone.failed and not replace(gone, base_ns=None, new_ns=1e6).failed


def test_models_with_nothing_in_common(plain):
    units = tuple(replace(u, signature=f"other{u.index}") for u in plain.graph.units)
    graph = replace(plain.graph, units=units)
    result = pair(plain, replace(plain, graph=graph, measurements=(), model="other.pt"))
    assert result.matched == result.moves == result.refusals == result.latencies.differences == ()
    assert "The models have no unit in common." in words(result)


@pytest.mark.parametrize(
    ("base", "new", "pairs"),
    [
        ("abab", "abab", [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ("abcde", "abde", [(0, 0), (1, 1), (3, 2), (4, 3)]),
        ("abc", "cab", [(0, 1), (1, 2), (2, 0)]),
        ("ab", "cd", []),
        ("", "ab", []),
    ],
)
def test_units_are_matched(base, new, pairs):
    assert match_units(list(base), list(new)) == tuple(pairs)


def test_as_many_units_are_matched_as_both_have():
    dice = random.Random(7)
    for _ in range(200):
        one, two = ("".join(dice.choices("abcd", k=dice.randrange(9))) for _ in range(2))
        pairs = match_units(list(one), list(two))
        assert all(one[i] == two[j] for i, j in pairs)
        assert len({j for _, j in pairs}) == len(pairs)
        assert len(pairs) == sum(min(one.count(c), two.count(c)) for c in "abcd")


SIDES = [
    lambda plain, freed: (plain, freed),
    lambda plain, freed: (plain, plain),
    lambda plain, freed: (replace(plain, run=None), replace(freed, run=None)),
    lambda plain, freed: (measured_on_hardware(plain), slowed(plain, NPU[0], 3)),
    lambda plain, freed: (plain, sample(5, (), "short.pt")),
]


@pytest.mark.parametrize("make", SIDES)
def test_document_markdown_and_page_say_the_same(plain, freed, make):
    compared = pair(*make(plain, freed))
    document = of_comparison(compared)
    check(document, "compare")
    assert document["changed"] == list(sentences(compared)) != []
    assert len(document["rows"]) == len(compared.rows)
    page, text = html(compared), markdown(compared)
    for table in text.split("\n\n"):
        rows = [line for line in table.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1, table
    for each in tables(compared):
        assert f"## {each.title}" in text and f'<section id="{each.id}"' in page


def test_nothing_that_models_say_is_markup(plain):
    evil = "*bold* </td><script>alert(1)</script>\"'& | \n- item"
    bad, on_cpu = poisoned(plain, evil), next(p for p in plain.baselines if p.name == "all-cpu")
    result = Compared(Side.of(evil, bad), Side.of("b", replace(bad, plan=on_cpu)))
    page, text = html(result), markdown(result)
    assert "<script>alert" not in page and page.count("<script>") == 1
    assert "\\*bold\\*" in text and "\n- item" not in text and "<script>" not in text
