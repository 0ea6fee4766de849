"""The frames and words behind the sections of a report, beside its golden file."""

import math
import re
from dataclasses import replace

import pytest

from nnapi_prof.convert.region import Permutes
from nnapi_prof.costs.model import CostModel
from nnapi_prof.costs.model.fit import fit
from nnapi_prof.costs.model.views import Marginal, left_at_trial, shown_targets
from nnapi_prof.graph.plan import AUTO, CPU, HOST, Plan, Preference, Segment, Target
from nnapi_prof.reports import device_frames, facts, frames, markdown, words
from nnapi_prof.reports.data import is_ours, this_environment, typed
from nnapi_prof.reports.html import render
from nnapi_prof.reports.words import GLOSSARY
from tests.reports.sample import GPU, NPU, REFUSAL, TARGETS, hot, sample, split

RESIZES = (9, 15)


@pytest.fixture(scope="module")
def data():
    return sample(24, RESIZES)


def test_the_most_frequent_reason_comes_first(data):
    refusals = {(0, NPU[0]): "rare"} | {(u, NPU[1]): "often" for u in (1, 2, 3)}
    rows = facts.refusals_by_reason(replace(data.cost_model, refusals=refusals))
    assert rows[["reason", "n_units", "units", "where"]].values.tolist() == [
        ["often", 3, (1, 2, 3), "sim-npu (fast)"],
        ["rare", 1, (0,), "sim-npu (low_power)"],
    ]
    none = facts.refusals_by_reason(replace(data.cost_model, refusals={}))
    assert len(none) == 0 and none.columns.tolist() == rows.columns.tolist()


def test_preferences_of_one_accelerator_compare_the_same_units(data):
    """The made-up phone takes 1.7 times as long under low_power, 1.1 times under sustained."""
    frame = device_frames.preference_frame(data.cost_model)
    own = frame[frame["accelerator"] == "sim-npu"].set_index("preference")
    assert list(own.index) == ["low_power", "fast", "sustained"]
    assert set(own["n_units"]) == {24 - len(RESIZES)}
    low, fast, sustained = own["relative"]
    assert low == pytest.approx(0.7, abs=0.1) and sustained == pytest.approx(0.1, abs=0.06)
    assert fast == 0
    assert own["whole_ms"].isna().all()  # it refuses units
    assert frame[frame["accelerator"] == "sim-gpu"]["whole_ms"].notna().all()
    assert frame["accelerator"].iloc[-1] == AUTO


def test_inferred_units_are_counted(data):
    few = ("sig0", "sig1", "sig2", "sig3")
    rows = [row for row in data.measurements if row.target != NPU[0] or row.signature in few]
    frame = device_frames.preference_frame(fit(data.graph, rows)).set_index("target")
    low = frame.loc[NPU[0].key]
    assert (low["n_measured"], low["n_inferred"]) == (4, 24 - len(RESIZES) - 4)
    assert frame.loc[NPU[1].key, "n_inferred"] == 0


def test_a_plan_for_each_preference_by_the_same_costs(data):
    rows = device_frames.plans_by_preference(data.cost_model, data.plan)
    assert [row.preference for row in rows] == ["low_power", "fast", "sustained"]
    for row in rows:
        used = {s.target.preference for s in row.plan.segments} - {None}
        assert {preference.short for preference in used} <= {row.preference}
    low, fast, _ = rows
    assert fast.moved == 0 and fast.predicted_ms == pytest.approx(data.plan.predicted_ns / 1e6)
    assert low.predicted_ms > fast.predicted_ms
    assert low.relative == pytest.approx(low.predicted_ms / fast.predicted_ms - 1)
    # The plan's own prediction may rest on a run of the whole plan.
    segments = tuple(replace(s, predicted_ns=2 * s.predicted_ns) for s in data.plan.segments)
    longer = replace(data.plan, segments=segments)
    assert device_frames.by_costs(data.cost_model, longer) == pytest.approx(data.plan.predicted_ns)
    _, fast, _ = device_frames.plans_by_preference(data.cost_model, longer)
    assert fast.relative == pytest.approx(0)
    nowhere = replace(longer, segments=(replace(segments[0], target=Target("nnapi:gone/fast")),))
    assert device_frames.by_costs(data.cost_model, nowhere) == nowhere.predicted_ns


def test_units_that_cost_nothing_compare_as_equals(data, monkeypatch):
    """A fit may give all of a target's time to its invocation; a model of one unit often does."""
    monkeypatch.setattr(CostModel, "unit_cost", lambda *_: 0.0)
    frame = device_frames.preference_frame(data.cost_model)
    assert set(frame["relative"]) == {0.0} and set(frame["units_ms"]) == {0.0}
    monkeypatch.setattr(CostModel, "unit_cost", lambda _, _unit, target: float(target == NPU[0]))
    frame = device_frames.preference_frame(data.cost_model).set_index("target")
    assert math.isnan(frame.loc[NPU[0].key, "relative"])
    page = render(replace(data, every_preference=True))
    assert "nan" not in re.findall(r"\w+", page) and "Preferences compared" in page
    # Without units in common none are drawn.
    monkeypatch.setattr(CostModel, "unit_cost", lambda *_: None)
    assert device_frames.preference_frame(data.cost_model)["relative"].isna().all()
    page = render(data)
    assert "nan" not in re.findall(r"\w+", page) and "Preferences compared" not in page


def test_a_plan_that_ran_on_another_device_says_so(data):
    assert data.ran_elsewhere == "" and "another device" not in render(data)
    moved = replace(data, planned_for="a phone <b>")
    for page, name in ((render(moved), "&lt;b&gt;"), (markdown.render(moved), "&lt;b>")):
        assert f"The plan was made for another device, a phone {name}: predictions" in page


def test_estimates_are_marked_and_counted_not_told_as_what_runs(data, monkeypatch):
    region_cost = CostModel.region_cost

    def guessed(self, units, target):
        cost = region_cost(self, units, target)
        return replace(cost, estimated=True) if cost and tuple(units) == (3,) else cost

    monkeypatch.setattr(CostModel, "region_cost", guessed)
    frame = frames.unit_frame(data.cost_model)
    n = int((frame["status"] == "estimated").sum())
    assert n > 1
    page = " ".join(re.sub(r"<[^>]+>", "", render(replace(data, every_preference=True))).split())
    assert f"{n} of these {frame['marginal_ms'].notna().sum()} costs are estimated" in page
    assert "is an estimate of" not in page  # a line for each, of targets that the plan does not use
    told = facts.unit_facts(data.cost_model, {})
    assert "(estimated)" in told[3].rows[0].words and "(estimated)" not in told[2].rows[0].words


def test_values_and_permutes_stand_beside_transfers(data):
    plan = split(data).plan
    frame = facts.transfer_frame(plan, data.cost_model, [Permutes(1, 100), None])
    sides = [tuple(map(len, data.graph.boundary(segment.units))) for segment in plan.segments]
    assert list(zip(frame["in_values"], frame["out_values"], strict=True)) == sides
    assert frame["permutes"][0] == 1 and math.isnan(frame["permutes"][1])
    # The host has no fitted transfer.
    segment = Segment(tuple(range(24)), HOST, 1e6, "nobody else can")
    frame = facts.transfer_frame(replace(plan, segments=(segment,)), data.cost_model)
    assert frame[["invocation_ms", "share"]].isna().all(axis=None)


def test_history_in_order_of_time_its_readings_and_its_doubtful_rows(data):
    rounds = hot(data.measurements)
    frame = device_frames.history_frame(reversed(rounds))
    assert len(frame) == 2 * len(rounds)
    assert list(frame["measurement"])[:4] == [1, 1, 2, 2]
    assert frame["measured_at"].is_monotonic_increasing
    assert frame["mhz_before"].iloc[0] == 2800 and frame["celsius_after"].iloc[0] == 30.5
    told = device_frames.readings(device_frames.history_frame(rounds))
    assert told.measurements == len(rounds) and told.rounds == 2 * len(rounds)
    assert (told.mhz[0], told.mhz[2], told.celsius[0]) == (1400, 2800, 30)
    assert told.throttled == told.repeated == len(rounds) // 29 > 0 and told.tells_throttling
    # A mute device has none.
    told = device_frames.readings(device_frames.history_frame(data.measurements))
    assert told.mhz is told.celsius is None
    assert told.throttled == 0 and not told.tells_throttling
    assert device_frames.readings(device_frames.history_frame(())).rounds == 0
    # Doubtful measurements say why.
    rows = device_frames.doubtful(rounds)
    assert len(rows) == sum(m.usable for m in rounds[28::29]) > 0
    assert all("1 of 2 rounds throttled" in str(row["flags"]) for row in rows)
    spreads = [float(row["spread"]) for row in rows]
    assert spreads == sorted(spreads, reverse=True)


@pytest.mark.parametrize(
    "argv, wanted",
    [
        ((), ""),
        (("/home/me/.venv/bin/nnapi-prof", "report", "my net.nnprof"),
         "nnapi-prof report 'my net.nnprof'"),
        (("/x/nnapi_prof/__main__.py", "go", "m.pt"), "nnapi-prof go m.pt"),
        (("nnapi-prof", "--costs", "postgresql://me:se@cret@db.lab/costs"),
         "nnapi-prof --costs postgresql://me:***@db.lab/costs"),
        (("nnapi-prof", "--costs=postgresql://db.lab/costs?user=me&password=secret", "go"),
         "nnapi-prof '--costs=postgresql://db.lab/costs?user=me&password=***' go"),
        (("nnapi-prof", "--costs", "postgresql://me@db.lab/costs"),
         "nnapi-prof --costs postgresql://me@db.lab/costs"),
    ],
)  # fmt: skip
def test_a_command_as_typed_without_passwords(argv, wanted):
    assert typed(argv) == wanted


@pytest.mark.parametrize(
    "argv, ours",
    [("/x/bin/nnapi-prof", True), ("C:/x/nnapi-prof.exe", True),
     ("/x/nnapi_prof/__main__.py", True), ("/x/pytest/__main__.py", False),
     ("ipykernel_launcher.py -f x", False), ("", False)],
)  # fmt: skip
def test_a_notebook_is_no_command(argv, ours):
    assert is_ours(argv.split(" ")) is ours
    assert not is_ours(())


def test_the_environment_of_a_command_and_a_device_in_peoples_words(data):
    assert this_environment().command == ""
    here = this_environment(["nnapi-prof", "report", "x"])
    told = dict(facts.environment_facts(replace(data, environment=here)))
    assert here.written_at.endswith("+00:00")
    assert told["by the command"] == "nnapi-prof report x" and "numpy " in told["packages"]
    assert "host" not in dict(facts.environment_facts(data))  # nobody said
    info = {"memory_kb": 7_900_000, "cpu_max_khz": [2_800_000, None], "odd": 1}
    clock = "highest clock of each core"
    assert facts.device_words(info) == [("memory", "7.9 GB"), (clock, "2800 MHz"), ("odd", "1")]
    assert facts.device_words({"cpu_max_khz": [None]})[0].value == "not reported"


@pytest.mark.parametrize(
    ("say", "wanted"),
    [
        (words.format_ms, {None: "–", math.nan: "–", math.inf: "–", 0: "0", 0.0004: "<0.001",
                           0.0006: "0.001", 0.0456: "0.046", 1.234: "1.23", 12.34: "12.3",
                           123.4: "123"}),
        (words.format_percent, {0.0341: "3.4 %", None: "–"}),
        (words.format_change, {0.0341: "+3.4 %", -0.5: "-50.0 %", -4e-4: "+0.0 %", 4e-4: "+0.0 %"}),
        (words.format_si, {None: "–", 12: "12 ", 999.6: "1 k", 1234: "1.23 k", 999_400: "999 k",
                           999_600: "1 M", 3e9: "3 G", 2e13: "20 T"}),
        (words.format_time, {"2024-05-01T12:00:00.123+00:00": "2024-05-01 12:00:00 UTC",
                             "2024-05-01T14:00:00+02:00": "2024-05-01 12:00:00 UTC",
                             "some day": "some day"}),
        (words.target_words, {"cpu": "CPU", "nnapi:a/b/fast": "a/b (fast)",
                              "nnapi:auto/low_power": "NNAPI's choice (low_power)",
                              Target.nnapi("a (b)", Preference(1)).key: "a (b) (fast)"}),
        (words.place_words, {"nnapi:a/b/fast": "a/b", "host": "host"}),
        (words.plan_words, {"best-single cpu": "best single target: CPU"}),
        (words.rule_words, {"of somebody else": ""}),
    ],
)  # fmt: skip
def test_words(say, wanted):
    assert {value: say(value) for value in wanted} == wanted


@pytest.mark.parametrize(
    "cost, text",
    [(None, "–"), (Marginal(1.5e6), "1.50"), (Marginal(1.5e6, 1e5), "1.50"),
     (Marginal(1.5e6, 5e5), "≈1.50"), (Marginal(1.5e6, inferred=True), "≈1.50"),
     (Marginal(1.5e6, 2e6), "<5.50"), (Marginal(1.5e6, 2e6, alone_ns=2.4e6), "<2.40"),
     (Marginal(0.0, 2e5, alone_ns=2.4e6), "<0.400"), (Marginal(0.0), "<0.001"),
     (Marginal(0.0, 10.0), "<0.001"), (Marginal(100.0), "<0.001")],
)  # fmt: skip
def test_a_marginal_cost_says_how_well_it_is_known(cost, text):
    assert words.marginal_words(cost, lambda ns: words.format_ms(ns / 1e6)) == text


def test_the_preference_that_was_measured_stands_for_an_accelerator(data):
    """The least of several preferences, most of them inferred, is the least of their noise."""
    sustained, low = Preference.SUSTAINED_SPEED, GPU[0]
    few = [
        row
        for row in data.measurements
        if row.target.preference in (None, sustained) or row.signature in ("sig0", "sig5")
    ]
    costs = fit(data.graph, few)
    shown = shown_targets(costs, data.graph)
    assert {name: target.preference for name, target in shown.items()} == {
        "cpu": None, "sim-npu": sustained, "sim-gpu": sustained, "auto": sustained,
    }  # fmt: skip
    frame = frames.unit_frame(costs).set_index(["target", "unit"])
    assert not frame.loc[(shown["sim-gpu"].key, 3), "inferred"]
    assert frame.loc[(low.key, 3), "inferred"]
    assert words.marginal_cell(frame.loc[(low.key, 3)].to_dict())[0] in "≈<"
    trial = replace(costs, partial=frozenset(GPU))
    assert "sim-gpu" not in shown_targets(trial, data.graph)
    assert left_at_trial(trial) == ("sim-gpu",) and left_at_trial(costs) == ()
    one = replace(costs, partial=frozenset([low]))  # under one of its preferences
    assert shown_targets(one, data.graph)["sim-gpu"] == shown["sim-gpu"]
    assert left_at_trial(one) == ()
    whole = shown_targets(data.cost_model, data.graph)
    assert whole["sim-npu"].preference is Preference.FAST_SINGLE_ANSWER  # all were measured


def test_words_of_several():
    assert words.count(1, "unit") == "1 unit" and words.count(2, "unit") == "2 units"
    assert words.plan_words("anything", is_own=True) == "this plan"
    assert words.rule_words("greedy").startswith("each unit where it alone")
    every = [CPU.key, *(t.key for t in NPU)]
    assert words.targets_words([CPU.key, NPU[0].key], every) == "CPU; sim-npu (low_power)"
    assert words.targets_words([t.key for t in NPU], every) == "sim-npu"
    # The glossary is sorted and whole.
    names = [entry.word.lower() for entry in GLOSSARY]
    assert names == sorted(names) and len({entry.key for entry in GLOSSARY}) == len(names)
    assert all(entry.meaning.endswith(".") for entry in GLOSSARY)


def test_plan_rows_follow_each_other(data):
    plan = split(data).plan
    frame = frames.plan_frame(plan, data.graph)
    assert list(frame.columns) == list(frames.PLAN_COLUMNS)
    assert frame["start_ms"].tolist() == pytest.approx([0, plan.segments[0].predicted_ns / 1e6])
    assert frame["macs"].sum() == sum(unit.macs for unit in data.graph.units)
    placed = ["target", "accelerator", "preference"]
    assert frame[placed].iloc[0].tolist() == ["nnapi:sim-npu/fast", "sim-npu", "fast"]
    for measured, estimated, basis in (
        (True, False, "measured"), (False, True, "estimated"), (False, False, "sum")
    ):  # fmt: skip
        segment = Segment((0,), HOST, 1.0, "why", measured, estimated)
        frame = frames.plan_frame(Plan("p", (segment,), True), data.graph)
        assert frame["basis"].item() == basis and frame["accelerator"].item() is None


def test_units_carry_costs_and_refusals(data):
    """What is not said is None, not NaN, which is true, and would print as a word."""
    frame = frames.unit_frame(data.cost_model)
    reasons, frame = list(frame["reason"]), frame.set_index(["unit", "target"])
    assert len(frame) == 24 * len(TARGETS)
    for target in NPU:
        refused = frame.loc[(9, target.key)]
        assert refused["status"] == "refused" and REFUSAL in refused["reason"]
        assert math.isnan(refused["marginal_ms"]) and math.isnan(refused["alone_ms"])
    cell = frame.loc[(3, "cpu")]
    assert cell["alone_ms"] == data.cost_model.whole((3,), CPU).summary.median_ns / 1e6
    assert cell["status"] == "measured" and 0 < cell["spread"] < 0.1
    assert None in reasons and all(reason is None or isinstance(reason, str) for reason in reasons)
    runs = (data.run.runs[0], replace(data.run.runs[1], error="crashed"), *data.run.runs[2:])
    errors = frames.baseline_frame(data.plans, replace(data.run, runs=runs))["error"]
    assert errors[0] is None and errors[1] == "crashed"


def test_segments_of_a_run_and_columns_before_one(data):
    frame = frames.segment_frame(data.run.runs)
    timings = [timing for run in data.run.runs for timing in run.segments]
    assert frame["measured_ms"].tolist() == [timing.median_ns / 1e6 for timing in timings]
    errors = [timing.predicted_ns / timing.median_ns - 1 for timing in timings]
    assert frame["relative_error"].tolist() == pytest.approx(errors)
    # Before a run and without rows the columns stay.
    frame = frames.baseline_frame(data.plans, None)
    assert frame["measured_ms"].isna().all() and (frame["runs"] == 0).all()
    for empty, columns in (
        (frames.segment_frame([]), frames.SEGMENT_COLUMNS),
        (frames.baseline_frame([], None), frames.BASELINE_COLUMNS),
        (frames.measurement_frame([]), frames.MEASUREMENT_COLUMNS),
    ):
        assert list(empty.columns) == list(columns)


def test_measurements_are_summarised(data):
    frame = frames.measurement_frame(data.measurements)
    assert len(frame) == len(data.measurements)
    refused = frame[frame["status"] == "refused"]
    assert len(refused) == 3 * len(RESIZES) and refused["median_ms"].isna().all()
    assert set(frame["kind"]) == {"unit", "chain"}
    assert (frame.loc[frame["status"] == "ok", "runs"] == 7).all()
    residuals = frames.residual_frame(data.cost_model)
    fits = frames.fit_frame(data.cost_model).set_index("target")
    assert residuals.groupby("target").size().to_dict() == fits["rows"].to_dict()
