"""The whole way from Python, and what each of its steps shows, in notebooks too."""

import logging
from dataclasses import replace

import pytest
import torch

import nnapi_prof as np_
from nnapi_prof.errors import InputSpecError, UsageError
from nnapi_prof.graph.plan import Engine
from nnapi_prof.reports import notebook
from tests.api.conftest import PHONE
from tests.cli.common import shift_reference
from tests.reports.browser import Parsed

SLOW = "nnapi:nnapi-reference/fast"
"""A target that runs everything, and nothing well."""


def test_what_a_model_and_costs_show(way):
    table, units = way.model.frame(), way.model.graph.units
    assert len(table) == len(units) and table["macs"].sum() == sum(u.macs for u in units) > 0
    outputs = way.model.eager(*way.model.program.example_inputs)
    assert [tuple(value.shape) for value in outputs] == [(1, 8, 16, 16)]
    costs = way.costs
    assert costs.simulated and not costs.estimated and costs.device_spec == PHONE
    table = costs.frame()
    assert len(table) == len(way.model.graph.units) * len(costs.targets)
    lacking = table[(table["accelerator"] == "sim-npu") & table["label"].str.contains("sigmoid")]
    assert len(lacking) and lacking["marginal_ms"].isna().all()
    assert lacking["reason"].str.contains("LOGISTIC").all()
    on_cpu = costs.units().set_index("label")["cpu"]
    assert (on_cpu >= 0).all() and on_cpu.max() > 0
    assert set(costs.refusals()["reason"]) == set(table["reason"]) - {""}
    assert (costs.rows()["median_ms"].dropna() > 0).all()


def test_what_a_plan_and_a_result_show(way):
    planned = way.planned
    segments, plans = planned.segments(), planned.frame()
    covered = sorted(unit for units in segments["units"] for unit in units)
    assert covered == list(range(len(way.model.graph.units)))
    assert segments["predicted_ms"].sum() == pytest.approx(planned.latency_ms)
    assert segments["cause"].str.len().min() > 10
    assert plans["plan"].iloc[0] == "dp" and "all-cpu" in set(plans["plan"])
    assert plans["against_plan"].iloc[0] == 1 and (plans["against_plan"] > 0.98).all()
    result, table = way.result, way.result.frame()
    assert result.agrees and result.simulated
    result.raise_for_mismatch()
    assert list(table["plan"]) == list(way.planned.frame()["plan"])
    assert (table["p10_ms"] <= table["measured_ms"]).all()
    assert (table["measured_ms"] <= table["p90_ms"]).all()
    assert table["measured_ms"].iloc[0] == result.latency_ms
    assert result.error == pytest.approx(result.predicted_ms / result.latency_ms - 1)
    assert bool(result.outputs()["agrees"].all()) and len(result.segments())


def test_outputs_that_differ_are_told_and_raised_on_request(way, monkeypatch):
    shift_reference(monkeypatch)
    strict = np_.run(way.planned, baselines=False, runs=2)
    assert not strict.agrees and "DIFFER" in repr(strict) and "differs" in strict._repr_html_()
    with pytest.raises(np_.NnapiProfError, match="differs from eager PyTorch"):
        strict.raise_for_mismatch()


def test_inputs_of_ones_own(way):
    result = np_.run(way.planned, inputs=[torch.zeros(1, 3, 16, 16)], baselines=False, runs=2)
    assert result.agrees and len(result.frame()) == 1
    with pytest.raises(InputSpecError, match=r"given were \[1, 4, 16, 16\]"):
        np_.run(way.planned, inputs=[torch.zeros(1, 4, 16, 16)])


def test_a_plan_in_a_folder(way, tmp_path):
    folder = way.result.save(tmp_path / "tiny.nnprof")
    again = np_.read_plan(folder)
    assert again.plans == way.planned.plans and again.model.name == "tiny"
    ran = np_.run(folder, device=PHONE, runs=2)
    assert ran.agrees and ran.report(tmp_path / "out.html", costs=way.table).exists()
    with pytest.raises(np_.NnapiProfError):
        ran.report(tmp_path / "other.html", costs=tmp_path / "empty.sqlite")
    assert list(np_.compare(way.result, folder, costs=way.table).frame()["ratio"]) == [1.0]
    with pytest.raises(UsageError, match=r"is not a bundle|does not exist"):
        np_.read_plan(tmp_path)


def test_reports_that_cannot_be_written(way, tmp_path):
    (tmp_path / "file").write_text("")
    trace = tmp_path / "out.trace.json"  # one would overwrite the other
    for write, path, words in (
        (way.result.report, tmp_path / "out.docx", "names no format"),
        (way.result.report, tmp_path / "out.json", "nnapi-prof report --format json"),
        (way.result.report, tmp_path / "file" / "out.html", "cannot write"),
        (way.planned.save, tmp_path / "file" / "tiny.nnprof", "cannot write"),
        (np_.compare(way.result, way.planned).report, trace, r"is .html or .md|names no format"),
    ):
        with pytest.raises(UsageError, match=words):
            write(path)
    assert not trace.exists()


def test_what_the_table_has_is_read_without_a_device(way):
    costs = np_.read_costs(way.model, way.table, "*npu*")
    assert costs.agent_info is None and costs.fingerprint == way.costs.fingerprint
    planned = np_.partition(way.model, costs)
    assert planned.latency_ms == pytest.approx(way.planned.latency_ms, rel=0.05)
    with pytest.raises(UsageError, match="without a device"):
        planned.save("nowhere")
    assert np_.run(planned, device=PHONE, runs=2, baselines=False).agrees
    with pytest.raises(np_.NnapiProfError, match="never"):
        np_.read_costs(way.model, way.table, until="2001-01-01")
    for words in ({"until": "yesterday"}, {"device": "nobody's"}, {"costs": "/no/table"}):
        with pytest.raises(UsageError):
            np_.read_costs(way.model, **{"costs": way.table, **words})


def test_estimates(way):
    costs = np_.estimate(way.model, "pixel4")
    assert costs.estimated and not costs.simulated and "estimated" in repr(costs)
    planned = np_.partition(way.model, costs)
    assert planned.estimated and "estimated" in planned._repr_html_()
    assert set(planned.segments()["basis"]) == {"estimated"}
    with pytest.raises(UsageError, match=r"pixel4, |does not offer|lacks"):
        np_.run(planned, device=PHONE)
    with pytest.raises(UsageError, match="measured"):
        np_.advise(planned)
    with pytest.raises(UsageError, match="no phone 'nokia'"):
        np_.estimate(way.model, "nokia")


def test_a_phone_fitted_to_a_table(way, tmp_path):
    phone = np_.calibrate(way.table, folds=2, name="mine")
    assert phone.name == "mine" and phone.simulated
    assert set(phone.frame()["target"]) >= {"cpu", "nnapi:sim-npu/fast"}
    again = np_.Phone.load(phone.save(tmp_path / "phone.json"))
    assert again.description == phone.description
    for named in (phone, again, tmp_path / "phone.json"):
        costs = np_.estimate(way.model, named)
        assert costs.estimated and costs.simulated
    assert np_.partition(way.model, costs).plan.segments


def test_plan_options_and_costs_of_another_model(way):
    pinned = np_.partition(way.model, way.costs, np_.Latency(pin=[f"*={SLOW}"]))
    assert {s.target.key for s in pinned.plan.segments} == {SLOW}
    off = np_.Latency(forbid=["*"])
    on_cpu = np_.partition(way.model, way.costs, off)
    assert {s.target.engine for s in on_cpu.plan.segments} == {Engine.CPU}
    with pytest.raises(UsageError, match="verify"):
        np_.partition(way.model, way.costs, off, verify=True)
    other = np_.load(torch.nn.Conv2d(3, 8, 3), inputs=["1x3x16x16"])
    words = r"not of Model\('Conv2d', .*inputs 1x3x16x16\): profile it"
    with pytest.raises(UsageError, match=words):
        np_.partition(other, way.costs)


def test_progress_and_notes(way, caplog):
    seen: list[np_.Progress] = []
    options = np_.MeasureOptions(fresh=True, refine=False)
    with caplog.at_level(logging.INFO, logger="nnapi_prof"):
        np_.profile(way.model, PHONE, costs=way.table, options=options, progress=seen.append)
    assert seen[0].done == 0 and any(each.done == each.total > 0 for each in seen)
    assert "tiny on simulated npu-phone" in caplog.text


NASTY = '<script>alert("1")</script>&'


def check(text: str) -> Parsed:
    result = Parsed(text)
    assert not {"script", "style", "img", "link", "iframe"} & set(result.tags)
    assert len(result.tags["table"]) == len(result.texts["caption"]) > 0
    assert all(head.get("scope") in ("col", "row") for head in result.tags.get("th", ()))
    regions = [div for div in result.tags["div"] if div.get("role") == "region"]
    assert len(regions) == len(result.tags["table"])
    assert all(region["aria-label"] and region["tabindex"] == "0" for region in regions)
    assert not any(name.startswith("on") for name, _ in result.attributes)
    return result


@pytest.mark.parametrize("step", ["model", "costs", "planned", "result"])
def test_every_step_shows_itself(way, step):
    shown = getattr(way, step)
    texts = check(shown._repr_html_()).texts
    if step != "model":
        assert "simulated" in " ".join(texts["caption"] + texts["th"])
        assert "simulated" in repr(shown)


def test_others_show_themselves(way):
    for shown, tag, word in (
        (np_.compare(way.planned, way.result), "td", "simulated"),
        (np_.devices(), "th", PHONE),
        (np_.calibrate(way.table, folds=2), "caption", "simulated"),
        (np_.Phone.load("pixel4"), "caption", ""),
        (np_.estimate(way.model, "pixel4"), "caption", "estimated"),
    ):
        assert word in " ".join(check(shown._repr_html_()).texts[tag])


def test_what_models_and_devices_are_called_is_escaped(way):
    model = replace(way.model, unit_cache=replace(way.model.unit_cache, name=NASTY, notes=(NASTY,)))
    costs = replace(way.costs, model=model, device=NASTY, notes=(NASTY,))
    planned = replace(way.planned, model=model, device=NASTY)
    result = np_.Result(planned, replace(way.result.run, model=NASTY, device=NASTY, notes=(NASTY,)))
    for shown in (model, costs, planned, result):
        assert NASTY in check(shown._repr_html_()).texts["caption"][0]
    assert NASTY in check(model._repr_html_()).texts["li"]


def test_a_table():
    text = notebook.table("t", ("a", "b"), [["x", "1"], ["y", "2"]], numbers=(1,), rest="more")
    result = check(text)
    assert result.texts["td"] == ["1", "2"] and result.texts["p"] == ["more"]
    assert result.texts["th"] == ["a", "b", "x", "y"]
    assert "text-align:right" in str(result.tags["td"][0]["style"])
    assert notebook.ms(None) == "–" and notebook.ms(1_234_567) == "1.235"
    assert notebook.kind_of(True, True) == "ms, simulated, estimated"
