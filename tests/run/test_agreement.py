"""What counts as agreement with eager PyTorch, and what it leaves open."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nnapi_prof.costs.measurement import Status
from nnapi_prof.execution.compare import compare, limit_notes, notes_on
from nnapi_prof.execution.half_errors import unit_errors
from nnapi_prof.execution.judgement import (
    allow_ambiguous,
    allow_decisions,
    allow_unsteady,
    last_step,
)
from nnapi_prof.execution.report import Evidence, OutputCheck
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.program import Program, as_array
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE
from tests.models import Function
from tests.parts import need

NUMBERS = (0.05, 128, 0, 255, torch.uint8)


def exported(model: nn.Module, *inputs: torch.Tensor) -> Program:
    return prepare(torch.export.export(model.eval(), inputs), inputs, "model")


def rounded(factor: float) -> nn.Module:
    return Function(lambda x: torch.sin(DEQUANTIZE(QUANTIZE(x, *NUMBERS), *NUMBERS) * factor))


@pytest.mark.parametrize(
    ("factor", "step", "allowed"), [(1000.0, 0.05, True), (0.1, 0.05, False), (1000.0, 0.0, False)]
)
def test_only_what_jumps_in_eager_pytorch_is_allowed_to(factor, step, allowed):
    x = torch.linspace(-4, 4, 64).reshape(1, 64)
    program = exported(rounded(factor), x)
    (name,) = program.units.outputs
    check = OutputCheck(name, (1, 64), 0.15, 0.15, 0.1)
    (result,), notes = allow_unsteady([check], program, (x,), [step])
    assert result.ok is allowed
    assert len(notes) == allowed
    unsteady = f"{name} is quantised and unsteady: in eager PyTorch, too, it moves by"
    assert all(note.startswith(unsteady) for note in notes)


def test_what_is_right_is_not_asked():
    x = torch.ones(1, 4)
    check = OutputCheck("y", (1, 4), 0.0, 0.0, 0.1)
    program = exported(rounded(1.0), x)
    assert allow_unsteady([check], program, (x,), [0.05]) == ((check,), [])


RANKED = Function(lambda x: (x.topk(2, -1)[1], x.argsort(-1, descending=True)))


TIES = torch.tensor([[3.0, 1.0, 3.0, 3.0]])
RANKS = [torch.tensor([[0, 2]]), torch.tensor([[0, 2, 3, 1]])]


def test_places_of_equal_values_are_allowed_others_are_not():
    program = exported(RANKED, TIES)
    first, order = program.units.outputs
    checks = [OutputCheck(name, (1, 2), 1.0, 1.0, 1e-4) for name in (first, order)]
    equal = [torch.tensor([[3, 2]]), torch.tensor([[3, 0, 2, 1]])]
    results, notes = allow_decisions(checks, program, (TIES,), [0.0, 0.0], equal, RANKS)
    assert [result.ok for result in results] == [True, True]
    assert len(notes) == 2 and notes[0].startswith(f"{first} names other places of equal values")
    for wrong in (torch.tensor([[0, 1]]), torch.tensor([[0, 4]]), torch.tensor([[3, 3]])):
        outputs = [wrong, RANKS[1]]
        results, notes = allow_decisions(checks, program, (TIES,), [0.0, 0.0], outputs, RANKS)
        assert (results[0].ok, len(notes)) == (False, 1)


@pytest.mark.slow
def test_files_for_executorch_are_judged_as_runs_are():
    """Other places of equal values fail neither; outputs that differ fail both."""
    need("executorch", "executorch")
    from nnapi_prof.executorch.region_times import agreeing
    from nnapi_prof.executorch.stopwatch import ProgramTiming

    program, steps = exported(RANKED, TIES), [0.0, 0.0]

    def judge(checks, own):
        return allow_ambiguous(checks, program, (TIES,), steps, own, RANKS)[0]

    for places, status in (([[3, 2]], Status.OK), ([[3, 1]], Status.FAILED)):
        timing = ProgramTiming(Status.OK, ((1,),), outputs=(torch.tensor(places), RANKS[1]))
        assert agreeing(timing, program.units.outputs, RANKS, steps, judge).status is status


def camera(image: torch.Tensor, conv: nn.Module) -> torch.Tensor:
    """Bytes of an image, [1, 8, 8, 3], to logits."""
    return conv(image.permute(0, 3, 1, 2).float() / 255)


def classes(image: torch.Tensor, conv: nn.Module) -> torch.Tensor:
    """The same to a map of classes."""
    return camera(image, conv).argmax(1).to(torch.uint8).unsqueeze(1)


def judged(
    model: nn.Module, x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]
) -> OutputCheck:
    """The check of a model's output that was changed."""
    program = exported(model, x)
    steps = [last_step(program, name) for name in program.units.outputs]
    theirs = model(x).detach()
    mine = change(theirs.clone())
    checks = compare(program.units.outputs, [mine.numpy()], [theirs.numpy()], steps=steps)
    (check,), _ = allow_ambiguous(checks, program, (x,), steps, [mine], [theirs])
    return check


def image() -> torch.Tensor:
    return torch.randint(0, 256, (1, 32, 32, 3), dtype=torch.uint8)


def test_a_cameras_bytes_allow_nothing():
    torch.manual_seed(0)

    def noise(y: torch.Tensor) -> torch.Tensor:
        return y + (torch.rand_like(y) - 0.5) * 0.02 * (y.max() - y.min())

    def wrong(y: torch.Tensor) -> torch.Tensor:
        places = torch.randperm(y.numel())[: y.numel() // 100]
        y.view(-1)[places] = (y.view(-1)[places] + 1) % 5
        return y

    logits, chosen = (Function(each, conv=nn.Conv2d(3, 5, 1)) for each in (camera, classes))
    assert not judged(logits, image(), noise).ok
    assert not judged(chosen, image(), wrong).ok
    for model in (logits, chosen):
        assert judged(model, image(), lambda y: y).ok
    assert judged(logits, image(), lambda y: y * (1 + 1e-6)).ok


def test_classes_are_judged_by_what_they_are_chosen_from():
    """Classes 0 and 1 are equal but for 1e-6, class 2 is another."""
    x = torch.rand(1, 1, 4, 4)
    model = Function(lambda x: torch.cat([x, x + 1e-6, x - 1], 1).argmax(1).to(torch.uint8))
    assert judged(model, x, torch.zeros_like).ok
    assert not judged(model, x, lambda y: torch.full_like(y, 2)).ok


def test_whole_numbers_are_judged_by_the_floats_before_them():
    x = torch.tensor([[0.5, 37 / 255 + 1e-8, 0.9]])
    pixels = Function(lambda x: (x * 255).clamp(0, 255).to(torch.uint8))
    assert int(pixels(x)[0, 1]) == 37
    one_less = torch.tensor([[0, 1, 0]], dtype=torch.uint8)
    assert judged(pixels, x, lambda y: y - one_less).ok
    assert not judged(pixels, x, lambda y: y - one_less * 2).ok
    assert not judged(pixels, x, lambda y: y - one_less.roll(1)).ok


def test_floats_are_judged_by_what_rounding_does_to_them():
    torch.manual_seed(0)
    x = torch.randn(1, 400)

    def noise(size: float) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda y: y + (torch.rand_like(y) * 2 - 1) * size * y.abs().max()

    # What is left of two large numbers: float32 gives it three digits.
    cancelling = Function(lambda x: (x + 1e4) * 1.1 - 1.1e4)
    assert judged(cancelling, x, noise(1e-3)).ok
    assert not judged(cancelling, x, noise(0.1)).ok
    assert not judged(nn.Linear(400, 400), x, noise(1e-3)).ok
    steps, edge = Function(torch.round), torch.full((1, 400), 2.2)
    edge[0, 0] = 2.5  # of 400 values the one that lies where rounding decides
    assert judged(steps, edge, lambda y: y + torch.eye(400)[:1]).ok
    assert not judged(steps, edge, lambda y: y + 1.0).ok


def test_the_last_step_is_that_of_the_rounding_nearest_to_an_output():
    def outputs(image: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        integers = QUANTIZE(x, *NUMBERS)
        return image.float() / 255, DEQUANTIZE(integers, *NUMBERS) * 2, integers, x.argmax(1)

    image = torch.zeros(1, 4, dtype=torch.uint8)
    program = exported(Function(outputs), image, torch.rand(1, 4))
    assert [last_step(program, name) for name in program.units.outputs] == [0.0, 0.05, 1.0, 0.0]


def test_half_precision_is_judged_by_its_own_rounding():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to(torch.bfloat16)
    x = torch.randn(1, 64, dtype=torch.bfloat16)
    program = exported(model, x)
    (wide,), theirs = program.module(x), model(x).detach()

    def check(mine: torch.Tensor) -> OutputCheck:
        arrays = ([value.float().numpy()] for value in (mine, theirs))
        checks = compare(program.units.outputs, *arrays)
        (judged_check,), _ = allow_ambiguous(checks, program, (x,), [0.0], [mine], [theirs])
        return judged_check

    assert check(wide.detach()).ok
    assert not check(wide.detach() * 1.05).ok


def checked(actual: object, expected: object, **options: Any) -> OutputCheck:
    (check,) = compare(["y"], [np.asarray(actual)], [np.asarray(expected)], **options)
    return check


def relative(actual: object, expected: object) -> float:
    return checked(actual, expected).relative


def test_the_difference_is_relative_to_the_largest_value() -> None:
    check = checked([1.0, -8.002], [1.0, -8.0])
    assert check.max_abs == pytest.approx(0.002)
    assert check.relative == pytest.approx(0.002 / 8)
    assert not check.ok
    assert checked([1.0, -8.0004], [1.0, -8.0]).ok


@pytest.mark.parametrize("found", [[math.nan, 1.0], [math.inf, 1.0], [[1.0, 1.0]]])
def test_nan_infinity_and_another_shape_never_agree(found: object) -> None:
    assert relative(found, [1.0, 1.0]) == math.inf


def test_equal_specials_agree() -> None:
    assert relative([math.nan, math.inf, 2.0], [math.nan, math.inf, 2.0]) == 0.0
    assert relative([math.inf], [-math.inf]) == math.inf


def test_the_largest_number_in_place_of_infinity_agrees_and_is_told() -> None:
    """NNAPI's arithmetic ends there on phones."""
    most = np.finfo(np.float32).max
    expected = np.array([math.inf, -math.inf, 2.0], np.float32)
    actual = np.array([most, -most, 2.0], np.float32)
    assert relative(actual, expected) == 0.0
    assert relative(-actual, expected) == relative(expected, actual) == math.inf
    (note,) = limit_notes(["x", "y"], [actual, expected], [expected, expected])
    assert note.startswith("2 of 3 values of x are infinite in PyTorch and 3.403e+38 or its ")
    assert limit_notes(["y"], [actual], [actual[:1]]) == []


def test_zeros_and_empty_outputs() -> None:
    assert relative([0.0], [0.0]) == 0.0
    assert relative([1e-9], [0.0]) == math.inf
    assert relative(np.zeros((0, 3)), np.zeros((0, 3))) == 0.0


def test_differences_below_float32s_normal_numbers_are_none() -> None:
    """A device may flush them to zero."""
    expected = np.array([1e-41, -3e-42], np.float32)
    for actual in (expected * np.float32(0.8), np.zeros(2, np.float32)):
        check = checked(actual, expected)
        assert check.ok and check.evidence is Evidence.DENORMAL
    check = checked(np.float32([1e-37]), np.float32([1.05e-37]))
    assert check.ok and check.evidence is Evidence.VALUES
    assert not checked(np.float32([1e-36]), np.float32([1.05e-37])).ok
    assert not checked(expected * np.float32(0.8), expected, tolerance=0).ok  # nothing is allowed


@pytest.mark.parametrize(
    ("wanted", "evidence"),
    [
        (np.zeros((2, 3)), Evidence.ZEROS),
        (np.zeros((), np.int64), Evidence.ZEROS),
        (np.full(4, 0.5), Evidence.CONSTANT),
        (np.full(4, 7), Evidence.CONSTANT),
        (np.array(0.5), Evidence.VALUES),
        (np.array([0.5, 0.5, 0.6]), Evidence.VALUES),
        (np.float32([1e-41, 2e-41]), Evidence.DENORMAL),
        (np.array([np.nan, np.inf]), Evidence.NOT_FINITE),
        (np.array([0.5, np.inf]), Evidence.VALUES),
        (np.zeros((0, 3)), Evidence.EMPTY),
        (np.array([True, False]), Evidence.VALUES),
    ],
)
def test_what_an_output_gives_to_compare(wanted: np.ndarray, evidence: Evidence) -> None:
    check = checked(wanted, wanted)
    assert check.ok and check.evidence is evidence
    assert check.tells == (evidence is Evidence.VALUES) == (not notes_on([check]))


def test_a_missing_output_is_no_agreement() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare(["a", "b"], [np.zeros(1)], [np.zeros(1), np.zeros(1)])


def test_two_steps_of_a_quantised_output_are_allowed() -> None:
    assert checked([1.0, 1.0], [1.0, 0.5], steps=[0.25]).ok
    assert not checked([1.0, 1.1], [1.0, 0.5], steps=[0.25]).ok
    assert not checked([1.0, 0.501], [1.0, 0.5], steps=[0.0]).ok
    assert checked([0.2], [0.0], steps=[0.1]).ok
    beyond = checked([0.3], [0.0], steps=[0.1])
    assert not beyond.ok and beyond.relative == math.inf


def test_both_parts_of_complex_numbers_and_bfloat16_are_compared() -> None:
    theirs = torch.complex(torch.ones(2, 3), torch.ones(2, 3))
    mine = torch.complex(torch.ones(2, 3), -torch.ones(2, 3))
    assert not checked(as_array(mine), as_array(theirs)).ok
    right = checked(as_array(theirs), as_array(theirs))
    assert right.ok and right.shape == (2, 3)
    half = as_array(torch.linspace(0, 1, 8).to(torch.bfloat16))
    assert checked(half, half).ok


def test_integers_must_be_equal_unless_a_tolerance_was_asked_for() -> None:
    """One token of 50,000 is another word, however near its number."""
    mine, theirs = [7, 49_999], [7, 50_000]
    assert not checked(mine, theirs).ok
    assert checked(mine, theirs, integers=1e-3).ok
    assert checked(mine, theirs, steps=[1.0]).ok  # of 8 bits: one step
    assert not checked([True], [False]).ok


def mixed(x):
    """Products that float16 cannot hold, and a sigmoid that is 1 all over."""
    large = x * 1e4
    return torch.sigmoid(large * large)


def test_each_unit_has_its_own_error() -> None:
    program = prepare(Function(mixed), (torch.linspace(0.5, 20, 48).reshape(1, 3, 4, 4),), "mixed")
    units = program.units.units
    result = unit_errors(program, range(len(units)))
    large, larger, last = (result[u] for u in range(3))
    assert large.relative == larger.relative == float("inf")  # beyond 65504
    assert "beyond what float16 holds" in str(large.message)
    assert last.relative == 0.0  # of what eager PyTorch hands it, not of what came before


def test_halves_move_a_convolution_by_a_thousandth_or_less() -> None:
    torch.manual_seed(0)
    program = prepare(nn.Conv2d(3, 8, 3).eval(), (torch.randn(1, 3, 8, 8),), "conv")
    (error,) = unit_errors(program, [0]).values()
    assert 0 < error.relative < 5e-3 and error.message is None
