import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof.costs.estimate.calibration import calibrate, refused_of, samples_of
from nnapi_prof.costs.measurement import Kind, Measurement, Status, work_columns
from nnapi_prof.errors import CostError
from nnapi_prof.graph.plan import CPU, Preference, Target
from nnapi_prof.graph.unit import Work
from tests.costs.graphs import LOW, NPU

INVOCATION_NS = 400_000.0
LSTM = ("lstm", 100, 100)


def work_of(label: str, in_bytes: int, out_bytes: int) -> Work:
    """A convolution ``conv2d 3x3 8->32 14x14``, or one other operation of a row of elements."""
    word, *sizes = label.split()
    kind = {"conv2d": "CONV_2D", "sigmoid": "LOGISTIC"}.get(word, word.upper())
    if word != "conv2d":
        n = float(math.prod(int(s) for size in sizes for s in size.split("x")))
        return Work(kind, "float32", n, in_bytes, out_bytes, 0, 1, 1, n, n)
    kernel, image = (math.prod(map(int, size.split("x"))) for size in (sizes[0], sizes[2]))
    c_in, c_out = map(int, sizes[1].split("->"))
    weights, width = c_in * c_out * kernel, math.isqrt(image)
    macs, n_bytes = image * weights, (in_bytes, out_bytes, 4 * weights)
    return Work(kind, "float32", macs, *n_bytes, image, width, c_in, c_out, kernel)


def measurement(
    target: Target,
    *units: tuple[str, int, int],
    status: Status = Status.OK,
    signature: str | None = None,
) -> Measurement:
    """Units (label, bytes in, bytes out) run as one: MACs count, on the NPU a tenth of them."""
    works, labels = [work_of(*unit) for unit in units], tuple(label for label, _, _ in units)
    rate, start = (0.1, 0.0) if target == CPU else (0.01, INVOCATION_NS)
    ns = start + sum(5_000 + work.macs * rate for work in works)
    return Measurement(
        signature=signature or "|".join(labels),
        kind=Kind.UNIT if len(units) == 1 else Kind.CHAIN,
        label=" | ".join(labels),
        members=(signature,) * len(units) if signature else labels,
        offsets=tuple(range(len(units))),
        target=target,
        fingerprint="device",
        agent_version="1",
        status=status,
        samples_ns=(round(ns),) if status is Status.OK else (),
        input_bytes=units[0][1],
        output_bytes=units[-1][2],
        **work_columns(works),
        simulated=True,
    )


def rows() -> list[Measurement]:
    units = [
        (f"conv2d {k}x{k} {c_in}->{c_out} {side}x{side}", side**2 * c_in * 4, side**2 * c_out * 4)
        for k, c_in, c_out, side in itertools.product((1, 3), (8, 32, 96), (8, 32, 96), (14, 56))
    ]
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
    npu = described.targets[NPU]
    assert npu.invocation_ns == pytest.approx(INVOCATION_NS, rel=0.1)
    assert npu.refused == {"LSTM"}
    assert [report.target for report in reports] == [CPU, NPU]
    for report in reports:
        half, nine, within = report.summary(report.errors)
        assert half < 0.05 and within > 0.7 and half <= nine
    on_npu = reports[1]
    assert on_npu.summary(on_npu.single_rate)[0] > 0.1


def test_what_did_not_run_and_what_is_unknown_take_no_part():
    add = ("add 1x4", 4, 4)
    result = samples_of([*rows(), measurement(NPU, add, add, signature="stranger")])
    assert all(math.isfinite(sample.ns) for samples in result.values() for sample in samples)
    assert len(result[NPU]) == 36 + 17
    assert {s.invocations for s in result[NPU]} == {1.0}
    assert {s.invocations for s in result[CPU]} == {0.0}
    assert refused_of(rows())[CPU] == frozenset()


def test_without_the_cpu_there_is_nothing_to_compare_with():
    with pytest.raises(CostError, match="nnapi-prof profile"):
        calibrate([row for row in rows() if row.target == NPU], "a", "b")


@pytest.mark.slow
def test_targets_that_were_only_sampled_are_left_out(caplog):
    sampled = [measurement(LOW, (f"add 1x{n}", n, n)) for n in (8, 64, 512)]
    with caplog.at_level("INFO", "nnapi_prof"):
        described, reports = calibrate([*rows(), *sampled], "a", "b")
    assert set(described.targets) == {CPU, NPU} == {report.target for report in reports}
    assert "less than 6 times: nnapi:npu/low_power (3)" in caplog.text


def test_a_refusal_holds_for_every_preference_until_one_runs():
    """The classes that a driver lacks do not depend on what it prefers, and samples are few."""
    other, sigmoid = Target.nnapi("gpu", Preference.FAST_SINGLE_ANSWER), ("sigmoid 8", 32, 32)
    assert refused_of(rows())[NPU] == {"LSTM"}
    sampled = [measurement(target, sigmoid) for target in (LOW, other)]
    refused = refused_of([*rows(), *sampled, measurement(NPU, sigmoid, status=Status.REFUSED)])
    assert refused[LOW] == {"LSTM"}  # it ran a sigmoid itself
    assert refused[NPU] == {"LSTM", "LOGISTIC"}
    assert refused[other] == refused[CPU] == frozenset()


@pytest.mark.slow
def test_targets_that_are_predicted_wildly_are_named_and_not_offered(caplog):
    draw = np.random.default_rng(0)
    wild = [measurement(LOW, (f"conv2d 3x3 8->{c} 14x14", 1, c * 784)) for c in range(8, 20)]
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
