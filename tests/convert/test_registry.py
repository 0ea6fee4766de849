"""The registry of lowerings and the helpers that every lowering stands on."""

import operator

import pytest

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.ops.activation import silu
from nnapi_prof.convert.registry import ENTRIES, keeps_order, logical_axes, lowers, memory_axis
from nnapi_prof.errors import UnsupportedOp
from nnapi_prof.graph import DimOrder
from tests.convert.harness import aten, image, program_of


def test_a_second_registration_names_the_first_owner():
    with pytest.raises(ValueError, match=r"aten.silu.default is lowered by .*activation.silu"):
        lowers(aten.lgamma.default, aten.silu.default)(silu)
    assert aten.lgamma.default not in ENTRIES


def test_every_lowering_says_what_it_does():
    assert all(lowerer.__doc__ for lowerer in ENTRIES.values())


def test_axes_of_channels_last():
    order = DimOrder.CHANNELS_LAST
    shape = ("N", "C", "H", "W")
    memory = [shape[axis] for axis in logical_axes(order, 4)]
    assert memory == ["N", "H", "W", "C"]
    assert [memory[memory_axis(order, axis)] for axis in range(4)] == list(shape)
    assert memory_axis(DimOrder.CONTIGUOUS, 2) == 2


@pytest.mark.parametrize(
    ("shape", "permutation", "kept"),
    [
        ((2, 1, 1, 3), (0, 2, 3, 1), True),
        ((2, 3, 1, 1), (0, 2, 3, 1), True),
        ((2, 1, 4, 5), (0, 2, 3, 1), True),
        ((2, 3, 4, 1), (0, 2, 3, 1), False),
        ((1, 2), (1, 0), True),
        ((2, 2), (1, 0), False),
    ],
)
def test_moving_single_dimensions_moves_no_element(shape, permutation, kept):
    assert keeps_order(shape, permutation) is kept


def test_a_call_that_is_no_aten_operator_is_refused():
    program = program_of(lambda x: operator.add(x, 1), [image(2)])
    with pytest.raises(UnsupportedOp, match="add: add cannot run on NNAPI: NNAPI has no such"):
        convert_region(program, [0], 30)
