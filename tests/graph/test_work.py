"""Units know what they compute and move; nothing is read out of labels."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.execution.profile.unit_graph_cache import load_program
from nnapi_prof.graph.unit import Work, graph_from_json, graph_to_json
from tests.cli.common import trace


class Product(nn.Module):
    """[1, 8, inner], [1, inner, 8] -> [1, 8, 8]"""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


def works(model: nn.Module, path: Path, *shapes: tuple[int, ...]) -> list[Work]:
    inputs = ["x".join(map(str, shape)) for shape in shapes]
    graph = load_program(trace(model, path, *shapes), inputs).units
    assert graph_from_json(graph_to_json(graph)) == graph
    return [unit.work for unit in graph.units if unit.work is not None]


@pytest.mark.parametrize("inner", [16, 4096])
def test_a_matrix_product(inner: int, tmp_path: Path) -> None:
    (work,) = works(Product(), tmp_path / "m.pt", (1, 8, inner), (1, inner, 8))
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
    assert [w.rate for w in result][2] == "CONV_2D 1x1"
    assert [(w.in_channels, w.kernel, w.stride) for w in result] == [
        (4, 9, 2),
        (1, 25, 1),
        (16, 1, 1),
    ]
    assert [w.macs for w in result] == [64 * 16 * 4 * 9, 64 * 16 * 25, 64 * 16 * 4]
    assert [w.pixels for w in result] == [64, 64, 64]


def test_windows_are_counted_as_they_are_laid_out(tmp_path: Path) -> None:
    """Each window's bytes for each pixel of the result; none where nothing is laid out."""
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1),
        nn.Conv2d(16, 16, 3, padding=1, groups=4),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 4, 1),
        nn.MaxPool2d(3, 1),
    )
    result = works(model, tmp_path / "c.pt", (1, 8, 10, 10))
    gathered = {w.rate: w.gathered for w in result}
    windows = 100 * 9 * 4
    assert gathered["CONV_2D"] == 8 * windows
    assert gathered["GROUPED_CONV_2D"] == 16 * windows
    assert gathered["DEPTHWISE_CONV_2D"] == gathered["CONV_2D 1x1"] == 0
    assert gathered["MAX_POOL_2D"] == 0
