"""A model that was profiled, planned and run from Python."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import nnapi_prof as np_
from tests.cli.common import TinyNet, trace
from tests.cli.conftest import nothing_of_the_users as nothing_of_the_users

PHONE = "sim:npu-phone"


@dataclass(frozen=True)
class Way:
    """Each step of a model's way."""

    file: Path
    table: Path
    model: np_.Model
    costs: np_.Costs
    planned: np_.ModelPlan
    result: np_.Result


@pytest.fixture(scope="session")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    """Two convolutions with a sigmoid between, which the simulated NPU lacks."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("way")
    file, table = trace(TinyNet(), folder / "tiny.pt"), folder / "costs.sqlite"
    model = np_.load(file, inputs=["1x3x16x16"])
    costs = np_.profile(model, device=PHONE, costs=table)
    planned = np_.partition(model, costs)
    yield Way(file, table, model, costs, planned, np_.run(planned))
