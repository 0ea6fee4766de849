"""Outputs that move far by one rounding are allowed to; others, and those of floats, are not."""

import pytest
import torch
from torch import nn

from nnapi_prof.costs.measurement import Status
from nnapi_prof.execution.host import allow_ties, allow_unsteady, excused
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.quantisation import DEQUANTIZE, QUANTIZE

NUMBERS = (0.05, 128, 0, 255, torch.uint8)


class Rounded(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(DEQUANTIZE(QUANTIZE(x, *NUMBERS), *NUMBERS) * self.factor)


@pytest.mark.parametrize(
    ("factor", "step", "allowed"), [(1000.0, 0.05, True), (0.1, 0.05, False), (1000.0, 0.0, False)]
)
def test_only_what_jumps_in_eager_pytorch_is_allowed_to(
    factor: float, step: float, allowed: bool
) -> None:
    x = torch.linspace(-4, 4, 64).reshape(1, 64)
    program = prepare(torch.export.export(Rounded(factor), (x,)), (x,), "rounded")
    check = OutputCheck("y", (1, 64), 0.15, 0.15, 0.1)
    (result,), notes = allow_unsteady([check], program, (x,), [step])
    assert result.ok is allowed
    assert len(notes) == allowed
    if allowed:
        assert notes[0].startswith(
            "y is quantised and unsteady: in eager PyTorch, too, it moves by"
        )


def test_what_is_right_is_not_asked() -> None:
    x = torch.ones(1, 4)
    program = prepare(torch.export.export(Rounded(1.0), (x,)), (x,), "rounded")
    check = OutputCheck("y", (1, 4), 0.0, 0.0, 0.1)
    assert allow_unsteady([check], program, (x,), [0.05]) == ((check,), [])


class Ranked(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.topk(2, -1)[1], x.argsort(-1, descending=True)


def test_places_of_equal_values_are_allowed_others_are_not() -> None:
    x = torch.tensor([[3.0, 1.0, 3.0, 3.0]])
    program = prepare(torch.export.export(Ranked(), (x,)), (x,), "ranked")
    first, order = program.units.outputs
    checks = [OutputCheck(name, (1, 2), 1.0, 1.0, 1e-4) for name in (first, order)]
    expected = [torch.tensor([[0, 2]]), torch.tensor([[0, 2, 3, 1]])]
    equal = [torch.tensor([[3, 2]]), torch.tensor([[3, 0, 2, 1]])]
    results, notes = allow_ties(checks, program, (x,), equal, expected)
    assert [result.ok for result in results] == [True, True]
    assert len(notes) == 2 and notes[0].startswith(f"{first} names other places of equal values")
    for wrong in (torch.tensor([[0, 1]]), torch.tensor([[0, 4]]), torch.tensor([[3, 3]])):
        results, notes = allow_ties(checks, program, (x,), [wrong, expected[1]], expected)
        assert (results[0].ok, len(notes)) == (False, 1)


def test_files_for_executorch_are_judged_as_runs_are() -> None:
    """Other places of equal values fail neither; outputs that differ fail both."""
    pytest.importorskip("executorch", reason="the extra executorch is not installed")
    from nnapi_prof.executorch.region_times import agreeing
    from nnapi_prof.executorch.stopwatch import Timing

    x = torch.tensor([[3.0, 1.0, 3.0, 3.0]])
    program = prepare(torch.export.export(Ranked(), (x,)), (x,), "ranked")
    expected = [torch.tensor([[0, 2]]), torch.tensor([[0, 2, 3, 1]])]
    for places, status in (([[3, 2]], Status.OK), ([[3, 1]], Status.FAILED)):
        timing = Timing(Status.OK, ((1,),), outputs=(torch.tensor(places), expected[1]))
        judged = agreeing(
            timing,
            program.units.outputs,
            expected,
            [0.0, 0.0],
            lambda checks, own: excused(checks, program, (x,), [0.0, 0.0], own, expected)[0],
        )
        assert judged.status is status
