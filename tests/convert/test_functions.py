"""Functions whose element type, memory or shape is the hard part, by both ways in: TorchScript that
was saved and loaded, and an export. Converted whole, and run on values that no tracing saw."""

import io

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from nnapi_prof.api.convert import convert_model
from nnapi_prof.errors import InputSpecError, NnapiProfError
from nnapi_prof.frontend import load, prepare
from nnapi_prof.frontend.torch_logging import quiet_torch
from tests.convert.coverage.rows import Function, numbers
from tests.convert.harness import run_whole, whole

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
            torch.jit.save(torch.jit.trace(module, tuple(inputs), check_trace=False), file)
            file.seek(0)
            model = torch.jit.load(file)
        else:
            model = torch.export.export(module, tuple(inputs))
    others = [other_values(x) for x in inputs]
    actual = run_whole(prepare(model, inputs, "function"), others)
    for ours, theirs in zip(actual, tree_leaves(module(*others)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [lambda x: x, lambda x: (x.detach(), torch.ones(2))])
def test_a_model_that_computes_nothing_is_refused(function):
    with pytest.raises(NnapiProfError, match=r"computes nothing: .* NNAPI has nothing to run"):
        convert_model(torch.export.export(Function(function), (X,)), (X,))


def test_no_copy_is_refused():
    program = prepare(torch.export.export(Function(lambda x: x.repeat(0, 2)), (X,)), (X,), "none")
    with pytest.raises(NnapiProfError, match="an empty tensor, NNAPI has none"):
        whole(program, 28)


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
