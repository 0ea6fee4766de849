"""Every lowering at every feature level: refused in the expected words, or right.

Right means: the model contains nothing newer than the level by an independent reading of the facts,
consists of the expected operations, and gives eager PyTorch's numbers when stock PyTorch's NNAPI
runtime executes it on the emulator, whose level is the fourth; test_later_levels runs the others.
"""

import pytest
import torch

from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.convert.registry import ENTRIES
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.nnapi.codes import FeatureLevel
from tests.convert.cases import CASES
from tests.convert.facts_check import broken_rules
from tests.convert.harness import LEVELS, run_region


def quick_at(quick, case, name, level):
    """A case at a level; marked ``slow`` at all but one, for they are thousands."""
    marks = () if level == quick else pytest.mark.slow
    return pytest.param(case, level, id=f"{name}-{level}", marks=marks)


def supported(quick, highest=LEVELS[-1]):
    return [
        quick_at(quick, case, name, level)
        for name, case in CASES.items()
        for level in case.levels
        if level not in case.refused and level <= highest
    ]


def refused(quick):
    return [
        quick_at(quick, case, name, level) for name, case in CASES.items() for level in case.refused
    ]


def expected_operations(case, level):
    """What a case states for the highest level that is not above ``level``."""
    return case.operations.get(max((at for at in case.operations if at <= level), default=0))


@pytest.mark.parametrize(("case", "level"), supported(LEVELS[0], FeatureLevel.LEVEL_7))
def test_the_model_holds_at_its_level(case, level):
    region = convert_region(case.program, [0], level)
    model = region.model
    assert broken_rules(model, level) == []
    expected = expected_operations(case, level)
    assert expected is None or " ".join(region.operations) == expected
    written = {o for operation in model.operations for o in operation.outputs}
    valued = {value.operand for value in model.values}
    for operation in model.operations:
        assert set(operation.inputs) <= written | valued | set(model.inputs)
    assert set(model.outputs) <= written
    assert not written & (valued | set(model.inputs))


@pytest.mark.parametrize(("case", "level"), refused(LEVELS[0]))
def test_a_refusal_says_why(case, level):
    with pytest.raises(UnsupportedOp, match=case.refused[level]) as refusal:
        convert_region(case.program, [0], level)
    assert "cannot run on NNAPI: " in str(refusal.value)


@pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in CASES.items()])
def test_a_dry_run_agrees(case):
    program = case.program
    for level in case.levels:
        answer = why_not(program, 0, level)
        assert (answer is None) == (level not in case.refused)
        assert why_not(program, 0, level) is answer


@pytest.mark.parametrize(("case", "level"), supported(LEVELS[-1]))
def test_numbers_are_eager_pytorchs(case, level, nnapi_library):
    program = case.program
    region = convert_region(program, [0], level)
    names = program.units.inputs
    (result,) = run_region(region, dict(zip(names, case.inputs, strict=True)))
    expected = case.function(*case.inputs)
    torch.testing.assert_close(result, expected, rtol=case.rtol, atol=case.atol)


@pytest.mark.slow
def test_every_lowering_has_a_case_that_converts():
    called = {
        node.target
        for case in CASES.values()
        if len(case.refused) < len(case.levels)
        for node in case.program.module.graph.nodes
        if node.op == "call_function"
    }
    assert set(ENTRIES) - called == set()
