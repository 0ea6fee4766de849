"""The nets that learn digits: repeatable, and the command line writes what commands take."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from nnapi_prof.frontend.torch_logging import quiet_torch
from tests import warm
from tests.precision import digits


def test_data_is_cut_in_three() -> None:
    data = digits.script().read_digits()
    assert [len(part) for part in (data.train, data.calibration, data.held_out)] == [1000, 200, 597]
    size = digits.script().SIZE
    assert data.train.images.shape == (1000, 1, size, size)
    other = digits.script().read_digits(seed=1)
    assert torch.equal(other.train.images, data.train.images)
    assert not torch.equal(other.held_out.images, data.held_out.images)
    assert data.calibration.samples[3][0].shape == (1, 1, size, size)


@pytest.mark.parametrize("name", ["plain", "residual", "mobile"])
def test_training_is_repeatable(name: str) -> None:
    few = digits.script().read_digits().train.part(torch.arange(50))
    before = torch.get_rng_state()
    first, second = (digits.script().train(name, few, epochs=1) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before) and not first.training
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_net_learns() -> None:
    data = digits.images("held_out")
    right = digits.script().accuracy(digits.net(), data)
    assert right > 0.95
    with torch.no_grad():
        outputs = digits.net()(data.images)
    assert digits.script().wrong(outputs, data.labels) == pytest.approx(1 - right, abs=1e-6)


@pytest.mark.again("trains a network, as those did that the other tests read")
def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "plain.pt"
    script = Path(__file__).parents[2] / "examples" / "digits.py"
    command = [*warm.python(), script, "plain", path, "--data", tmp_path / "data", "--epochs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "of held-out images are right" in done.stdout
    with np.load(tmp_path / "data" / "held_out.npz") as arrays:
        images, labels = arrays["images"], arrays["labels"]
    size = digits.script().SIZE
    assert images.shape == (597, 1, 1, size, size) and labels.shape == (597,)
    with quiet_torch():
        model = torch.jit.load(str(path))
    assert model(torch.from_numpy(images[0])).shape == (1, 10)
