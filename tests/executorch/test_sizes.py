"""Sizes left open have no form in a delegated call, and the error says what to do."""

import pytest
import torch

import nnapi_prof
from nnapi_prof.errors import UsageError
from tests.executorch.common import estimated_plan

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

from nnapi_prof.executorch import NnapiPartitioner, choose, lower
from nnapi_prof.executorch.aot import XnnpackPartitioner

PIN = {"*": "nnapi:sim-npu/fast"}


@pytest.fixture(scope="module")
def batches():
    """A program whose batch is 1 to 8."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    sizes = {"input": {0: torch.export.Dim("batch", min=1, max=8)}}
    return torch.export.export(layers.eval(), (torch.rand(4, 8),), dynamic_shapes=sizes)


def test_an_exported_program_with_open_sizes_is_refused(batches):
    planned = estimated_plan(nnapi_prof.load(batches), PIN)
    with pytest.raises(UsageError, match=r"leaves sizes open \(s.*: 1 to 8\).*export it without"):
        lower(planned)
    with pytest.raises(UsageError, match="leaves sizes open"):
        choose(batches, {"xnnpack": XnnpackPartitioner()})
    partitioner = NnapiPartitioner("nnapi:sim-npu/fast")
    with pytest.raises(UsageError, match="the program leaves sizes open"):
        partitioner.transform_for_pre_decomposition(batches)


def test_sizes_that_a_plan_leaves_open_are_refused(batches):
    planned = estimated_plan(nnapi_prof.load(batches, inputs=["?=4x8"]), PIN)
    with pytest.raises(UsageError, match=r"leaves sizes open \(\?.*make the plan with each stated"):
        lower(planned)


def test_a_plan_on_the_cpu_keeps_them_open(batches):
    planned = estimated_plan(nnapi_prof.load(batches), "*=cpu")
    assert set(lower(planned).backends()) == {"XnnpackBackend"}
