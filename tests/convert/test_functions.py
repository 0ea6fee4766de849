"""Functions whose element type, memory, shape or state is the hard part, by both ways in:
TorchScript and an export. What converts is right, also on values that no tracing saw."""

import io
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

from nnapi_prof.api.convert import convert_model
from nnapi_prof.errors import InputSpecError, NnapiProfError
from nnapi_prof.frontend import load, prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.convert.coverage.rows import Function, numbers
from tests.convert.harness import agree, run_whole, traced, whole

INTEGERS = torch.tensor([3, -5, 9, 0])
BYTES = torch.tensor([3, 200, 255, 0], dtype=torch.uint8)
NUMBER = torch.tensor(1.5)
X = numbers(3, 4)
IMAGE = numbers(3, 8, 6)
"""One image alone, without a batch."""


def assigned(x, value):
    y = x + 0
    y[:, 1:] = value
    return y


FUNCTIONS = {
    # Python numbers are tensors in a trace, with no say in the result's type but for their kind.
    "integers and float numbers": (lambda x: (x / 2.5, x + 2.5, 2.5 - x, x * 0.5), INTEGERS),
    "int32 and float numbers": (lambda x: (x / 2.5, x * 1.5, x + 1), INTEGERS.int()),
    "one number and others": (lambda x: (x / 2.5, x + 2.5, x * 2, 1 - x), NUMBER),
    "a sum and a number": (lambda x: x / (x.sum() * 2.5), X),
    "truth values and a number": (lambda x: (x > 0) * 2.5, X),
    "a range and numbers": (lambda x: x * ((torch.arange(x.shape[1]) + 0.5) / 3), X),
    "a choice of a number": (lambda x: torch.where(x > 0, 2.5, x), INTEGERS),
    "bytes doubled as floats": (lambda x, y: torch.add(x, y, alpha=2), numbers(4), BYTES),
    "bytes from a number": (lambda x: 2.5 - x, BYTES),
    "no NaN among integers": (lambda x: torch.nan_to_num(x) * 2, INTEGERS),
    "integers rounded": (lambda x: x.floor() + torch.round(x), INTEGERS),
    "integers between bounds": (lambda x: F.hardtanh(x, -2.5, 3.5), INTEGERS),
    "count of all": (torch.count_nonzero, X),
    "integers assigned to floats": (assigned, X, torch.tensor([[1, 2, 3]] * 3)),
    "a number assigned": (assigned, X, NUMBER),
    "part of a diagonal": (lambda x: torch.diagonal(x, offset=2), numbers(5, 3)),
    "max_pool2d of one image": (lambda x: F.max_pool2d(x, 2), IMAGE),
    "avg_pool2d of one image": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    "adaptive averages of one image": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), IMAGE),
    "adaptive maxima of one image": (lambda x: F.adaptive_max_pool2d(x, 2), IMAGE),
    "adaptive maxima of one line": (lambda x: F.adaptive_max_pool1d(x, 2), X),
    "cosine along an axis that broadcasts": (
        lambda x, y: F.cosine_similarity(x, y, dim=-2),
        *(numbers(1, 2, 3), numbers(2, 1, 3)),
    ),
    "cosine of other ranks": (F.cosine_similarity, numbers(2, 3), numbers(2, 4, 3)[:, :1]),
    "a linear layer of one output": (F.linear, X, numbers(4)),
    "places from the end": (
        lambda x, i: torch.take_along_dim(x, i, 1),
        *(X, torch.tensor([[-1, 2], [0, -4], [1, 1]])),
    ),
}


def other_values(x):
    """The same values in other places, so that indices stay in their range."""
    return x.flatten().roll(1).reshape(x.shape)


@pytest.mark.parametrize("way", ["saved", "exported"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_types_shapes_and_numbers(name, way, nnapi_library):
    function, *inputs = FUNCTIONS[name]
    module = Function(function)
    with quiet_torch():
        if way == "saved":
            file = io.BytesIO()
            torch.jit.save(traced(module, tuple(inputs)), file)
            file.seek(0)
            model = torch.jit.load(file)
        else:
            model = torch.export.export(module, tuple(inputs))
    others = [other_values(x) for x in inputs]
    actual = run_whole(prepare(model, inputs, "function"), others)
    torch.testing.assert_close(actual, tree_leaves(module(*others)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [lambda x: x, lambda x: (x.detach(), torch.ones(2))])
def test_a_model_that_computes_nothing_is_refused(function):
    with pytest.raises(NnapiProfError, match=r"computes nothing: .* NNAPI has nothing to run"):
        convert_model(torch.export.export(Function(function), (X,)), (X,))


def test_an_export_runs_on_the_inputs_that_are_given():
    places = torch.tensor([0])  # random ones, of 0 and 1, would not fit
    picked = Function(lambda x, i: x.index_select(0, i))
    program = torch.export.export(picked, (numbers(1, 4), places))
    assert prepare(program, (numbers(1, 4), places), "picked").example_inputs[1] is places


def test_a_file_runs_on_the_inputs_of_its_export(tmp_path):
    inputs = (torch.eye(3), torch.tensor([0, 0]))
    program = torch.export.export(Function(lambda x, i: torch.linalg.cholesky(x)[i]), inputs)
    torch.export.save(program, tmp_path / "root.pt2")
    for ours, example in zip(load(tmp_path / "root.pt2").example_inputs, inputs, strict=True):
        assert torch.equal(ours, example)
    program.example_inputs = None
    torch.export.save(program, tmp_path / "root.pt2")
    with pytest.raises(InputSpecError, match=r"does not run on the input 3x3, 2:int64: .*positive"):
        load(tmp_path / "root.pt2")


def test_what_has_no_shape_without_data_is_refused_in_a_sentence():
    cut = Function(lambda x, i: torch.tensor_split(x, i)[0].sum())
    inputs = (X, torch.tensor([1, 2]))
    with quiet_torch():
        program = torch.export.export(cut, inputs)
    with pytest.raises(NnapiProfError, match=r"cannot become a graph.*tensor_split"):
        prepare(program, inputs, "cut")


V = numbers(3, 5)
TIES = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
WHOLE = torch.tensor([[-7, -4, -3, -1], [1, 2, 5, 8]])
OTHERS = torch.tensor([[3, -3, 2, 5], [-2, 3, -5, 3]])
MASK = V > 0
BYTES = torch.randint(0, 256, (1, 6, 6, 3), dtype=torch.uint8, generator=torch.manual_seed(0))
FILTERS = numbers(4, 3, 3, 3)
PLACES = torch.tensor([[0, 1], [2, 3], [4, 0]])
EQUAL = torch.tensor([2, 0, 2])
BOUNDS, TURNS = torch.tensor([-1.0, 0.0, 1.0]), numbers(3, 2, 3)


def input_written(x):
    y = x[:, 1:]
    y += 1
    return x * 1


def part_of_a_line(x):
    y = x + 0
    y.reshape(-1)[3:7].zero_()
    return y


def columns_written(x, places):
    y = x * 1
    y[:, places] = x[:, :3]
    return y


def places_of_columns(x):
    y = x * 1
    y[:, torch.tensor([1, 4])] = x[:, :2]
    return y


def added_at(x, places):
    return x.index_put((places,), torch.ones(5), accumulate=True)


ROWS = {
    # element types
    "int64 + float": (lambda a, b: a + b, torch.arange(5), V),
    "int64 + int32": (lambda a: a + a.int(), WHOLE),
    "float * float64 number": (lambda a: a * torch.tensor(1.1, dtype=torch.float64), V),
    "float * int constants": (lambda a: a * torch.tensor([1, 2, 3, 4, 5]), V),
    "bool + bool": (lambda a: a + ~a, MASK),
    "bool * float": (lambda a, b: a * b, MASK, V),
    "bool - 1": (lambda a: a.int() - 1, MASK),
    "where of a number": (lambda a, b: torch.where(a, b, 0), MASK, V),
    "int / int": (lambda a, b: a / b, WHOLE, OTHERS),
    "int // int": (lambda a: (a // 3, a // -3), WHOLE),
    "int % int": (lambda a: (a % 3, a % -3), WHOLE),
    "trunc": (lambda a: torch.div(a, 3, rounding_mode="trunc"), WHOLE),
    "fmod": (lambda a: torch.fmod(a, -3), WHOLE),
    "float % float": (lambda a: (a % 0.7, a % -0.7, a // 0.3), V),
    "powers": (lambda a: (a**2, a**3, a**-1, a**0, a**3.0), V),
    "int powers": (lambda a: (a**2, a**3), WHOLE),
    "int compared with a fraction": (lambda a: (a > 0.5, a >= -3.5, a == 1.5), WHOLE),
    "int clamped": (lambda a: (a.clamp(-2, 2), a.clamp(min=0), a.relu()), WHOLE),
    "first of equals": (lambda a: (a.argmax(1), a.argmin(0), a.argmax()), TIES),
    "equals sorted": (lambda a: torch.sort(a, 1, descending=True)[1], TIES),
    "softmax in float": (lambda a: a.softmax(-1, dtype=torch.float32), WHOLE),
    "log_softmax in float": (lambda a: F.log_softmax(a, 0, dtype=torch.float32), WHOLE),
    "mean in float": (lambda a: a.mean(1, dtype=torch.float32), WHOLE),
    "sum in float": (lambda a: a.sum(1, dtype=torch.float32), WHOLE),
    "product in float": (lambda a: a.prod(1, dtype=torch.float32), WHOLE),
    "bools counted": (lambda a: (a.sum(1), a.sum(), a.sum(0, keepdim=True)), MASK),
    "not 0, counted": (lambda a: (a.round().count_nonzero(), a.count_nonzero(1)), V),
    "mean of what a mask picks": (lambda a: (a * (a > 0)).sum(1) / (a > 0).sum(1), V),
    "any and all of numbers": (lambda a: (a.round().any(1), a.round().all(0), a.any()), V),
    "all of integers": (lambda a: (a - 1).all(1), WHOLE),
    "cat of types": (lambda a: torch.cat([a, a > 0, a.int()]), V),
    "stack of types": (lambda a, b: torch.stack([a, b]), V, torch.arange(15).view(3, 5)),
    "to integers": (lambda a: ((a * 10).int(), (a * 10).long(), a.round().bool()), V),
    "round to even": (lambda a: a.round(), torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])),
    "large constants": (lambda a: (a * 1e30 * 1e7, a + 3e38), V),
    "infinite mask": (lambda a: a.masked_fill(a > 0, float("-inf")).softmax(-1), V),
    "NaN constants": (lambda a: a + torch.tensor([float("nan"), 1, 2, 3, 4]), V),
    "pixels in bytes": (lambda x: F.conv2d(x.permute(0, 3, 1, 2).float().div(255), FILTERS), BYTES),
    "bytes divided": (lambda x: x / 255, BYTES),
    "bytes normalised": (lambda x: (x.to(torch.float32) - 127.5) / 127.5, BYTES),
    "signed bytes": (lambda x: x.float() / 255, (BYTES.int() - 128).to(torch.int8)),
    # memory
    "a view of the input is written": (input_written, V),
    "part of a line is written": (part_of_a_line, V),
    "columns are written": (places_of_columns, V),
    "strided constant": (lambda x: x + torch.arange(10.0)[::2], V),
    "transposed constant": (lambda x: x @ torch.arange(20.0).view(4, 5).t(), V),
    "expanded constant": (lambda x: x * torch.tensor(2.0).expand(3, 5), V),
    # sizes
    "rank 0": (lambda x: (x.sum() * 2 + x.mean() / x.max(), x[0, 0], (x > 0).any()), V),
    "rank 0 broadcast": (lambda x: (x / x.sum(), x > x.mean()), V),
    "rank 0 stacked": (lambda x: torch.stack([x.sum(), x.mean()]), V),
    "nothing joined": (lambda x: torch.cat([x[:, :0], x, torch.zeros(3, 0)], 1) + 1, V),
    # places
    "scatter": (lambda x: torch.zeros(3, 5).scatter(1, PLACES, x[:, :2]), V),
    "scatter of a larger source": (lambda x: torch.zeros(5, 5).scatter(0, PLACES, x), V),
    "scatter of a number": (lambda x: x.scatter(1, PLACES, 1.5), V),
    "scatter_add": (lambda x: (x * 1).scatter_add(1, torch.zeros_like(PLACES), x[:, :2]), V),
    "index_put": (lambda x: x.index_put((torch.tensor([0, 2]), torch.tensor([1, 3])), x[0, :2]), V),
    "index_put, added": (lambda x: added_at(x, torch.tensor([0, 0])), V),
    "index_add": (lambda x: x.index_add(1, torch.tensor([0, 3]), x[:, :2], alpha=2.0), V),
    "index_copy": (lambda x: x.index_copy(0, torch.tensor([2, 0]), x[:2]), V),
    "index_fill": (lambda x: x.index_fill(1, torch.tensor([2, 0]), 3.0), V),
    # places that are computed
    "index_copy, computed": (lambda x, p: x.index_copy(1, p, x[:, :1]), V, torch.tensor([3])),
    "index_copy, last of equals": (lambda x, p: x.index_copy(1, p, x[:, :3]), V, EQUAL),
    "columns are written, computed": (columns_written, V, EQUAL - 3),
    "a number is written, computed": (lambda x, p: x.index_fill(1, p, 2.5), V, EQUAL),
    "index_add, computed": (lambda x, p: x.index_add(1, p, x[:, :3], alpha=0.5), V, EQUAL),
    "index_put, added, computed": (added_at, V, torch.tensor([1, 1])),
    "scatter, computed": (lambda x, i: x.scatter(1, i, x[:, 3:]), V, PLACES),
    "scatter of one row": (lambda x, i: x.scatter(0, i, x[:1]), V, torch.tensor([[0, 1, 2, 1, 0]])),
    "scatter of a number, computed": (lambda x, i: x.scatter(1, i, 1.5), V, PLACES),
    "scatter_add, computed": (lambda x, i: (x * 1).scatter_add(1, i * 0, x[:, :2]), V, PLACES),
    "integers are written": (lambda a, p: a.index_copy(0, p, a[:1] * 2), WHOLE, torch.tensor([1])),
    "truth is written": (lambda x, p: (x > 0).index_copy(0, p, x[:2] < 0), V, torch.tensor([1, 0])),
    "cdist": (lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, 1.0)), V, numbers(2, 5)),
    "affine_grid": (lambda m: F.affine_grid(m, [3, 1, 4, 5], align_corners=False), TURNS),
    "affine_grid, aligned": (lambda m: F.affine_grid(m, [3, 1, 4, 1], align_corners=True), TURNS),
    "take": (lambda x: x.take(torch.tensor([0, 7, -1])), V),
    "differences": (lambda x: (x.diff(), x.diff(dim=0)), V),
    "diagonals": (lambda x: (x.diagonal(), x.diagonal(1), x.trace()), V),
    "one_hot": (lambda i: (F.one_hot(i, 9), F.one_hot(i, 9).float()), WHOLE.abs()),
    "bucketize": (lambda x: torch.bucketize(x, BOUNDS / 2), V),
    "bucketize, right": (lambda x: torch.bucketize(x.round(), BOUNDS, right=True), V),
    "searchsorted": (lambda x: torch.searchsorted(BOUNDS, x.round(), side="right"), V),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(name, nnapi_library):
    function, *inputs = ROWS[name]
    agree(traced(Function(function), tuple(inputs)), tuple(inputs))


REFUSED = {
    "int64 beyond 32 bits": (lambda a: a * 2000000000, "products would not fit int32", WHOLE),
    "int64 constants": (lambda a: a + 3000000000, "is not int32", WHOLE),
    "float64": (lambda a: a * torch.arange(5, dtype=torch.float64), "float64", V),
    "int products": (lambda a: a.prod(1), "REDUCE_PROD takes no TENSOR_INT32", WHOLE),
    "bytes added": (lambda a: a + 200, "its value is uint8", BYTES),
    "to bytes": (lambda a: (a.abs() * 10).to(torch.uint8), "uint8, which NNAPI does not have", V),
    "random": (lambda a: a + torch.randn(5), "draws random numbers", V),
    "dropout": (lambda a: F.dropout(a, 0.5, True), "draws random numbers", V),
    "what a mask picks": (lambda a: a[a > 0], "depend on the values", V),
    "nothing": (lambda a: a[:, :0] + 1, "an empty tensor", V),
    "no copy": (lambda a: a.repeat(0, 2), "an empty tensor, NNAPI has none", V),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    function, reason, *inputs = REFUSED[name]
    with pytest.raises(NnapiProfError, match=reason):
        whole(prepare(traced(Function(function), tuple(inputs)), tuple(inputs), "row"))


def test_layers_of_training_alone(nnapi_library):
    layers = [nn.RReLU(0.1, 0.5), nn.AlphaDropout(), nn.FeatureAlphaDropout(), nn.Dropout2d()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dropout2d warns of rank 2
        agree(torch.jit.script(nn.Sequential(nn.Linear(5, 4), *layers).eval()), (V,))
