"""Every lowering at every feature level: refused in the expected words, or right.

Right means: the model contains nothing newer than the level by an independent reading of the facts,
consists of the expected operations, and gives eager PyTorch's numbers when stock PyTorch's NNAPI
runtime executes it on the emulator, whose level is the fourth; test_later_levels runs the others.
"""

import pytest
import torch
from torch import fx

from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.convert.registry import ENTRIES
from nnapi_prof.costs.model.forms import ProductForm
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.nnapi.codes import FeatureLevel
from tests.convert.cases import CASES
from tests.convert.cases.formulas import VARIANTS
from tests.convert.harness import LEVELS, broken_rules, run_region

CASES_BY_NAME = [pytest.param(case, id=name) for name, case in CASES.items()]


def supported(case, config):
    """The levels at which a case converts; with ``--quick`` the lowest and the highest that runs
    here."""
    levels = [n for n in case.levels if n not in case.refused and n <= FeatureLevel.LEVEL_7]
    if config.getoption("--quick"):
        levels = sorted({*levels[:1], *[n for n in levels if n <= LEVELS[-1]][-1:]})
    return levels


def expected_operations(case, level):
    """What a case states for the highest level that is not above ``level``."""
    return case.operations.get(max((at for at in case.operations if at <= level), default=0))


def check_model(case, region, level):
    """The region's model is one of its level, of the operations expected, and whole."""
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


def check_numbers(case, region, models, nnapi=None):
    """They are PyTorch's. ``models`` ran already: the emulator runs the same one the same way."""
    content = (region.serialized, region.buffers, region.input_types, region.output_types)
    if content in models:
        return
    models.add(content)
    inputs = dict(zip(case.program.units.inputs, case.inputs, strict=True))
    (result,) = run_region(region, inputs, nnapi)
    expected = case.function(*case.inputs)
    torch.testing.assert_close(result, expected, rtol=case.rtol, atol=case.atol)


@pytest.mark.parametrize("case", CASES_BY_NAME)
def test_right_at_every_level(case, nnapi_library, pytestconfig):
    """Its export is the costly part: refusals and dry runs are checked with it."""
    check_refusals(case, case.program)
    models = set()
    for level in supported(case, pytestconfig):
        region = convert_region(case.program, [0], level)
        check_model(case, region, level)
        if level <= LEVELS[-1]:
            check_numbers(case, region, models)


PRODUCTS = [
    "matmul of two batch axes",
    "matmul, batches broadcast on both sides",
    "matmul, batches crossed",
    "baddbmm",
    "attention",
]


@pytest.mark.parametrize(
    ("form", "operations"),
    [
        (ProductForm.PAIRS, {"STRIDED_SLICE"}),
        (ProductForm.GROUPS, {"GROUPED_CONV_2D"}),
        (ProductForm.SUMS, set()),
    ],
)
def test_every_form_of_a_product_is_right(form, operations, nnapi_library):
    for name in PRODUCTS:
        region = convert_region(CASES[name].program, [0], FeatureLevel.LEVEL_4, ((0, form),))
        assert {"GROUPED_CONV_2D", "STRIDED_SLICE"} & set(region.operations) == operations
        check_numbers(CASES[name], region, set())


def check_refusals(case, program):
    """A dry run refuses the levels that a case states; the conversion does, too, and says why."""
    for level in case.levels:
        answer = why_not(program, 0, level)
        assert (answer is None) == (level not in case.refused)
        assert why_not(program, 0, level) is answer
    for level, words in case.refused.items():
        with pytest.raises(UnsupportedOp, match=words) as refusal:
            convert_region(program, [0], level)
        assert "cannot run on NNAPI: " in str(refusal.value)


@pytest.mark.slow
def test_every_lowering_has_a_case_that_converts():
    called = {
        node.target
        for name, case in CASES.items()
        if name not in VARIANTS or name.endswith(", rank 1")  # one of each function
        if len(case.refused) < len(case.levels)
        for node in fx.symbolic_trace(case.function).graph.nodes
        if node.op == "call_function"
    }
    assert set(ENTRIES) - called == set()
