"""Faults of a driver are found through the delegate, each region in a process of its own."""

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("executorch")

import nnapi_prof as nnp
from nnapi_prof import executorch as np_et
from nnapi_prof.bisection import FaultKind
from nnapi_prof.device.find import PHONES_DIR

NPU = "nnapi:sim-npu/fast"
pytestmark = pytest.mark.slow("lowers and runs each region in a process of its own")


class Chain(torch.nn.Module):
    """[1, 3, 8, 8] -> [1, 4]; the NPU refuses the mean and the tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.second = torch.nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        return (torch.tanh(self.second(x)) * x).mean((2, 3))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> nnp.Model:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("chain") / "chain.pt2"
    torch.export.save(torch.export.export(Chain().eval(), (torch.randn(1, 3, 8, 8),)), path)
    return nnp.load(path)


def test_a_fault_is_named_and_shows_without_the_delegate_too(
    model: nnp.Model, tmp_path: Path
) -> None:
    described = json.loads((PHONES_DIR / "npu-phone.json").read_text())
    npu = next(each for each in described["accelerators"] if each["name"] == "sim-npu")
    npu["errors"] = [{"operation": "MUL", "how": "scale", "when": "shared", "origin": "planted"}]
    phone = tmp_path / "phone.json"
    phone.write_text(json.dumps(described))
    outcome = np_et.bisect(model, f"sim:{phone}", target=NPU, reproducer=tmp_path / "case")
    (culprit,) = outcome.culprits
    assert culprit.label.startswith("mul") and culprit.kind is FaultKind.SCALE
    assert culprit.way.delegate
    shows = {check.way: check.differs for check in culprit.ways}
    assert shows[culprit.way]
    assert {way.pointers for way, differs in shows.items() if not way.delegate and differs} == {
        False
    }
    labels = {each.label.split()[0] for each in outcome.unchecked}
    assert labels == {"tanh", "mean"}
    assert "--executorch" in (tmp_path / "case" / "README.md").read_text()


@pytest.mark.again("a fault is found in the same way, and tests/bisection has healthy drivers")
@pytest.mark.parametrize("target", [NPU, "cpu"])
def test_a_healthy_driver_is_not_blamed(model: nnp.Model, target: str) -> None:
    assert np_et.bisect(model, "sim:npu-phone", target=target).clean
