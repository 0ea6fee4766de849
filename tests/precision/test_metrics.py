"""Errors, and the intervals in which those of other data lie."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from nnapi_prof.errors import UsageError
from nnapi_prof.precision.metrics import (
    BuiltInMetric,
    FloatOutputs,
    Metric,
    MetricKind,
    sqnr_db,
    stacked,
)
from nnapi_prof.precision.user_files import UserMetric, metric_of


def wrong(outputs: Tensor, labels: Tensor) -> float:
    """The share of samples of another class."""
    return float((outputs.argmax(1) != labels).float().mean())


def largest_class(outputs: Tensor, labels: Tensor) -> float:
    """No mean over samples: the worst class's share of wrong samples."""
    others = outputs.argmax(1) != labels
    return max(float(others[labels == label].float().mean()) for label in labels.unique())


EVERY: list[Metric] = [
    *map(BuiltInMetric, MetricKind),
    UserMetric("own:wrong", wrong),
    UserMetric("own:largest_class", largest_class),
]


def estimate(kind: MetricKind, output: list, reference: list):
    whole = FloatOutputs.calibrated([np.array(reference, dtype=np.float64)])
    return BuiltInMetric(kind).estimate([np.array(output, dtype=np.float64)], whole)


def test_errors_are_relative_to_what_varies() -> None:
    # Two samples of two places, means 10 and 0: less these the reference is -3, 1 and 3, -1.
    reference, output = [[7, 1], [13, -1]], [[7, 2], [13, -2]]
    error = estimate(MetricKind.RELATIVE, output, reference).error
    assert error == pytest.approx(math.sqrt(2 / 20))
    assert estimate(MetricKind.TOP1, [[7, 8], [13, -2]], reference).error == 0.5
    assert sqnr_db(0.01) == pytest.approx(40) and sqnr_db(0) == math.inf


def test_held_out_data_is_taken_less_the_means_of_the_calibration_data() -> None:
    calibration = FloatOutputs.calibrated([np.array([[9.0], [11.0]])])
    other = calibration.over([np.array([[13.0], [10.0], [14.0]])])
    output = np.array([[13.5], [10.0], [14.0]])
    result = BuiltInMetric().estimate([output], other)
    assert result.error == pytest.approx(0.5 / 5) and result.n_samples == 3


def test_an_output_that_never_varies_is_relative_to_its_size() -> None:
    reference = FloatOutputs.calibrated([np.full((3, 4), 5.0)])
    assert reference.steady == (0,)
    result = BuiltInMetric().estimate([np.full((3, 4), 5.5)], reference)
    assert result.error == pytest.approx(0.1)


def test_numbers_that_are_none() -> None:
    kind = MetricKind.RELATIVE
    reference = [[math.inf, 1], [2, 3], [math.nan, 5]]
    assert estimate(kind, reference, reference).error == 0
    assert estimate(kind, [[math.inf, 1], [math.nan, 3], [math.nan, 5]], reference).error > 1e300
    zeros = [[0, 0], [0, 0]]
    assert estimate(kind, zeros, zeros).error == 0
    assert estimate(kind, [[1, 0], [0, 0]], zeros).error == math.inf


def test_the_output_with_the_largest_error_counts() -> None:
    outputs = [np.array([[[1.0]], [[2.0]]]), np.array([[1.0, 2.0], [2.0, 1.0]])]
    moved = [outputs[0] * 1.1, outputs[1]]
    result = BuiltInMetric().estimate(moved, FloatOutputs.calibrated(outputs))
    assert result.by_output[1] == 0 and result.error == result.by_output[0] > 0


def test_outputs_of_samples_are_stacked() -> None:
    first = (torch.ones(1, 2), torch.tensor([1j]))
    floats, complexes = stacked([first, (torch.zeros(1, 2), torch.tensor([2.0 + 0j]))])
    assert floats.shape == (2, 1, 2) and complexes.tolist() == [[[0, 1]], [[2, 0]]]


# Classes


def test_classes_of_places() -> None:
    images = np.zeros((2, 1, 3, 2, 2))  # [samples, N, C, H, W]
    images[:, :, 0] = 1
    moved = images.copy()
    moved[0, 0, 2, 0, 0] = 2
    metric = BuiltInMetric(MetricKind.TOP1)
    assert metric.estimate([moved], FloatOutputs.calibrated([images])).error == 1 / 8
    with pytest.raises(UsageError, match="top1 is for classes; take another metric"):
        metric.estimate([np.ones((4, 1))], FloatOutputs.calibrated([np.ones((4, 1))]))


@pytest.mark.parametrize("metric", [BuiltInMetric(MetricKind.TOP1), UserMetric("own:wrong", wrong)])
def test_none_of_few_is_not_none_of_all(metric: Metric) -> None:
    random = np.random.default_rng(0)
    for n, most in ((10, 0.5), (100, 0.1), (1000, 0.01)):
        outputs = random.normal(size=(n, 1, 5))
        moved = outputs + random.normal(size=outputs.shape) * 1e-9
        labels = outputs.argmax(2)[:, 0].tolist()
        result = metric.estimate([moved], FloatOutputs.calibrated([outputs]), labels)
        assert result.error == 0 and 1 / n < result.high < most
        same = metric.estimate([outputs], FloatOutputs.calibrated([outputs]), labels)
        assert same.error == 0


# A user's own


def test_a_metric_of_the_user() -> None:
    outputs = np.eye(4)[:, None]
    moved = outputs.copy()
    moved[0, 0] = [0, 5, 0, 0]
    reference = FloatOutputs.calibrated([outputs])
    labels = [0, 1, 2, 0]  # float32 is wrong about the last
    metric = UserMetric("own:wrong", wrong)
    result = metric.estimate([moved], reference, labels)
    assert result.error == 0.25 and result.low < 0.25 < result.high
    assert metric.estimate([moved], reference, [1, 1, 2, 0]).error == -0.25
    assert metric.estimate([moved], reference, [torch.tensor([n]) for n in labels]) == result


def test_a_metric_of_the_user_gets_what_its_outputs_and_targets_are() -> None:
    def check(outputs: tuple[Tensor, Tensor], targets: list[str]) -> float:
        images, numbers = outputs
        assert images.shape[1:] == (3, 2, 2) and numbers.shape == (len(images),)
        return float(numbers.sum()) if targets[0] == "seven" else 0.0

    outputs = [np.zeros((2, 1, 3, 2, 2)), np.zeros(2)]
    reference = FloatOutputs.calibrated(outputs)
    moved = [outputs[0], outputs[1] + 1]
    assert UserMetric("own:check", check).estimate(moved, reference, ["seven", "two"]).error == 2


def test_what_is_wrong_with_a_metric_of_the_user() -> None:
    outputs = [np.zeros((2, 1, 3))]
    reference, moved = FloatOutputs.calibrated(outputs), [outputs[0] + 1]
    metric = UserMetric("own:wrong", wrong)
    with pytest.raises(UsageError, match="a target for each of 2 samples, there are no targets"):
        metric.estimate(moved, reference)
    with pytest.raises(UsageError, match="there are 1 targets: give them with the calibration"):
        metric.estimate(moved, reference, [1])
    with pytest.raises(UsageError, match="the metric own:f failed: division by zero"):
        UserMetric("own:f", lambda *_: 1 / 0).estimate(moved, reference, [1, 2])
    with pytest.raises(UsageError, match="the metric own:f gave NaN"):
        UserMetric("own:f", lambda *_: math.nan).estimate(moved, reference, [1, 2])


def test_metrics_by_name() -> None:
    assert metric_of("relative") == BuiltInMetric() and not metric_of("top1").needs_targets
    joined = metric_of("os.path:join")
    assert joined.name == "os.path:join" and joined.needs_targets
    with pytest.raises(UsageError, match=r"no metric 'top' \(did you mean top1\?\): there are rel"):
        metric_of("top")
    for name in ("no_such_module:f", "os:no_such_function"):
        with pytest.raises(UsageError, match="cannot be loaded"):
            metric_of(name)
    with pytest.raises(UsageError, match="is str, a function is required"):
        metric_of("os:sep")


# Intervals


def one_set(n: int, random: np.random.Generator, calibration: FloatOutputs):
    """Outputs of ``n`` samples, some noisier than others, and labels that float32 mostly knows."""
    outputs = random.normal(size=(n, 1, 8))
    noise = random.normal(size=outputs.shape) * random.lognormal(-2.5, 0.4, size=(n, 1, 1))
    labels = outputs.argmax(2)[:, 0]
    labels = np.where(random.random(n) < 0.05, 0, labels)
    return [outputs + noise], calibration.over([outputs]), labels.tolist()


@pytest.mark.slow("an interval is right in most of 24 tries, not in each")
@pytest.mark.parametrize(
    ("metric", "n", "tries"),
    [
        *((metric, n, 24) for metric in EVERY[:-1] for n in (4, 60)),
        (EVERY[-1], 60, 12),  # a function that is no mean over samples
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_error_on_other_data_lies_in_the_interval(metric: Metric, n: int, tries: int) -> None:
    random = np.random.default_rng(7)
    calibration = FloatOutputs.calibrated([random.normal(size=(60, 1, 8))])
    inside, widths = 0, []
    for _ in range(tries):
        result = metric.estimate(*one_set(n, random, calibration))
        other = metric.estimate(*one_set(n, random, calibration)).error
        inside += result.low <= other <= result.high
        widths.append(result.high / result.error if result.error > 0 else math.inf)
    assert inside >= 0.9 * tries
    if n == 60 and metric == BuiltInMetric():
        assert np.median(widths) < 1.5  # and it says something


def test_of_a_single_sample_nothing_follows() -> None:
    result = estimate(MetricKind.RELATIVE, [[1, 2]], [[1, 1]])
    assert result.error > 0 and (result.low, result.high) == (0, math.inf)
