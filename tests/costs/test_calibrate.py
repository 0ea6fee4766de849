"""Descriptions of devices: calibrated from rows, kept in files, and trees where tables are long."""

import functools
import itertools
import json
import math
import operator
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.costs.estimate import FEATURES, Work, WorkSample, calibration, kinds_of, raw_inputs
from nnapi_prof.costs.estimate.calibration import (
    LONG,
    calibrate,
    fit_samples,
    fit_with_errors,
    is_long,
    refused_of,
    samples_of,
)
from nnapi_prof.costs.estimate.model import Forest, can_learn, check_forest, fit_forest
from nnapi_prof.costs.estimate.phones import Description, parse_description, shipped, shipped_text
from nnapi_prof.costs.measurement import Kind, Measurement, Status, work_columns
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target
from tests.costs.graphs import LOW, NPU
from tests.costs.test_static_fit import measured, median_error, square, table, works_of

INVOCATION_NS = 400_000.0
LSTM = square("LSTM", 5, 1, 1)


def measurement(
    target: Target, *works: Work, status: Status = Status.OK, signature: str | None = None
) -> Measurement:
    """Units run as one: MACs count, on the NPU a tenth of them."""
    labels = tuple(map(str, works))
    rate, start = (0.1, 0.0) if target == CPU else (0.01, INVOCATION_NS)
    ns = start + sum(5_000 + work.macs * rate for work in works)
    return Measurement(
        signature=signature or "|".join(labels),
        kind=Kind.UNIT if len(works) == 1 else Kind.CHAIN,
        label=" | ".join(work.kind for work in works),
        members=(signature,) * len(works) if signature else labels,
        offsets=tuple(range(len(works))),
        target=target,
        fingerprint="device",
        agent_version="1",
        status=status,
        samples_ns=(round(ns),) if status is Status.OK else (),
        input_bytes=int(works[0].in_bytes),
        output_bytes=int(works[-1].out_bytes),
        **work_columns(works),
        simulated=True,
    )


def rows() -> list[Measurement]:
    shapes = itertools.product((1, 3), (8, 32, 96), (8, 32, 96), (14, 56))
    units = [square("CONV_2D", side, c_in, c_out, k) for k, c_in, c_out, side in shapes]
    return [
        *(measurement(target, unit) for target in (CPU, NPU) for unit in units),
        *(measurement(NPU, *units[i : i + 3]) for i in range(0, len(units) - 2, 2)),
        measurement(CPU, LSTM),
        measurement(NPU, LSTM, status=Status.REFUSED),
    ]


@pytest.mark.slow
def test_terms_of_the_device_are_found():
    described, reports = calibrate(rows(), "phone", "a test")
    assert described.simulated
    assert described.targets[NPU].invocation_ns == pytest.approx(INVOCATION_NS, rel=0.1)
    assert described.targets[NPU].refused == {"LSTM"}
    assert [report.target for report in reports] == [CPU, NPU]
    for report in reports:
        half, nine, within = report.summary(report.errors)
        assert half < 0.05 and within > 0.7 and half <= nine
    assert reports[1].summary(reports[1].single_rate)[0] > 0.1


def test_what_did_not_run_and_what_is_unknown_take_no_part():
    add = square("ADD", 1, 1, 1)
    result = samples_of([*rows(), measurement(NPU, add, add, signature="stranger")])
    assert all(math.isfinite(sample.ns) for samples in result.values() for sample in samples)
    assert len(result[NPU]) == 36 + 17 and {s.invocations for s in result[NPU]} == {1.0}
    assert {s.invocations for s in result[CPU]} == {0.0}
    with pytest.raises(CostError, match="nnapi-prof profile"):  # the CPU is compared with
        calibrate([row for row in rows() if row.target == NPU], "a", "b")


@pytest.mark.slow
def test_targets_that_were_only_sampled_are_left_out(caplog):
    sampled = [measurement(LOW, square("ADD", side, 1, 1)) for side in (2, 8, 32)]
    with caplog.at_level("INFO", "nnapi_prof"):
        described, reports = calibrate([*rows(), *sampled], "a", "b")
    assert set(described.targets) == {CPU, NPU} == {report.target for report in reports}
    assert "less than 6 times: nnapi:npu/low_power (3)" in caplog.text


def test_a_refusal_holds_for_every_preference_until_one_runs():
    """The classes that a driver lacks do not depend on what it prefers, and samples are few."""
    other, sigmoid = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER), square("LOGISTIC", 3, 1, 1)
    assert refused_of(rows())[NPU] == {"LSTM"}
    sampled = [measurement(target, sigmoid) for target in (LOW, other)]
    refused = refused_of([*rows(), *sampled, measurement(NPU, sigmoid, status=Status.REFUSED)])
    assert refused[LOW] == {"LSTM"}  # it ran a sigmoid itself
    assert refused[NPU] == {"LSTM", "LOGISTIC"}
    assert refused[other] == refused[CPU] == frozenset()


@pytest.mark.slow
def test_targets_that_are_predicted_wildly_are_named_and_not_offered(caplog):
    draw = np.random.default_rng(0)
    wild = [measurement(LOW, square("CONV_2D", 14, 8, c, 3)) for c in range(8, 20)]
    wild = [replace(row, samples_ns=(int(math.exp(12 + 4 * draw.normal())),)) for row in wild]
    with caplog.at_level("INFO", "nnapi_prof"):
        described, reports = calibrate([*rows(), *wild], "a", "b")
    assert LOW not in described.targets and LOW in {report.target for report in reports}
    assert "not offered" in caplog.text and "nnapi:npu/low_power (12 rows" in caplog.text


@pytest.mark.slow
def test_a_sister_phone_and_ten_rows_do():
    """A phone three times as fast: ten rows of it are less than its own roofline needs."""
    sister, _ = calibrate(rows(), "sister", "a test")
    faster = [
        replace(row, samples_ns=tuple(ns // 3 for ns in row.samples_ns))
        for row in rows()
        if row.usable and row.kind is Kind.UNIT and row.target == CPU
    ]
    described, _ = calibrate(faster[3:36:3], "own", "a test", sister=sister)
    model = described.targets[CPU]
    assert described.threads == 1 and "from sister" in described.description
    errors = [abs(model.sample_ns(s) / s.ns - 1) for s in samples_of(faster)[CPU]]
    assert np.median(errors) < 0.05 and model.errors is not None


# ---- in files ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_description_survives_its_file():
    model = fit_with_errors(measured(works_of(table()), bend=1.0)).model
    model = replace(model, refused=frozenset({"LSTM"}))
    before = Description("phone", "one", "made up", {CPU: model}, {CPU: 120}, simulated=True)
    after = parse_description(json.loads(before.to_json()))
    works = works_of(table(seed=7))
    one, two = (d.targets[CPU].works_ns(works) for d in (before, after))
    assert np.allclose(one, two, rtol=1e-3)
    assert after.targets[CPU].refused == {"LSTM"}
    assert (after.simulated, after.rows, after.level) == (True, {CPU: 120}, 30)
    assert after.to_json() == before.to_json()


@pytest.mark.parametrize("name", shipped())
def test_the_phones_that_come_along_are_sound_and_say_where_they_come_from(name):
    phone = parse_description(json.loads(shipped_text(name)))
    assert phone.name == name and not phone.simulated and "pixel4" in shipped()
    assert any(licence in phone.origin for licence in ("MIT", "Apache-2.0"))
    for model in phone.targets.values():
        assert 0 < model.errors.half < model.errors.nine_tenths < 1


def stepped(n: int, seed: int, noise: float = 0.01) -> list[WorkSample]:
    """A driver with three kernels, each of its own speed: no smooth function has such steps."""
    frame = table(n, seed)
    draw = np.random.default_rng(seed + 100)
    channels = draw.integers(4, 200, n)
    deep = frame["op"] == "DEPTHWISE_CONV_2D"
    frame["in_c"] = channels
    frame["out_c"] = np.where(deep, channels, draw.integers(4, 200, n))
    frame["groups"] = np.where(deep, channels, 1)
    return [replace(s, ns=s.ns * _step(s.works[0])) for s in measured(works_of(frame), noise)]


def _step(work: Work) -> float:
    if work.out_channels > 64 and work.in_channels > 40:
        return 1.0 if work.pixels > 1000 else 2.5
    return 1.6 if work.pixels > 1000 else 0.8


@pytest.mark.slow
def test_steps_are_learnt_where_a_table_is_long(monkeypatch):
    held, learnt = stepped(300, 7), fit_samples(stepped(LONG, 0))
    assert learnt.forest is not None
    ours = median_error(learnt, held)
    monkeypatch.setitem(sys.modules, "sklearn", None)  # as if it was not installed
    assert not can_learn()
    smooth = fit_samples(stepped(LONG, 0))
    assert smooth.forest is None
    assert ours < 0.7 * median_error(smooth, held)


@pytest.mark.slow
def test_a_short_table_and_noise_have_no_trees(monkeypatch):
    short = stepped(LONG - 1, 0)
    assert is_long(stepped(LONG, 0)) and not is_long(short)
    assert not is_long([replace(s, works=s.works * 50) for s in stepped(LONG, 0)])
    assert fit_samples(short).forest is None
    """Latencies that no shape tells: cross-validation finds them no better."""
    monkeypatch.setattr(calibration, "LONG", 100)
    assert is_long(measured(works_of(table())))
    assert fit_samples(measured(works_of(table()), noise=0.2)).forest is None


def forest_of(samples: list[WorkSample], seed: int = 0) -> Forest:
    return fit_forest(samples, fit_samples(samples, correct=False), kinds_of(samples), seed)


def test_it_says_what_scikit_learn_says_and_the_same_every_time():
    from sklearn.ensemble import ExtraTreesRegressor

    samples = stepped(80, 0)
    forest, again = forest_of(samples), forest_of(samples)
    assert (forest.number == again.number).all() and (forest.upper == again.upper).all()
    assert (forest_of(samples, seed=1).number[:50] != forest.number[:50]).any()
    model = fit_samples(samples, correct=False)
    works = [s.works[0] for s in samples]
    off = np.log([s.ns / model.sample_ns(s) for s in samples])
    x = np.asarray(raw_inputs(works, forest.kinds), np.float32)
    theirs = ExtraTreesRegressor(len(forest.roots), min_samples_leaf=3, random_state=0).fit(x, off)
    assert np.allclose(forest.log_ratio(works), theirs.predict(x), atol=1e-3)
    check_forest(forest, x.shape[1])
    assert forest.log_ratio([]).shape == (0,)


@functools.cache
def described() -> str:
    samples = stepped(80, 0)
    model = replace(fit_samples(samples, correct=True), forest=forest_of(samples))
    return Description("phone", "one", "made up", {CPU: model}, {CPU: 80}).to_json()


def test_a_description_holds_trees_as_numbers_and_the_version_before_had_none():
    after, before = parse_description(json.loads(described())), forest_of(stepped(80, 0))
    works, forest = works_of(table(seed=7)), after.targets[CPU].forest
    assert np.allclose(forest.log_ratio(works), before.log_ratio(works), atol=1e-5)
    assert after.to_json() == described()
    data = json.loads(described()) | {"version": 2}
    del data["targets"]["cpu"]["forest"], data["targets"]["cpu"]["ns_per_gathered_byte"]
    model = parse_description(data).targets[CPU]
    assert model.forest is None and model.roof.ns_per_gathered_byte == 0.0


DAMAGED = {
    "version": [1],
    "format": ["other"],
    "level": ["new"],
    "targets": [None, {"tpu": {}}, {"nnapi:x": {}}],
    "targets.cpu.operation_ns": [-1, float("nan")],
    "targets.cpu.ns_per_mac": [{"CONV_2D": 1}],
    "targets.cpu.correction.weights": [[1.0]],
    "targets.cpu.correction.mean": [[1.0]],
    "targets.cpu.correction.features": [["macs"]],
    "targets.cpu.forest.roots": [[], [-1], [10**6], [10**30], [[0]]],
    "targets.cpu.forest.number": [[float("nan")]],
    # A walk that never ends, or leaves the tree; features that are none, no leaf, no feature.
    "targets.cpu.forest.upper": [lambda nodes, n=n: [n] * len(nodes) for n in (0, 10**6)],
    "targets.cpu.forest.feature": [[0], "none"]
    + [lambda nodes, n=n: [n] * len(nodes) for n in (len(FEATURES) + 99, 0, -2)],
    "targets.cpu.forest.features": [["macs"]],
}


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, values in DAMAGED.items() for value in values]
)
def test_a_damaged_one_is_refused(path, value):
    data = json.loads(described())
    *outer, name = path.split(".")
    inner = functools.reduce(operator.getitem, outer, data)
    inner[name] = value(inner[name]) if callable(value) else value
    with pytest.raises(CostError, match="damaged" if "forest" in path else None):
        parse_description(data)


def test_calibrate_says_once_that_scikit_learn_would_help(monkeypatch, caplog):
    with caplog.at_level("INFO", "nnapi_prof"):
        calibrate(rows(), "a", "b")
        assert "scikit-learn" not in caplog.text  # the table is short
        monkeypatch.setattr(calibration, "LONG", 30)
        calibrate(rows(), "a", "b")
        assert "scikit-learn" not in caplog.text
        monkeypatch.setitem(sys.modules, "sklearn", None)
        calibrate(rows(), "a", "b")
    assert caplog.text.count("pip install nnapi-prof[learn]") == 1


PROGRAM = """
import json, sys
import nnapi_prof, nnapi_prof.api, nnapi_prof.costs.estimate.calibration
from nnapi_prof.costs.estimate.phones import parse_description
from nnapi_prof.graph.plan import CPU
from nnapi_prof.graph.unit import Work
model = parse_description(json.load(sys.stdin)).targets[CPU]
work = Work('CONV_2D', 'float32', 1e6, 1e4, 1e4, 1e3, 100, 10, 8, 8)
print(model.works_ns([work])[0], 'sklearn' in sys.modules)
"""


def test_estimating_never_loads_scikit_learn():
    """Not even by a description with a forest."""
    command = [sys.executable, "-c", PROGRAM]
    ns, loaded = subprocess.check_output(command, input=described(), text=True).split()
    assert math.isfinite(float(ns)) and loaded == "False"
