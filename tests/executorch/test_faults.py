"""A driver that crashes, hangs or computes wrongly: outputs are right, or the fault is named."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

from nnapi_prof import executorch as np_et
from nnapi_prof.bisection import FaultKind
from tests import warm
from tests.bisection.test_bisect import phone
from tests.executorch.conftest import exported
from tests.models import Function

SCRIPT = Path(__file__).with_name("runs.py")


@pytest.fixture(scope="session")
def pte(picture_plan, tmp_path_factory):
    return np_et.lower(picture_plan).save(tmp_path_factory.mktemp("faults") / "pictures.pte")


def run(pte, model, caution, *cache, **variables):
    words = map(str, (SCRIPT, pte, model, "sim:gpu-phone", json.dumps(caution), *cache))
    command, env = [*warm.python(), *words], {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow("waits until a driver that hangs is given up")
def test_a_driver_that_hangs_ends_on_the_cpu_with_the_same_outputs(pte, picture_model):
    faults = {"NNAPI_EMULATOR_FAULTS": "hang:execute:CONV_2D:1@sim-gpu"}
    limits = {"compile_limit_ms": 20000, "run_limit_ms": 500}
    document, log = run(pte, picture_model, limits, **faults)
    assert document["agrees"], log
    assert any("fell back" in name for name in document["parts"])
    assert "NnapiBackend: " in log
    lines = document["description"].splitlines()
    assert len(lines) == 2, "one for each call"
    assert all("fell back from sim-gpu" in line for line in lines)
    segments, engines, shares, whys = zip(*document["units"], strict=True)
    assert list(segments) == sorted(segments) and set(segments) == {0, 1}
    assert sum(shares) == pytest.approx(2.0)
    assert set(engines) == {"cpu"} and all(whys)


def test_a_trial_where_binder_is_never_forks_and_costs_once(pte, picture_model, tmp_path):
    """The folder stands for /dev, and has the verdict of the agent, which tries the segments."""
    (tmp_path / "binder").touch()
    variables = {"NNAPI_PROF_DEV": str(tmp_path)}
    faults = {"NNAPI_EMULATOR_FAULTS": "crash:execute:CONV_2D:1@sim-gpu"}
    for more in (faults, {}):  # the driver would not crash again, and is not asked
        document, log = run(pte, picture_model, {"trial": True}, tmp_path, **variables, **more)
        assert document["agrees"], log
        whys = {why for _, _, _, why in document["units"]}
        assert "NnapiBackend: " in log and len(document["description"].splitlines()) == 2
        assert whys == {"a trial in a process of its own crashed: SIGSEGV"}
    assert len(list(tmp_path.glob("trial-*"))) == 2  # one for each call


NPU = "nnapi:sim-npu/fast"
EACH = pytest.mark.slow("lowers and runs each region in a process of its own")


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


@EACH
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


@EACH
@pytest.mark.again("a fault is found in the same way, and tests/bisection has healthy drivers")
@pytest.mark.parametrize("target", [NPU, "cpu"])
def test_a_healthy_driver_is_not_blamed(model, target):
    assert np_et.bisect(model, "sim:npu-phone", target=target).clean
