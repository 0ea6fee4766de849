"""A model that was profiled, planned and run from Python."""

from types import SimpleNamespace

import pytest
import torch

import nnapi_prof as np_
from tests.cli.common import TinyNet, trace
from tests.cli.conftest import nothing_of_the_users as nothing_of_the_users

PHONE = "sim:npu-phone"


@pytest.fixture(scope="session")
def way(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Each step of a model's way: of two convolutions with a sigmoid between, which the simulated
    NPU lacks."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("way")
    file, table = trace(TinyNet(), folder / "tiny.pt"), folder / "costs.sqlite"
    model = np_.load(file, inputs=["1x3x16x16"])
    costs = np_.profile(model, device=PHONE, costs=table)
    planned = np_.partition(model, costs)
    steps = {"model": model, "costs": costs, "planned": planned, "result": np_.run(planned)}
    return SimpleNamespace(file=file, table=table, **steps)
