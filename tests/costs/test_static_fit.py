import math
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from nnapi_prof.costs.estimate import Work, WorkSample, conv_like, from_frame
from nnapi_prof.costs.estimate.calibration import (
    cross_validated,
    fit_samples,
    fit_with_errors,
    single_rate,
)
from nnapi_prof.costs.estimate.model import Roof, TargetModel
from nnapi_prof.errors import CostError

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"


def table(n: int = 120, seed: int = 0) -> pd.DataFrame:
    """Convolutions of all sorts, without latencies."""
    draw = np.random.default_rng(seed)
    deep = draw.random(n) < 0.3
    side, stride = draw.choice([7, 14, 28, 56, 112], n), draw.choice([1, 2], n)
    channels, kernel = draw.choice([8, 24, 64, 160, 512], n), draw.choice([1, 3, 5], n)
    return pd.DataFrame(
        {
            "op": np.where(deep, "DEPTHWISE_CONV_2D", "CONV_2D"),
            "in_h": side * stride,
            "in_w": side * stride,
            "in_c": channels,
            "out_h": side,
            "out_w": side,
            "out_c": np.where(deep, channels, draw.choice([8, 32, 96, 320], n)),
            "kernel_h": kernel,
            "kernel_w": kernel,
            "stride": stride,
            "groups": np.where(deep, channels, 1),
            "latency_ns": 1.0,
        }
    )


RATES = {"CONV_2D": 0.05, "CONV_2D 1x1": 0.08, "DEPTHWISE_CONV_2D": 0.4, "default": 1.0}
TRUE = TargetModel(
    Roof(5_000.0, 0.2, RATES),
    invocation_ns=700_000.0,
    ns_per_in_byte=0.5,
    ns_per_out_byte=0.25,
)


def measured(works: list[Work], noise: float = 0.01, bend: float = 0.0) -> list[WorkSample]:
    """Each alone, as the true model has it; ``bend`` makes few channels slower than it says."""
    off = np.exp(noise * np.random.default_rng(1).normal(size=len(works)))
    return [
        WorkSample((work,), TRUE.roof.ns(work) * factor * (1 + bend * 16 / work.out_channels))
        for work, factor in zip(works, off, strict=True)
    ]


def works_of(frame: pd.DataFrame) -> list[Work]:
    return [sample.works[0] for sample in from_frame(frame)]


def median_error(model: TargetModel, samples: list[WorkSample]) -> float:
    return float(np.median([abs(model.sample_ns(s) / s.ns - 1) for s in samples]))


def test_prices_of_a_roofline_are_found():
    result = fit_samples(measured(works_of(table()), noise=0.0), correct=False)
    for kind in ("CONV_2D", "CONV_2D 1x1", "DEPTHWISE_CONV_2D"):
        assert result.roof.ns_per_mac[kind] == pytest.approx(TRUE.roof.ns_per_mac[kind], rel=0.1)
    assert result.roof.operation_ns == pytest.approx(5_000, rel=0.2)


@pytest.mark.slow
def test_what_no_roofline_can_say_is_learnt_from_shapes():
    shown = measured(works_of(table()), bend=1.0)
    held = measured(works_of(table(seed=2)), bend=1.0)
    with_correction = median_error(fit_samples(shown), held)
    without = median_error(fit_samples(shown, correct=False), held)
    assert with_correction < 0.05 < without


@pytest.mark.slow
def test_invocation_and_transfer_are_told_from_operations_by_chains():
    works = works_of(table(60))
    samples = []
    for length in (1, 2, 3):
        for first in range(0, len(works) - length, length):
            chain = tuple(works[first : first + length])
            blank = WorkSample(chain, 1.0, 1.0, chain[0].in_bytes, chain[-1].out_bytes)
            samples.append(replace(blank, ns=TRUE.sample_ns(blank)))
    result = fit_samples(samples)
    assert result.invocation_ns == pytest.approx(700_000, rel=0.1)
    region = WorkSample(tuple(works[:8]), 1.0, 1.0, works[0].in_bytes, works[7].out_bytes)
    assert result.sample_ns(region) == pytest.approx(TRUE.sample_ns(region), rel=0.05)


def test_nine_whole_models_are_enough_for_a_processor_of_the_usual_kind():
    """Sums only: no operation was ever timed alone."""
    true = Roof(9_000.0, 0.25, {"CONV_2D": 0.09, "CONV_2D 1x1": 0.11, "DEPTHWISE_CONV_2D": 0.3})
    draw = np.random.default_rng(3)
    models = []
    for seed in range(40):
        works = works_of(table(int(draw.integers(20, 80)), seed=seed))
        models.append(WorkSample(tuple(works), sum(map(true.ns, works))))
    model = fit_samples(models[:9])
    assert model.correction is None
    errors = np.array([abs(model.sample_ns(s) / s.ns - 1) for s in models[9:]])
    assert (errors <= 0.1).mean() >= 0.6


@pytest.mark.slow
def test_the_fit_is_the_same_every_time():
    samples = measured(works_of(table()))
    one, two = fit_with_errors(samples).model, fit_with_errors(samples).model
    works = works_of(table(seed=5))
    assert (one.works_ns(works) == two.works_ns(works)).all()
    assert one.errors == two.errors


@pytest.mark.slow
def test_equal_operations_never_vouch_for_each_other():
    """Four copies of each row: remembering them must not look like knowing."""
    draw = np.random.default_rng(0)
    wild = [replace(s, ns=s.ns * math.exp(draw.normal())) for s in measured(works_of(table(40)))]
    errors = cross_validated([sample for sample in wild for _ in range(4)])
    assert np.median(np.abs(errors)) > 0.3


@pytest.mark.slow
def test_a_wild_row_does_not_pull_the_others():
    samples = measured(works_of(table()))
    spoilt = [replace(s, ns=s.ns * 20) if i % 20 == 0 else s for i, s in enumerate(samples)]
    assert median_error(fit_samples(spoilt), measured(works_of(table(seed=2)))) < 0.08


@pytest.mark.slow
def test_errors_grow_with_strangeness():
    model = fit_with_errors(measured(works_of(table()), bend=1.0)).model
    work = works_of(table())[0]
    strange = replace(work, macs=1e13, in_channels=1e6, out_channels=1e6, pixels=1e8)
    near, far = model.uncertainty([work]), model.uncertainty([strange])
    assert near is not None and far is not None and near < far
    assert model.works_ns([strange])[0] > 0


def test_nothing_to_fit_is_refused():
    with pytest.raises(CostError, match="no measured operation"):
        fit_samples([])


def test_a_frame_without_a_column_or_with_a_latency_of_zero_is_refused():
    with pytest.raises(CostError, match="no column out_c"):
        from_frame(table().drop(columns="out_c"))
    with pytest.raises(CostError, match="not positive"):
        from_frame(table().assign(latency_ns=0.0))
    with pytest.raises(CostError, match="'complex' is not one of"):
        from_frame(table().assign(dtype="complex"))


def test_rows_of_one_sample_are_added():
    samples = from_frame(table(6).assign(sample=[1, 1, 2, 2, 2, 3], latency_ns=10.0))
    assert [len(s.works) for s in samples] == [2, 3, 1]
    assert [s.ns for s in samples] == [20.0, 30.0, 10.0]


def test_work_is_counted_from_sizes():
    sizes = dict(op="CONV_2D", in_h=9, in_w=9, in_c=8, out_h=7, out_w=7, out_c=16)
    window = dict(kernel_h=3, kernel_w=3, stride=1, groups=2, dtype="float16", batch=2)
    work = conv_like(SimpleNamespace(**sizes, **window))
    assert work.macs == 2 * 7 * 7 * 16 * 4 * 9
    assert work.in_bytes == 2 * 9 * 9 * 8 * 2
    assert work.weight_bytes == 16 * 4 * 9 * 2
    assert work.rate == "CONV_2D/float16"


@pytest.fixture(scope="module")
def usc():
    script = runpy.run_path(str(ROOT / "benchmarks" / "static_tables.py"))
    return pd.DataFrame(script["usc_operations"](DATA))


@pytest.mark.slow
@pytest.mark.parametrize("phone", ["pixel4", "a03s"])
def test_a_real_gpu_is_predicted_from_a_fifth_of_its_rows(usc, phone):
    """The whole tables are four times as long; see benchmarks/bench_static.py."""
    samples, errors = from_frame(usc.assign(latency_ns=usc[phone])), []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(samples))
        cut = round(0.2 * len(samples))
        shown, held = ([samples[i] for i in part] for part in (order[:cut], order[cut:]))
        models = fit_samples(shown), single_rate(shown)
        errors.append([median_error(model, held) for model in models])
    ours, rate = np.median(errors, axis=0)
    assert ours <= 0.2 and rate >= 2 * ours
