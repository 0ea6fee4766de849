"""Open sizes with names: equal ones across dimensions and inputs."""

import pytest
import torch
from torch import nn

from nnapi_prof.convert.dynamic_shapes import FlexibleModel, flexible_region
from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend.inputs import InputSpec, parse_input_spec, parse_input_specs
from tests.convert.dynamic_shapes import networks
from tests.convert.dynamic_shapes.test_stock import agrees, converted
from tests.convert.harness import whole


class Squares(nn.Module):
    """Rows against columns: runs on squares alone."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)

    def forward(self, x):
        y = self.conv(x)
        return y + y.transpose(2, 3)


class Pair(nn.Module):
    """Two sequences of one length."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x, y):
        return self.linear(x) * y


@pytest.mark.parametrize(
    ("texts", "shapes", "names"),
    [
        (["1x3x?nx?n"], [(1, 3, 224, 224)], [("n", "n")]),
        (["1x3x?n=64x?n"], [(1, 3, 64, 64)], [("n", "n")]),
        (["?b=2x?nx8", "?bx8x?n=5:int64"], [(2, 5, 8), (2, 8, 5)], [("b", "n"), ("b", "n")]),
        (["?x?Len"], [(1, 224)], [("", "Len")]),
        (["?x?=5"], [(1, 5)], [()]),
    ],
)
def test_specs(texts, shapes, names):
    specs = parse_input_specs(texts)
    assert [spec.shape for spec in specs] == shapes
    assert [spec.names for spec in specs] == names
    assert parse_input_specs(list(map(str, specs))) == specs


def test_how_a_spec_is_said():
    assert str(parse_input_spec("1x3x?n=64x?n")) == "1x3x?n=64x?n=64"
    assert str(parse_input_spec("?bx?=7:int64")) == "?b=1x?=7:int64"
    assert parse_input_spec("1x?n=5").closed == InputSpec((1, 5))


def test_two_examples_of_one_name():
    with pytest.raises(InputSpecError, match="the size n is 5 here and 4 elsewhere: sizes of one"):
        parse_input_specs(["1x?n=4", "1x?n=5"])


@pytest.mark.parametrize("text", ["1x?2", "1x?xx4", "1x?n=", "1x?n m", "1xn"])
def test_what_is_no_spec(text):
    with pytest.raises(InputSpecError, match="not a shape"):
        parse_input_spec(text)


def test_equal_sizes_are_one(tmp_path):
    path = networks.saved(Squares(), tmp_path / "model.pt", torch.zeros(1, 3, 32, 32))
    model = FlexibleModel(path, [parse_input_spec("1x3x?n=32x?n")])
    template = flexible_region(model, 30)
    (ranges,) = template.opens
    assert (ranges.input, ranges.dim, ranges.equal) == (0, 2, ((0, 3),))
    for size in (8, 33, 60):
        assert template.fill([size]) == whole(model.program([size]))


def test_unnamed_they_do_not_run(tmp_path):
    path = networks.saved(Squares(), tmp_path / "model.pt", torch.zeros(1, 3, 32, 32))
    model = FlexibleModel(path, [parse_input_spec("1x3x?=32x?=32")])
    with pytest.raises(InputSpecError, match="cannot be left open"):
        flexible_region(model, 30)


def test_a_square_in_stock_pytorch(tmp_path, nnapi_library):
    module, original = converted(tmp_path, Squares, "1x3x?n=32x?n=32")
    for size in (32, 9, 50, 32):
        agrees(module, original, (1, 3, size, size))
    expected = "dimension 3 of input 0 is 16, dimension 2 of input 0 is 8: equal ones are required"
    with pytest.raises(torch.jit.Error, match=expected):
        module(torch.zeros(1, 3, 8, 16))
    agrees(module, original, (1, 3, 9, 9))


def test_two_inputs_in_stock_pytorch(tmp_path, nnapi_library):
    module, original = converted(tmp_path, Pair, "?b=2x?n=5x6 ?b=2x?n=5x4")
    for batch, length in ((2, 5), (1, 9), (3, 4)):
        agrees(module, original, (batch, length, 6), (batch, length, 4))
    with pytest.raises(torch.jit.Error, match="dimension 1 of input 1 is 7, dimension 1 of input"):
        module(torch.zeros(2, 5, 6), torch.zeros(2, 7, 4))


class Joined(nn.Module):
    def forward(self, a, b):
        return torch.cat([a, b], 1), (a + b[:, :1]).relu()


def test_free_sizes_of_two_inputs_that_must_be_equal(tmp_path, nnapi_library):
    """PyTorch's converter takes ``zeros(0, 0, 0, 0)`` for both inputs of a concatenation."""
    spec = "?=2x?=5x?=6x?=7"
    module, original = converted(tmp_path, Joined, f"{spec} {spec}")
    agrees(module, original, (1, 2, 3, 4), (1, 4, 3, 4))
    agrees(module, original, (2, 5, 9, 7), (2, 2, 9, 7))
    expected = "dimension 3 of input 1 is 5, dimension 3 of input 0 is 4: equal ones are required"
    with pytest.raises(torch.jit.Error, match=expected):
        module(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 5))
