"""The 122 ATen rows of the comparison with other converters, each converted whole and run."""

import pytest
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.errors import NnapiProfError, UnsupportedOp
from nnapi_prof.frontend import prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.convert.coverage import ALL_ROWS
from tests.convert.harness import run_region

BEST_PEER = 83
"""Rows that the best of the compared converters has in full."""


def converted(row):
    """The row as one NNAPI model: program, region and the model it came from."""
    module, inputs = row.make()
    with quiet_torch():
        traced = torch.jit.trace(module, inputs, check_trace=False)
    program = prepare(traced, inputs, "row")
    units = range(len(program.units.units))
    return program, convert_region(program, units, row.level), module, inputs


@pytest.mark.parametrize("name", [name for name, row in ALL_ROWS.items() if row.missing is None])
def test_row(name, nnapi_library):
    row = ALL_ROWS[name]
    program, region, module, inputs = converted(row)
    with torch.inference_mode():
        expected = module(*(value.clone() for value in inputs))
    expected = expected if isinstance(expected, tuple) else (expected,)
    values = dict(zip(program.units.inputs, inputs, strict=True))
    actual = dict(zip(region.outputs, run_region(region, values), strict=True))
    for output, expected_values in zip(program.units.outputs, expected, strict=True):
        assert actual[output].dtype == expected_values.dtype
        torch.testing.assert_close(
            actual[output], expected_values, rtol=row.tolerance, atol=row.tolerance
        )


@pytest.mark.parametrize("name", [name for name, row in ALL_ROWS.items() if row.missing])
def test_what_is_missing_is_refused(name):
    row = ALL_ROWS[name]
    with pytest.raises((UnsupportedOp, NnapiProfError), match=row.missing):
        converted(row)


def test_more_rows_than_any_peer():
    assert len(ALL_ROWS) == 122
    assert sum(row.missing is None for row in ALL_ROWS.values()) >= 105 > BEST_PEER
