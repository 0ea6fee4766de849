"""A driver that crashes, hangs or fails: outputs are right, and the log says so in one line."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import warm

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

SCRIPT = Path(__file__).with_name("runs.py")


@pytest.fixture(scope="session")
def pte(picture_plan, tmp_path_factory):
    from nnapi_prof.executorch import lower

    return lower(picture_plan).save(tmp_path_factory.mktemp("faults") / "pictures.pte")


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
