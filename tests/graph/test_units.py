"""Units: their labels and signatures, what they compute and move."""

import dataclasses
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nnapi_prof import frontend
from nnapi_prof.execution.profile.unit_graph_cache import load_program
from nnapi_prof.graph import TensorType
from nnapi_prof.graph.unit import (
    Unit,
    UnitGraph,
    Work,
    draw,
    graph_from_json,
    graph_to_json,
    region_signature,
)
from tests.cli.common import trace
from tests.convert.coverage.rows import Function


class Net(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.dilated = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu6(self.stem(F.pad(x, (0, 1, 0, 1))))
        y = F.relu(self.depthwise(x) + x)
        z = F.hardtanh(self.dilated(y)) * 2
        pooled = F.relu(F.avg_pool2d(z, 2))
        return self.fc(pooled.mean((2, 3)))


def units_of(model, x: Tensor) -> UnitGraph:
    """Returns the units of a module, or of a function of one tensor."""
    model = model if isinstance(model, nn.Module) else Function(model)
    return frontend.prepare(model.eval(), [x], "net").units


def net(seed: int = 0, size: int = 16) -> UnitGraph:
    return units_of(Net(seed), torch.ones(1, 3, size, size))


def test_labels_and_grouping():
    graph = net()
    assert [unit.label for unit in graph.units] == [
        "to_channels_last 1x3x16x16",
        "pad+conv2d+relu6 3x3/2 3->8 8x8",
        "depthwise_conv2d 3x3 8->8 8x8",
        "add+relu 1x8x8x8",
        "conv2d+relu1 3x3 dilation 2x2 8->8 8x8",
        "mul 1x8x8x8",
        "avg_pool2d+relu 2x2/2 1x8x4x4",
        "mean 1x8",
        "linear 8->5",
    ]
    stem = graph.units[1]
    assert len(stem.nodes) == 3 and stem.name == stem.nodes[-1] == stem.outputs[0]
    assert stem.macs == 8 * 8 * 8 * 27
    assert stem.constant_bytes == 4 * (8 * 27 + 8)
    assert graph.units[2].macs == 8 * 8 * 8 * 9
    assert graph.units[-1].macs == 40


def test_every_call_is_in_one_unit_and_edges_point_forward():
    program = frontend.prepare(Net().eval(), [torch.ones(1, 3, 16, 16)], "net")
    calls = [n.name for n in program.module.graph.nodes if n.op == "call_function"]
    assert sorted(n for unit in program.units.units for n in unit.nodes) == sorted(calls)
    for unit in program.units.units:
        assert all(before < unit.index for before in program.units.predecessors(unit.index))


def test_activation_with_another_reader_stands_alone():
    def function(x: Tensor) -> Tensor:
        y = x + 1
        return F.relu(y) * y

    graph = units_of(function, torch.ones(2, 3))
    assert [unit.label for unit in graph.units] == ["add 2x3", "relu 2x3", "mul 2x3"]


def test_several_values_of_one_node():
    graph = units_of(lambda x: tuple(torch.topk(x, 2)), torch.arange(6.0).view(2, 3))
    (unit,) = graph.units
    assert unit.outputs == graph.outputs and len(unit.outputs) == 2
    assert [graph.values[v].dtype for v in unit.outputs] == ["float32", "int64"]


def test_types_that_no_accelerator_has():
    units = units_of(nn.Linear(3, 2).double(), torch.ones(1, 3).double()).units
    assert [unit.constant_bytes for unit in units] == [0, 8 * 4, 0], "float32 between conversions"


def test_draw():
    text = draw(net())
    assert text.splitlines()[0] == "inputs: x: float32[1x3x16x16]"
    assert "   8  linear 8->5 " in text
    assert text.splitlines()[-1] == "outputs: linear: float32[1x5]"


def test_signatures_ignore_weights_and_names_but_not_shapes():
    first, other, larger = net(0), net(1), net(0, 32)
    assert [u.signature for u in first.units] == [u.signature for u in other.units]
    changed = [a.signature != b.signature for a, b in zip(first.units, larger.units, strict=True)]
    assert changed == [True] * 8 + [False]  # the classifier sees the same mean
    assert all(len(u.signature) == 32 for u in first.units)


def test_signatures_see_numbers_and_attributes():
    def one(function) -> str:
        (unit,) = units_of(function, torch.ones(1, 4)).units
        return unit.signature

    result = [one(lambda x: x * 2), one(lambda x: x * 3), one(lambda x: x + 2), one(F.silu)]
    assert len(set(result)) == 4
    assert one(lambda x: x * 2) == result[0]


# ---- regions, on graphs that no model has ----------------------------------------------------


@st.composite
def unit_graphs(draw) -> UnitGraph:
    """A random DAG of units with one or two inputs each and few distinct signatures."""
    n = draw(st.integers(2, 8))
    names = ["x"]
    units = []
    for i in range(n):
        read = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        names.append(f"v{i}")
        signature = draw(st.sampled_from(["s", "t"])) + str(len(read))
        units.append(Unit(i, f"v{i}", "", (f"v{i}",), tuple(read), (f"v{i}",), signature))
    values = {name: TensorType((1, 2)) for name in names}
    return UnitGraph(tuple(units), values, ("x",), (names[-1],))


def renamed_and_reordered(graph: UnitGraph, seed: int) -> tuple[UnitGraph, dict[int, int]]:
    """The same graph with other names, its units in another topological order."""
    shuffle = random.Random(seed)
    names = {value: f"n{i}" for i, value in enumerate(graph.values)}
    order: list[int] = []
    while len(order) < len(graph.units):
        left = set(range(len(graph.units))) - set(order)
        order.append(shuffle.choice([u for u in left if not set(graph.predecessors(u)) & left]))
    units = []
    for new, old in enumerate(graph.units[index] for index in order):
        inputs, outputs = (tuple(names[v] for v in values) for values in (old.inputs, old.outputs))
        changes = {"name": names[old.name], "inputs": inputs, "outputs": outputs}
        units.append(dataclasses.replace(old, index=new, nodes=(), **changes))
    values = {names[value]: value_type for value, value_type in graph.values.items()}
    outputs = tuple(names[value] for value in graph.outputs)
    places = {old: new for new, old in enumerate(order)}
    return UnitGraph(tuple(units), values, ("n0",), outputs), places


@given(unit_graphs(), st.data(), st.integers(0, 99))
def test_region_signature_ignores_names_and_order(graph: UnitGraph, data, seed: int):
    indices = st.sets(st.sampled_from(range(len(graph.units))), min_size=1)
    region = data.draw(indices)
    other, place = renamed_and_reordered(graph, seed)
    assert region_signature(graph, region) == region_signature(other, [place[u] for u in region])


def chain(*wires: tuple[str, ...]) -> UnitGraph:
    units = tuple(Unit(i, f"v{i}", "", (), read, (f"v{i}",), "s") for i, read in enumerate(wires))
    names = ["x", "y", *(f"v{i}" for i in range(len(wires)))]
    return UnitGraph(units, {n: TensorType((2,)) for n in names}, ("x", "y"), (names[-1],))


def test_region_signature_sees_the_wiring():
    wirings = [("x",), ("x",)], [("x",), ("y",)], [("x",), ("v0",)]
    graphs = [chain(*wires, ("v0", "v1")) for wires in wirings]
    graphs.append(chain(("x",), ("v0",), ("v1", "v0")))
    assert len({region_signature(graph, {0, 1, 2}) for graph in graphs}) == 4


def test_region_of_one_unit_has_the_units_signature():
    graph = net()
    assert region_signature(graph, [3]) == graph.units[3].signature


def test_equal_blocks_share_a_region_signature():
    convs = [nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)]

    def blocks(x: Tensor) -> Tensor:
        for conv in convs:
            x = F.relu(F.conv2d(x, conv.weight, conv.bias, padding=1) + x)
        return x.mean((2, 3))

    graph = units_of(blocks, torch.ones(1, 4, 6, 6))
    assert [u.label.split()[0] for u in graph.units][1:3] == ["conv2d", "add+relu"]
    assert region_signature(graph, [1, 2]) == region_signature(graph, [3, 4])
    assert region_signature(graph, [1, 2, 3]) != region_signature(graph, [2, 3, 4])


# ---- work: what units compute and move; nothing is read out of labels ----------------------------


def works(model: nn.Module, path: Path, *shapes: tuple[int, ...]) -> list[Work]:
    inputs = ["x".join(map(str, shape)) for shape in shapes]
    graph = load_program(trace(model, path, *shapes), inputs).units
    assert graph_from_json(graph_to_json(graph)) == graph
    return [unit.work for unit in graph.units if unit.work is not None]


@pytest.mark.parametrize("inner", [16, 4096])
def test_a_matrix_product(inner: int, tmp_path: Path) -> None:
    shapes = (1, 8, inner), (1, inner, 8)
    (work,) = works(Function(torch.matmul), tmp_path / "m.pt", *shapes)
    assert (work.kind, work.macs, work.in_channels) == ("BATCH_MATMUL", 64 * inner, inner)
    assert work.in_bytes == 2 * 8 * inner * 4


def test_convolutions_tell_their_groups_windows_and_weights(tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2),
        nn.Conv2d(16, 16, 5, padding=2, groups=16),
        nn.Conv2d(16, 4, 1),
    )
    result = [w for w in works(model, tmp_path / "c.pt", (1, 8, 16, 16)) if "CONV" in w.kind]
    assert [w.kind for w in result] == ["GROUPED_CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D"]
    assert result[2].rate == "CONV_2D 1x1"
    windows = [(w.in_channels, w.kernel, w.stride, w.pixels) for w in result]
    assert windows == [(4, 9, 2, 64), (1, 25, 1, 64), (16, 1, 1, 64)]
    assert [w.macs for w in result] == [64 * 16 * 4 * 9, 64 * 16 * 25, 64 * 16 * 4]


def test_windows_are_counted_as_they_are_laid_out(tmp_path: Path) -> None:
    """Each window's bytes for each pixel of the result; none where nothing is laid out."""
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1),
        nn.Conv2d(16, 16, 3, padding=1, groups=4),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 4, 1),
        nn.MaxPool2d(3, 1),
    )
    gathered = {w.rate: w.gathered for w in works(model, tmp_path / "c.pt", (1, 8, 10, 10))}
    windows = 100 * 9 * 4
    laid_out = {"CONV_2D": 8 * windows, "GROUPED_CONV_2D": 16 * windows}
    none = dict.fromkeys(["DEPTHWISE_CONV_2D", "CONV_2D 1x1", "MAX_POOL_2D"], 0)
    assert (laid_out | none).items() <= gathered.items()
