"""Trees on what roofline and correction leave, and what they are stored as."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nnapi_prof.costs.estimate import FEATURES, Work, WorkSample, calibration, kinds_of, raw_inputs
from nnapi_prof.costs.estimate.calibration import LONG, calibrate, fit_samples, is_long
from nnapi_prof.costs.estimate.model import Forest, can_learn, check_forest, fit_forest
from nnapi_prof.costs.estimate.phones import Description, parse_description
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU
from tests.costs.test_calibrate import rows
from tests.costs.test_static_fit import measured, median_error, table, works_of


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


def without_sklearn(monkeypatch: pytest.MonkeyPatch) -> None:
    """scikit-learn is absent, as for Python it is."""
    monkeypatch.setitem(sys.modules, "sklearn", None)


@pytest.mark.slow
def test_steps_are_learnt_where_a_table_is_long(monkeypatch):
    held, learnt = stepped(300, 7), fit_samples(stepped(LONG, 0))
    assert learnt.forest is not None
    ours = median_error(learnt, held)
    without_sklearn(monkeypatch)
    assert not can_learn()
    smooth = fit_samples(stepped(LONG, 0))
    assert smooth.forest is None
    assert ours < 0.7 * median_error(smooth, held)


@pytest.mark.slow
def test_a_short_table_has_none():
    short = stepped(LONG - 1, 0)
    assert is_long(stepped(LONG, 0)) and not is_long(short)
    assert not is_long([replace(s, works=s.works * 50) for s in stepped(LONG, 0)])
    assert fit_samples(short).forest is None


@pytest.mark.slow
def test_trees_of_noise_are_dropped(monkeypatch):
    """Latencies that no shape tells: cross-validation finds them no better."""
    monkeypatch.setattr(calibration, "LONG", 100)
    assert is_long(measured(works_of(table())))
    assert fit_samples(measured(works_of(table()), noise=0.2)).forest is None


def forest_of(samples: list[WorkSample], seed: int = 0) -> Forest:
    model = fit_samples(samples, correct=False)
    return fit_forest(samples, model, kinds_of(samples), seed)


def test_it_says_what_scikit_learn_says_and_the_same_every_time():
    from sklearn.ensemble import ExtraTreesRegressor

    samples = stepped(80, 0)
    forest = forest_of(samples)
    again = forest_of(samples)
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


@cache
def described() -> str:
    samples = stepped(80, 0)
    model = replace(fit_samples(samples, correct=False), forest=forest_of(samples))
    return Description("phone", "one", "made up", {CPU: model}, {CPU: 80}).to_json()


def test_a_description_holds_it_as_numbers():
    after = parse_description(json.loads(described()))
    works, forest = works_of(table(seed=7)), after.targets[CPU].forest
    assert np.allclose(
        forest.log_ratio(works), forest_of(stepped(80, 0)).log_ratio(works), atol=1e-5
    )
    assert after.to_json() == described()


@pytest.mark.parametrize(
    "name, value",
    [
        ("roots", []),
        ("roots", [-1]),
        ("roots", [10**6]),
        ("roots", [10**30]),
        ("roots", [[0]]),
        ("feature", [0]),
        ("feature", "none"),
        ("number", [float("nan")]),
        ("upper", lambda nodes: [0] * len(nodes)),  # a walk that never ends
        ("upper", lambda nodes: [10**6] * len(nodes)),
        ("feature", lambda nodes: [len(FEATURES) + 99] * len(nodes)),
        ("feature", lambda nodes: [0] * len(nodes)),  # no leaf
        ("feature", lambda nodes: [-2] * len(nodes)),
        ("features", ["macs"]),
    ],
)
def test_a_damaged_one_is_refused(name, value):
    data = json.loads(described())
    forest = data["targets"]["cpu"]["forest"]
    forest[name] = value(forest[name]) if callable(value) else value
    with pytest.raises(CostError, match="damaged"):
        parse_description(data)


def test_a_description_of_the_version_before_is_read():
    data = json.loads(described()) | {"version": 2}
    del data["targets"]["cpu"]["forest"], data["targets"]["cpu"]["ns_per_gathered_byte"]
    model = parse_description(data).targets[CPU]
    assert model.forest is None and model.roof.ns_per_gathered_byte == 0.0


def test_calibrate_says_once_that_scikit_learn_would_help(monkeypatch, caplog):
    with caplog.at_level("INFO", "nnapi_prof"):
        calibrate(rows(), "a", "b")
        assert "scikit-learn" not in caplog.text  # the table is short
        monkeypatch.setattr(calibration, "LONG", 30)
        calibrate(rows(), "a", "b")
        assert "scikit-learn" not in caplog.text
        without_sklearn(monkeypatch)
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
