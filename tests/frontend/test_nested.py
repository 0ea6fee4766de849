"""TorchScript models that take tuples, lists and dicts; how they nest what they return."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.bundled_inputs import augment_model_with_bundled_inputs

from nnapi_prof import frontend
from nnapi_prof.errors import InputSpecError
from nnapi_prof.frontend import parse_input_spec
from nnapi_prof.frontend.loader import model_structure
from nnapi_prof.frontend.trees import Leaf, Named, Sequenced, tree_of
from tests.models import Function

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit itself


class Everything(nn.Module):
    def forward(
        self,
        pair: tuple[Tensor, tuple[Tensor, Tensor]],
        listed: list[Tensor],
        named: dict[str, Tensor],
        plain: Tensor,
        flag: bool = False,
    ) -> dict[str, list[Tensor]]:
        first, inner = pair
        total = first + inner[0] - inner[1]
        one, two = listed
        if flag:
            total = total * 2
        return {"sum": [total + one], "rest": [two * named["b"], named["a"] - plain]}


def indexed(listed: list[Tensor]) -> Tensor:
    return listed[0] + listed[2] * 2.0


def looped(listed: list[Tensor]) -> Tensor:
    total = torch.zeros(3)
    for value in listed:
        total = total + value
    return total


def loaded(path, specs):
    return frontend.load(path, [parse_input_spec(spec) for spec in specs])


def test_tuples_lists_and_dicts(saved):
    path = saved(Everything())
    program = loaded(path, ["2x3"] * 8)
    assert len(program.units.inputs) == 8
    a, b, c, d, e, f, g, h = program.example_inputs
    expected = Everything()((a, (b, c)), [d, e], {"b": f, "a": g}, h)
    actual = program.module(*program.example_inputs)
    torch.testing.assert_close(actual, [*expected["sum"], *expected["rest"]])
    structure = model_structure(path, program.example_inputs)
    assert structure.inputs == {
        "arg_0": Sequenced((Leaf(0), Sequenced((Leaf(1), Leaf(2))))),
        "arg_1": Sequenced((Leaf(3), Leaf(4)), True),
        "arg_2": Named((("b", Leaf(5)), ("a", Leaf(6)))),
        "arg_3": Leaf(7),
    }
    assert structure.outputs == tree_of(expected)


class Pair(NamedTuple):
    a: Tensor
    b: Tensor


class State(NamedTuple):
    h: Tensor
    pairs: tuple[Pair, Tensor]


def cell(x: Tensor, state: State) -> State:
    (a, b), c = state.pairs
    return State(x + state.h, (Pair(b, a * c), c))


def test_named_tuples(saved):
    """Also inside of each other: the tensors are inputs in their order."""
    program = loaded(saved(cell), ["2"] * 5)
    x, h, a, b, c = program.example_inputs
    actual = program.module(*program.example_inputs)
    torch.testing.assert_close(tuple(actual), (x + h, b, a * c, c))


def from_its_end(listed: list[Tensor]) -> Tensor:
    return listed[0] + listed[-1]


def by_its_keys(named: dict[str, Tensor]) -> Tensor:
    total = torch.zeros(3)
    for key in named:
        total = total + named[key]
    return total


def counted(named: dict[str, Tensor]) -> Tensor:
    return named["a"] * len(named)


@pytest.mark.parametrize("function", [from_its_end, by_its_keys, counted])
def test_how_many_there_are_must_be_in_the_code(saved, function):
    with pytest.raises(InputSpecError, match="lists and dicts whose items the code names; wrap"):
        loaded(saved(function), ["3"] * 2)


def test_a_list_is_as_long_as_its_last_index_says(saved):
    program = loaded(saved(indexed), ["2x3"] * 3)
    a, _, c = program.example_inputs
    torch.testing.assert_close(program.module(*program.example_inputs)[0], a + c * 2)


def test_bundled_inputs_say_how_long_a_list_is(saved):
    path = saved(looped)
    with pytest.raises(InputSpecError, match=r"model.pt takes the input listed of type List"):
        loaded(path, ["3"] * 2)
    model = torch.jit.load(path)
    example = [torch.rand(3), torch.rand(3)]
    augment_model_with_bundled_inputs(model, [(example,)])
    torch.jit.save(model, str(path))
    program = loaded(path, [])
    assert [tuple(value.shape) for value in program.example_inputs] == [(3,), (3,)]
    torch.testing.assert_close(program.module(*example)[0], sum(example))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_traced_lists_and_dicts(saved):
    a, b, c = torch.rand(3, 2, 3)
    path = saved(Function(lambda x, named: x[0] + x[1] * named["x"]), [a, b], {"x": c})
    torch.testing.assert_close(loaded(path, ["2x3"] * 3).module(a, b, c)[0], a + b * c)


@dataclass
class Frame:
    image: Tensor
    gain: Tensor
    mask: Tensor | None = None


@dataclass
class Boxes:
    scores: Tensor
    corners: Tensor
    features: tuple[Tensor, ...] | None = None


class Detector(nn.Module):
    def __init__(self, features: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.features = features

    def forward(self, frame: Frame) -> Boxes:
        rows = self.conv(frame.image * frame.gain)
        features = (rows, rows + 1) if self.features else None
        return Boxes(rows.sigmoid(), rows.mean((2, 3)), features)


@pytest.mark.parametrize("features", [False, True])
def test_data_classes_are_read_as_dicts_where_nobody_knows_them(tmp_path, features):
    for kind in (Frame, Boxes):
        torch.export.register_dataclass(kind, serialized_type_name=f"mine.{kind.__name__}")
    model, frame = Detector(features).eval(), Frame(torch.rand(1, 3, 8, 8), torch.ones(1))
    try:
        torch.export.save(torch.export.export(model, (frame,)), tmp_path / "model.pt2")
        out = model(frame)
    finally:
        for kind in (Frame, Boxes):
            pytree._deregister_pytree_node(kind)
    path = tmp_path / "model.pt2"
    structure = model_structure(path, frontend.load(path).example_inputs)
    assert structure.inputs == {"arg_0": Named((("image", Leaf(0)), ("gain", Leaf(1))))}
    scores, corners = Leaf(0), Leaf(1)
    if features:
        assert structure.outputs == Sequenced((scores, corners, Sequenced((Leaf(2), Leaf(3)))))
        assert "a tuple of scores, corners, features, in that order" in structure.notes[0]
    else:
        assert structure.outputs == Named((("scores", scores), ("corners", corners)))
    tensors = (frame.image, frame.gain)
    expected = (out.scores, out.corners, *(out.features or ()))
    torch.testing.assert_close(tuple(frontend.reference(path)(*tensors)), expected)


class Cache:
    """Keys and values of each layer, as a decoder passes them from token to token."""

    def __init__(self, keys: list[Tensor], values: list[Tensor]) -> None:
        self.keys, self.values = keys, values


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))

    def forward(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        for index, layer in enumerate(self.layers):
            query, key, value = layer(x).chunk(3, -1)
            cache.keys[index] = torch.cat([cache.keys[index], key], 1)
            cache.values[index] = torch.cat([cache.values[index], value], 1)
            x = x + nn.functional.scaled_dot_product_attention(
                query, cache.keys[index], cache.values[index]
            )
        return x, cache


def test_a_cache_of_a_decoder_is_read_as_a_dict_of_lists(tmp_path):
    """As transformers registers its DynamicCache."""

    def listed(cache: Cache) -> tuple[list[list[Tensor]], list[str]]:
        return [cache.keys, cache.values], ["key_cache", "value_cache"]

    def known(cache: Cache) -> tuple[list[tuple[pytree.KeyEntry, list[Tensor]]], list[str]]:
        values, names = listed(cache)
        return [(pytree.MappingKey(n), v) for n, v in zip(names, values, strict=True)], names

    pytree.register_pytree_node(
        Cache,
        listed,
        lambda values, _: Cache(*map(list, values)),
        serialized_type_name="transformers.cache_utils.DynamicCache",
        flatten_with_keys_fn=known,
    )
    torch.manual_seed(0)
    model, x = Decoder().eval(), torch.randn(1, 1, 8)
    past = torch.randn(4, 1, 5, 8).unbind(0)
    try:
        program = torch.export.export(model, (x, Cache(list(past[:2]), list(past[2:]))))
        program._example_inputs = None  # objects of classes, which are not stored with a file
        torch.export.save(program, tmp_path / "model.pt2")
        expected, after = model(x, Cache(list(past[:2]), list(past[2:])))
    finally:
        pytree._deregister_pytree_node(Cache)
    path = tmp_path / "model.pt2"
    structure = model_structure(path, frontend.load(path).example_inputs)
    names = ("key_cache", "value_cache")
    lists = [Sequenced((Leaf(n), Leaf(n + 1)), is_list=True) for n in (1, 3)]
    assert structure.inputs["arg_1"] == Named(tuple(zip(names, lists, strict=True)))
    ours = frontend.load(path).module(x, *past)
    torch.testing.assert_close(tuple(ours), (expected, *after.keys, *after.values))
