"""The 122 ATen rows of the comparison with other converters, each converted whole and run."""

import pytest

from nnapi_prof.errors import NnapiProfError
from nnapi_prof.frontend import prepare
from tests.convert.coverage import ALL_ROWS
from tests.convert.harness import agree, traced, whole

BEST_PEER = 83
"""Rows that the best of the compared converters has in full."""


@pytest.mark.parametrize("name", ALL_ROWS)
def test_row(name, nnapi_library):
    row = ALL_ROWS[name]
    module, inputs = row.make()
    model = traced(module, inputs)
    if row.missing:
        with pytest.raises(NnapiProfError, match=row.missing):
            whole(prepare(model, inputs, name), row.level)
    else:
        agree(model, inputs, module, row.tolerance, row.level)


def test_more_rows_than_any_peer():
    assert len(ALL_ROWS) == 122
    assert sum(row.missing is None for row in ALL_ROWS.values()) >= 105 > BEST_PEER
