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


def border(value: torch.Tensor) -> torch.Tensor:
    wrong = value.clone()
    wrong[:, :, 0] = 0
    wrong[:, :, :, -1] *= 2
    return wrong


def channels(value: torch.Tensor) -> torch.Tensor:
    wrong = value.clone()
    wrong[:, 2] = value[:, 2].square() + 3
    return wrong


def nan(value: torch.Tensor) -> torch.Tensor:
    wrong = value.clone()
    wrong[0, 1, 2, 3] = math.nan
    return wrong


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
        (border(X), FaultKind.PADDING),
        (X.roll((1, -1), (2, 3)), FaultKind.PADDING),
        (channels(X), FaultKind.CHANNELS),
        (nan(X), FaultKind.NOT_FINITE),
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
    assert facts_of(channels(X), X).channels_off == (2,)
    assert facts_of(nan(X), X).n_nan == 1


def test_what_does_not_repeat_is_a_race_and_half_precision_is_told() -> None:
    half = X.half().float()
    error = difference(half.double(), X.double()).max().item() / X.abs().max().item()
    options = {"runs": True, "n_units": 1, "error": error, "half_movement": 5e-4}
    assert kind_of([facts_of(half, X)], repeats=True, **options) is FaultKind.PRECISION
    assert kind_of([facts_of(half, X)], repeats=False, **options) is FaultKind.RACE


def test_deviations_of_8_bits_allow_ties_and_no_more() -> None:
    type_ = TensorType((100,), "uint8", quant=Quantisation(0.1, 128))
    reference = torch.arange(100, dtype=torch.uint8) + 70
    ties = reference.clone()
    ties[::20] += 1  # one value in twenty, by one step
    shifted = reference + 1

    def ratio(mine: torch.Tensor) -> float:
        return deviation("x", mine, reference, type_, None, Precision.FLOAT32, n_units=2).ratio

    assert ratio(reference) == 0 and ratio(ties) < 1 < ratio(shifted)


def test_infinity_and_denormals() -> None:
    limit = torch.finfo(torch.float32).max
    mine, reference = torch.tensor([limit, 0.0, 1.0]), torch.tensor([math.inf, 1e-40, 1.0])
    assert difference(mine.double(), reference.double()).max() == 0
    assert difference(torch.tensor([math.nan]).double(), torch.tensor([1.0]).double()) == math.inf


def test_what_elements_have_in_common_is_told_from_rounding() -> None:
    type_ = TensorType(tuple(X.shape), "float32")

    def ratio(mine: torch.Tensor, *, n_units: int = 1) -> float:
        return deviation("x", mine, X, type_, None, Precision.RELAXED, n_units=n_units).ratio

    one_channel = X.clone()
    one_channel[:, 3] += 0.01 * X.abs().max()
    generator = torch.Generator().manual_seed(1)
    noise = X + 8e-3 * X.abs().max() * (2 * torch.rand(X.shape, generator=generator) - 1)
    for wrong in (X * 1.01, X * 0.99, (X * 1.01).half().float(), X + 0.05, one_channel):
        assert ratio(wrong, n_units=2) < 1 < ratio(wrong)
    for right in (X, X.half().float(), X.bfloat16().float(), noise, X * 1.004):
        assert ratio(right) < 1


def test_a_factor_moves_large_8_bit_values_alone() -> None:
    type_ = TensorType((1, 4, 8, 8), "uint8", quant=Quantisation(0.1, 128))
    generator = torch.Generator().manual_seed(0)
    steps = torch.randn(1, 4, 8, 8, generator=generator) * 30
    reference = (steps.round() + 128).clamp(0, 255).to(torch.uint8)
    wrong = ((reference.double() - 128) * 1.01 + 128).round().clamp(0, 255).to(torch.uint8)
    ties = reference + (torch.rand(reference.shape, generator=generator) < 0.1)
    found = [
        deviation("x", mine, reference, type_, None, Precision.INT8, n_units=1).ratio
        for mine in (wrong, ties.to(torch.uint8))
    ]
    assert found[0] > 1 > found[1]
    facts = facts_of((reference.double() - 128) * 1.1 + 128, reference, 128)
    assert facts.factor == pytest.approx(1.1)
