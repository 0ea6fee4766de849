"""Optional arguments that are left out: an LSTM's peepholes and norms, for one."""

import pytest

from nnapi_prof.bundle.torchscript import stock_module
from nnapi_prof.convert.export_json import RegionDescription, to_json
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import NnapiProfError
from nnapi_prof.graph.grouping import macs
from tests.convert.cases.recurrent import RECURRENT
from tests.convert.region_reader import from_json

CASE = RECURRENT["lstm, both directions, outputs"]


def test_they_have_no_bytes():
    model = convert_region(CASE.program, [0], 29).model
    *_, operation = model.operations  # after copies of the states
    left_out = {value.operand for value in model.values if not value.source}
    # peepholes and projections of both directions, auxiliary inputs and weights, norms
    assert sum(operand in left_out for operand in operation.inputs) == 2 * 5 + 1 + 8 + 8
    assert all(0 in model.operands[operand].dims for operand in left_out)


def test_json_keeps_them():
    region = convert_region(CASE.program, [0], 29)
    text, weights = to_json(RegionDescription(region), "lstm.weights")
    assert from_json(text, b"".join(weights.chunks())).region == region


def test_stock_pytorch_cannot_leave_them_out():
    region = convert_region(CASE.program, [0], 29)
    with pytest.raises(NnapiProfError, match="leave out optional arguments"):
        stock_module(CASE.program.units, region, {})


def test_multiply_accumulates_count_recurrent_weights():
    (node,) = (n for n in CASE.program.module.graph.nodes if "lstm" in str(n.target))
    assert macs(node) == 3 * 2 * 2 * (20 * 4 + 20 * 5)
