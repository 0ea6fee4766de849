"""What is published, and how well a chip's calibration tells it from the simulation."""

import math

import numpy as np
import pytest

from nnapi_prof.errors import CostError, UsageError
from nnapi_prof.qnn import CHIPS, NpuGeneration, QnnPrecision, is_qnn, one_chip, parse_device
from nnapi_prof.qnn.calibration import (
    MOST_APART,
    MOST_WORK,
    calibrate,
    fit,
    leave_one_out,
    mean_ns,
    published,
    rows,
    smallest_network,
    spread_of,
)

QAIRT = published()["simulated_with"]


def test_devices_are_read_by_chip_and_precision():
    chips, precision = parse_device("qnn:sm8550,SM8750/int8")
    assert [chip.name for chip in chips] == ["SM8550", "SM8750"]
    assert precision is QnnPrecision.INT8
    assert one_chip("qnn:SM8650")[1] is QnnPrecision.FP16
    assert is_qnn("qnn:SM8650") and not is_qnn("sim:npu-phone")


@pytest.mark.parametrize("name", ["qnn:SM8651", "qnn:", "qnn:SM8650/fp8", "qnn:SM8650,"])
def test_what_is_no_chip_is_refused(name):
    with pytest.raises(UsageError):
        parse_device(name)


@pytest.mark.parametrize(
    ("chip", "median", "within_quarter"),
    [
        ("SM8850", 0.079, 0.87),
        ("SM8750", 0.068, 0.93),
        ("SM8650", 0.082, 0.93),
        ("SM8550", 0.065, 0.93),
    ],
)
def test_networks_left_out_are_predicted(chip, median, within_quarter):
    result = calibrate(CHIPS[chip], QnnPrecision.FP16, QAIRT)
    assert result.networks >= 33
    smallest = smallest_network(CHIPS[chip], QnnPrecision.FP16)
    assert smallest is not None and 0.5 < result.overhead_ns / smallest[1] < 0.9
    assert result.whole_ns(smallest[0]) == pytest.approx(smallest[1])
    assert result.median_error <= median
    assert result.within_quarter >= within_quarter
    low, high = result.band(1e6)
    assert low < 1e6 < high
    _, x, t = rows(CHIPS[chip], QnnPrecision.FP16)
    held = np.abs(leave_one_out(x, t, smallest)) <= result.spread
    assert 0.85 <= held.mean() <= 0.97


def test_one_generation_that_is_far_slower_than_the_other_counts_no_more_than_it_may():
    chip, v81 = CHIPS["SM8450"], 1e6
    usual, most, beyond = (
        mean_ns(chip, {NpuGeneration.V73: factor * v81, NpuGeneration.V81: v81})
        for factor in (3.0, MOST_APART, 44.0)
    )
    assert usual < most == beyond


def test_a_chip_without_published_rows_borrows_with_twice_the_band():
    own = calibrate(CHIPS["SM8450"], QnnPrecision.FP16, QAIRT)
    borrowed = calibrate(CHIPS["SM8475"], QnnPrecision.FP16, QAIRT)
    assert borrowed.borrowed and not own.borrowed
    assert borrowed.spread == pytest.approx(2 * own.spread)
    assert calibrate(CHIPS["SM8450"], QnnPrecision.FP16, "9.9.9").borrowed


def test_eight_bits_on_v73_tell_the_order_only():
    assert calibrate(CHIPS["SM8550"], QnnPrecision.INT8, QAIRT).order_only


def test_two_numbers_are_fitted_through_an_outlier():
    x = np.geomspace(1e5, 1e8, 20)
    t = 2e5 + 0.5 * x
    t[7] *= 10
    for smallest in (None, (1e5, 2.5e5)):
        a, b = fit(x, t, smallest)
        assert a == pytest.approx(2e5, rel=0.05)
        assert b == pytest.approx(0.5, rel=0.05)
        assert smallest is None or a + b * 1e5 == pytest.approx(2.5e5)
    least = 2.5e5 * (1 - MOST_WORK)
    assert fit(x, 100 * t, (1e5, 2.5e5))[0] == pytest.approx(least), "most of it stays overhead"


def test_the_band_is_the_conformal_quantile():
    errors = [-math.log(1 + k / 100) for k in range(1, 20)]
    assert spread_of(errors) == pytest.approx(math.log(1.18))


def test_nothing_is_fitted_to_few_networks(monkeypatch):
    monkeypatch.setattr("nnapi_prof.qnn.calibration.FEWEST", 1000)
    with pytest.raises(CostError):
        calibrate.__wrapped__(CHIPS["SM8650"], QnnPrecision.FP16, QAIRT)
