"""A template filled in is what converting at those sizes gives, bit for bit; or it is refused. Its
expressions say what they give, and those that are found are the ones looked for."""

import math
import random
import re
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from nnapi_prof.convert.dynamic_shapes import FlexibleModel, flexible_region
from nnapi_prof.convert.dynamic_shapes.template import (
    Expression,
    Floor,
    floors_through,
    with_shared_constants,
)
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import serialize
from nnapi_prof.errors import InputSpecError, UnsupportedOp
from nnapi_prof.frontend.inputs import InputSpec, parse_input_spec
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.convert.cases import CASES
from tests.convert.coverage import ALL_ROWS
from tests.convert.dynamic_shapes import networks
from tests.convert.harness import traced, whole

MODELS = {
    "halved": (networks.halved, "1x3x?=48x?=64", True),
    "ceiling pools": (networks.ceiling_pools, "1x3x?x?", True),
    "batch": (networks.flattened, "?=4x3x16x16", True),
}


@pytest.fixture(scope="module", params=MODELS)
def template(request, tmp_path_factory):
    model = networks.flexible(tmp_path_factory.mktemp("model"), *MODELS[request.param])
    return request.param, model, flexible_region(model, 30)


def drawn_sizes(result, draw):
    """Sizes within the ranges of a template."""
    return [
        draw.randrange(
            ranges.least + (ranges.example - ranges.least) % ranges.step,
            min(ranges.most, 3 * ranges.example + 20) + 1,
            ranges.step,
        )
        for ranges in result.opens
    ]


def test_filled_in_it_is_the_conversion_at_these_sizes(template):
    _, model, result = template
    draw = random.Random(7)
    for _ in range(8):
        sizes = drawn_sizes(result, draw)
        assert result.fill(sizes) == whole(model.program(sizes))


def test_the_range_reaches_down_to_small_sizes(template):
    name, _, result = template
    assert [(ranges.step, ranges.least) for ranges in result.opens] == {
        "halved": [(2, 2), (2, 2)],
        "ceiling pools": [(1, 5), (1, 13)],
        "batch": [(1, 1)],
    }[name]
    assert all(ranges.most >= 9 * ranges.example for ranges in result.opens)


def test_sizes_that_it_does_not_hold_for_are_refused(tmp_path):
    result = flexible_region(networks.flexible(tmp_path, *MODELS["halved"]), 30)
    with pytest.raises(InputSpecError, match=r"dimension 2 of input 0 is 51, multiples of 2 are"):
        result.fill([51, 64])
    with pytest.raises(InputSpecError, match=r"dimension 3 of input 0 is 9998, 2 to \d+ are"):
        result.fill([48, 9998])


def refusal(model):
    with pytest.raises(InputSpecError) as caught:
        flexible_region(model, 30)
    return str(caught.value)


def test_a_linear_layer_over_all_pixels_is_refused(tmp_path):
    message = refusal(networks.flexible(tmp_path, networks.flattened, "1x3x?=16x?=16", True))
    assert message.startswith(
        "model.pt: inputs='1x3x?=16x?=16': these sizes cannot be left open: with 1x3x976x16 it "
        "does not run: "
    )
    assert re.search(r"\[1, 15616\] X \[256, 3\].* \(aten.linear.default, .*:\d+\); state", message)


def test_a_float_that_depends_on_sizes_is_refused(tmp_path):
    message = refusal(networks.flexible(tmp_path, networks.Averages, "1x3x?x?", False))
    assert "the constant TENSOR_FLOAT32 of MUL for mul_1 (" in message
    assert message.endswith("has another value; state fixed sizes")


def test_what_does_not_convert_is_refused_as_ever(tmp_path):
    model = networks.flexible(tmp_path, networks.unet, "1x3x?=16x?=16", True)
    with pytest.raises(UnsupportedOp, match=r"clone.* TRANSPOSE exists from level 2"):
        flexible_region(model, 27)


def exported(folder, dynamic, spec):
    halves = nn.Conv2d(3, 4, 3, 2, 1), nn.Hardswish(), nn.Conv2d(4, 4, 3, 2, 1)
    model, x = nn.Sequential(*halves, nn.AdaptiveAvgPool2d(1)), torch.randn(1, 3, 64, 64)
    program = torch.export.export(model, (x,), dynamic_shapes=(dynamic,))
    torch.export.save(program, folder / "model.pt2")
    return FlexibleModel(folder / "model.pt2", [parse_input_spec(spec)])


@pytest.mark.slow
def test_exported_programs(tmp_path):
    height, width = Dim("height", min=16, max=256), Dim("width", min=16, max=512)
    model = exported(tmp_path, {2: height, 3: width}, "1x3x?=64x?=96")
    result = flexible_region(model, 30)
    assert [(ranges.least, ranges.most) for ranges in result.opens] == [(16, 192), (16, 224)]
    assert result.fill([61, 77]) == whole(model.program([61, 77]))


def test_an_export_for_multiples(tmp_path):
    side = Dim("side", min=3, max=200)
    model = exported(tmp_path, {2: 4 * side}, "1x3x?=64x64")
    (ranges,) = flexible_region(model, 30).opens
    assert (ranges.step, ranges.least) == (4, 12)


def test_a_size_that_an_export_fixed(tmp_path):
    with pytest.raises(InputSpecError, match=r"was exported with 64 as dimension 3 of input 0"):
        exported(tmp_path, {2: Dim("height", min=16, max=256)}, "1x3x?=64x?=64")


def test_sizes_that_an_export_has_equal(tmp_path):
    side = Dim("side", min=16, max=4096)
    model = exported(tmp_path, {2: side, 3: side}, "1x3x?=64x?=64")
    assert "was exported for equal sizes" in refusal(model)


@pytest.mark.slow
def test_sharing_constants_later_is_sharing_them_at_once():
    compared = 0
    for case in list(CASES.values())[::5]:
        if 30 in case.refused:
            continue
        apart = convert_region(case.program, [0], 30, shared=False).model
        together = convert_region(case.program, [0], 30)
        assert serialize(with_shared_constants(apart)) == together.serialized
        compared += 1
    assert compared > 100


def takes_an_image(row):
    if row.missing is not None:
        return False
    with quiet_torch():
        _, inputs = row.make()
    return len(inputs) == 1 and inputs[0].dim() == 4


IMAGES = [name for name, row in ALL_ROWS.items() if takes_an_image(row)]
REFUSED = {
    "view": "does not run: shape",  # the model states sizes
    "flip": "its operations have other arguments",  # one for each column
    "pad reflect": "its operations have other arguments",
    "upsample_bicubic2d / grid_sampler": "has another value",  # matrices of the sizes
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_row(name, tmp_path):
    """Every operator of the coverage table with open images: filled in right, or refused."""
    row = ALL_ROWS[name]
    with quiet_torch():
        module, (x,) = row.make()
        torch.jit.save(traced(module, (x,)), str(tmp_path / "row.pt"))
    spec = InputSpec(tuple(x.shape), str(x.dtype).removeprefix("torch."), (0, 2, 3))
    model = FlexibleModel(tmp_path / "row.pt", [spec])
    if name in REFUSED:
        with pytest.raises((InputSpecError, UnsupportedOp), match=REFUSED[name]):
            flexible_region(model, row.level)
        return
    template = flexible_region(model, row.level)
    sizes = drawn_sizes(template, random.Random(name))
    program = model.program(sizes)
    units = range(len(program.units.units))
    assert template.fill(sizes) == convert_region(program, units, row.level, for_stock=True)


floors = st.builds(
    Floor,
    st.integers(0, 1),
    st.integers(-3, 8),
    st.integers(0, 40),
    st.integers(1, 32),
    st.integers(-9, 9),
)
expressions = st.builds(
    Expression,
    st.integers(-9, 9),
    st.lists(
        st.tuples(st.integers(-3, 3), st.lists(floors, min_size=1, max_size=2).map(tuple)),
        max_size=3,
    ).map(tuple),
)
sizes = st.tuples(st.integers(1, 3000), st.integers(1, 3000))


@given(expressions, sizes)
def test_the_text_gives_the_value(expression, given_sizes):
    text = expression.text(["h", "w"])
    assert eval(text, {"h": given_sizes[0], "w": given_sizes[1]}) == expression.at(given_sizes)


@given(expressions, expressions, sizes)
def test_sums(a, b, given_sizes):
    assert a.plus(b).at(given_sizes) == a.at(given_sizes) + b.at(given_sizes)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=3
    ),
    st.integers(1, 3),
)
def test_strided_windows_one_after_another_are_one_quotient(windows, factor):
    """Kernel, padding and stride of each, then a resize by a factor."""
    period = math.prod(stride for _, _, stride in windows)

    def out(size):
        for kernel, padding, stride in windows:
            size = (size + 2 * padding - kernel) // stride + 1
        return factor * size

    seen = range(100, 101 + period)
    slope = Fraction(out(100 + period) - out(100), period)
    result = floors_through(0, seen, [out(size) for size in seen], slope, period)
    assert result
    assert all(result[0].of(size) == out(size) for size in range(50, 400))
