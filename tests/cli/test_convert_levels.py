"""``convert --level``: what devices report, also beyond API levels."""

import json
from pathlib import Path

import pytest
from torch import Tensor, nn

from tests.cli.common import Cli, trace


class Attention(nn.Module):
    """Products of computed matrices: many operations before level 6, one from there on."""

    def forward(self, x: Tensor) -> Tensor:
        return ((x @ x.transpose(1, 2)).softmax(-1) @ x).flip(2)


@pytest.fixture
def attention(tmp_path: Path) -> Path:
    return trace(Attention(), tmp_path / "attention.pt", (2, 3, 4))


def operations(path: Path) -> set[str]:
    model = json.loads(path.with_suffix(".json").read_text())
    return {operation["name"] for operation in model["operations"]}


@pytest.mark.parametrize("level", [27, 30, 31, 1000006, 1000007, 1000008])
def test_levels(cli: Cli, attention: Path, level: int) -> None:
    asked = ("--input", "2x3x4", "--level", level, "--format", "json", attention)
    result = cli("convert", *asked)
    if level == 27:
        assert result.code == 1
        assert "TRANSPOSE exists from level 2 (API 28) on, wanted at level 1" in result.error
        return
    assert result.code == 0, result.err
    have = operations(attention)
    assert ("BATCH_MATMUL" in have) == (level >= 1000006)
    assert ("REVERSE" in have) == (level >= 1000007)
