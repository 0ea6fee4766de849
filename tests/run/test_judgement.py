"""What eager PyTorch leaves open is allowed, measured on the model; all else is an error."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from nnapi_prof.costs.measurement import Status
from nnapi_prof.execution.compare import compare
from nnapi_prof.execution.judgement import (
    allow_ambiguous,
    allow_decisions,
    allow_unsteady,
    last_step,
)
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.program import Program
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
