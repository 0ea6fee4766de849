"""What kind of fault values look like."""

import math

import pytest
import torch

from nnapi_prof.bisection import FaultKind
from nnapi_prof.bisection.deviation import deviation, difference
from nnapi_prof.bisection.diagnosis import facts_of, kind_of
from nnapi_prof.costs import Precision
from nnapi_prof.graph import Quantisation, TensorType

X = torch.randn(1, 6, 8, 8, generator=torch.Generator().manual_seed(0))


BORDER, CHANNELS, NAN = X.clone(), X.clone(), X.clone()
BORDER[:, :, 0] = 0
BORDER[:, :, :, -1] *= 2
CHANNELS[:, 2] = X[:, 2].square() + 3
NAN[0, 1, 2, 3] = math.nan


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (X * 1.03, FaultKind.SCALE),
        (X + 0.25, FaultKind.SCALE),
        ((X * 1.01).half().float(), FaultKind.SCALE),
        (X.clamp(-1, 1), FaultKind.SATURATION),
        (X.clamp(max=0.5), FaultKind.SATURATION),
        (X.transpose(2, 3).contiguous(), FaultKind.LAYOUT),
        (X.flip(1), FaultKind.LAYOUT),
        (X.permute(0, 2, 3, 1).reshape(X.shape), FaultKind.LAYOUT),
        (BORDER, FaultKind.PADDING),
        (X.roll((1, -1), (2, 3)), FaultKind.PADDING),
        (CHANNELS, FaultKind.CHANNELS),
        (NAN, FaultKind.NOT_FINITE),
        (X.square(), FaultKind.KERNEL),
    ],
)
def test_kinds(wrong: torch.Tensor, kind: FaultKind) -> None:
    facts = [facts_of(wrong, X)]
    error = difference(wrong.double(), X.double()).max().item()
    told = kind_of(facts, runs=True, repeats=True, n_units=1, error=error, half_movement=1e-4)
    assert told is kind, facts


def test_numbers_of_the_facts() -> None:
    assert facts_of(X * 1.03, X).factor == pytest.approx(1.03)
    assert facts_of(X + 0.25, X).offset == pytest.approx(0.25)
    assert facts_of(X.clamp(-1, 1), X).limit == pytest.approx(1.0)
    assert facts_of(CHANNELS, X).channels_off == (2,)
    assert facts_of(NAN, X).n_nan == 1


def test_what_does_not_repeat_is_a_race_and_half_precision_is_told() -> None:
    half = X.half().float()
    error = difference(half.double(), X.double()).max().item() / X.abs().max().item()
    options = {"runs": True, "n_units": 1, "error": error, "half_movement": 5e-4}
    assert kind_of([facts_of(half, X)], repeats=True, **options) is FaultKind.PRECISION
    assert kind_of([facts_of(half, X)], repeats=False, **options) is FaultKind.RACE


def ratio(mine, reference, type_, precision, n_units=1) -> float:
    """How far a region's output is off, of what its precision allows."""
    return deviation("x", mine, reference, type_, None, precision, n_units=n_units).ratio


def test_deviations_of_8_bits_allow_ties_and_no_more() -> None:
    type_ = TensorType((100,), "uint8", quant=Quantisation(0.1, 128))
    reference = torch.arange(100, dtype=torch.uint8) + 70
    ties = reference.clone()
    ties[::20] += 1  # one value in twenty, by one step
    same, tied, shifted = (
        ratio(mine, reference, type_, Precision.FLOAT32, n_units=2)
        for mine in (reference, ties, reference + 1)
    )
    assert same == 0 and tied < 1 < shifted


def test_infinity_and_denormals() -> None:
    limit = torch.finfo(torch.float32).max
    mine, reference = torch.tensor([limit, 0.0, 1.0]), torch.tensor([math.inf, 1e-40, 1.0])
    assert difference(mine.double(), reference.double()).max() == 0
    assert difference(torch.tensor([math.nan]).double(), torch.tensor([1.0]).double()) == math.inf


def test_what_elements_have_in_common_is_told_from_rounding() -> None:
    expected = (X, TensorType(tuple(X.shape), "float32"), Precision.RELAXED)
    one_channel = X.clone()
    one_channel[:, 3] += 0.01 * X.abs().max()
    generator = torch.Generator().manual_seed(1)
    noise = X + 8e-3 * X.abs().max() * (2 * torch.rand(X.shape, generator=generator) - 1)
    for wrong in (X * 1.01, X * 0.99, (X * 1.01).half().float(), X + 0.05, one_channel):
        assert ratio(wrong, *expected, n_units=2) < 1 < ratio(wrong, *expected)
    for right in (X, X.half().float(), X.bfloat16().float(), noise, X * 1.004):
        assert ratio(right, *expected) < 1


def test_a_factor_moves_large_8_bit_values_alone() -> None:
    type_ = TensorType((1, 4, 8, 8), "uint8", quant=Quantisation(0.1, 128))
    generator = torch.Generator().manual_seed(0)
    steps = torch.randn(1, 4, 8, 8, generator=generator) * 30
    reference = (steps.round() + 128).clamp(0, 255).to(torch.uint8)
    wrong = ((reference.double() - 128) * 1.01 + 128).round().clamp(0, 255).to(torch.uint8)
    ties = reference + (torch.rand(reference.shape, generator=generator) < 0.1)
    expected = (reference, type_, Precision.INT8)
    assert ratio(wrong, *expected) > 1 > ratio(ties.to(torch.uint8), *expected)
    facts = facts_of((reference.double() - 128) * 1.1 + 128, reference, 128)
    assert facts.factor == pytest.approx(1.1)
