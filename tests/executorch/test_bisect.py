"""Faults of a driver are found through the delegate, each region in a process of its own."""

import pytest
import torch

pytest.importorskip("executorch")

from nnapi_prof import executorch as np_et
from nnapi_prof.bisection import FaultKind
from tests.bisection.test_bisect import phone
from tests.executorch.conftest import exported
from tests.models import Function

NPU = "nnapi:sim-npu/fast"
pytestmark = pytest.mark.slow("lowers and runs each region in a process of its own")


def chain(x, first, second):
    """[1, 3, 8, 8] -> [1, 4]; the NPU refuses the mean and the tanh."""
    x = torch.relu(first(x))
    return (torch.tanh(second(x)) * x).mean((2, 3))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("chain") / "chain.pt2"
    convolutions = {
        "first": torch.nn.Conv2d(3, 4, 3, padding=1),
        "second": torch.nn.Conv2d(4, 4, 1),
    }
    return exported(Function(chain, **convolutions), path, torch.randn(1, 3, 8, 8))


def test_a_fault_is_named_and_shows_without_the_delegate_too(model, tmp_path):
    device = f"sim:{phone(tmp_path, operation='MUL', how='scale', when='shared')}"
    outcome = np_et.bisect(model, device, target=NPU, reproducer=tmp_path / "case")
    (culprit,) = outcome.culprits
    assert culprit.label.startswith("mul") and culprit.kind is FaultKind.SCALE
    assert culprit.way.delegate
    shows = {check.way for check in culprit.ways if check.differs}
    assert culprit.way in shows
    assert {way.pointers for way in shows if not way.delegate} == {False}
    labels = {each.label.split()[0] for each in outcome.unchecked}
    assert labels == {"tanh", "mean"}
    assert "--executorch" in (tmp_path / "case" / "README.md").read_text()


@pytest.mark.again("a fault is found in the same way, and tests/bisection has healthy drivers")
@pytest.mark.parametrize("target", [NPU, "cpu"])
def test_a_healthy_driver_is_not_blamed(model, target):
    assert np_et.bisect(model, "sim:npu-phone", target=target).clean
