"""Outlines: a model's units without the model."""

import subprocess
import sys

import pytest

from nnapi_prof.errors import FrontendError, ModelFileError
from nnapi_prof.execution.profile import ProfileOptions
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.execution.profile.unit_graph_cache import cached_units
from tests.measure.programs import chain
from tests.measure.scripted import ScriptedClient

FAST = ProfileOptions(preferences=("fast",), accelerators=("npu",))


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"some model")
    return path


class Loader:
    """Gives a program and counts how often."""

    def __init__(self, names: str) -> None:
        self.program = chain(*names.split())
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.program


def test_a_known_model_is_not_loaded_and_one_that_is_needed_once(model, tmp_path):
    first, second = Loader("relu tanh"), Loader("relu tanh")
    fresh = cached_units(model, ["1x64"], first, tmp_path)
    cached = cached_units(model, ["1x64"], second, tmp_path)
    assert first.calls == 1 and second.calls == 0
    assert cached.units == fresh.units and cached.name == fresh.name
    assert cached.load() is cached.load() is second.program
    assert second.calls == 1


def test_other_bytes_or_inputs_are_another_model(model, tmp_path):
    loader = Loader("relu")
    cached_units(model, [], loader, tmp_path)
    cached_units(model, ["1x64"], loader, tmp_path)
    model.write_bytes(b"another model")
    cached_units(model, [], loader, tmp_path)
    assert loader.calls == 3


def test_a_damaged_memory_is_made_again(model, tmp_path):
    loader = Loader("relu")
    cached_units(model, [], loader, tmp_path)
    (entry,) = (tmp_path / "graphs").iterdir()
    entry.write_text(entry.read_text()[:50])
    cached_units(model, [], loader, tmp_path)
    cached_units(model, [], loader, tmp_path)
    assert loader.calls == 2


def test_a_model_with_other_units_than_remembered_is_refused(model, tmp_path):
    cached_units(model, [], Loader("relu"), tmp_path)
    stale = cached_units(model, [], Loader("tanh"), tmp_path)
    with pytest.raises(FrontendError, match="run the same command again"):
        stale.load()
    assert list((tmp_path / "graphs").iterdir()) == []


def test_a_missing_model_is_the_loaders_to_refuse(tmp_path):
    def load():
        raise ModelFileError("no.pt does not exist")

    with pytest.raises(ModelFileError, match="does not exist"):
        cached_units(tmp_path / "no.pt", [], load, tmp_path)


def test_a_cache_that_cannot_be_written_costs_only_time(model, tmp_path):
    (tmp_path / "file").write_text("")
    loader = Loader("relu")
    for _ in range(2):
        assert len(cached_units(model, [], loader, tmp_path / "file").units.units) == 1
    assert loader.calls == 2


def test_a_second_profile_does_not_load_the_model(model, tmp_path, store):
    loader = Loader("relu erf tanh")
    for _ in range(2):
        units = cached_units(model, [], loader, tmp_path)
        outcome = profile(units, ScriptedClient(), store, FAST)
        assert loader.calls == 1
    assert outcome.stable and outcome.n_measured == 0


def test_profiling_imports_no_torch_before_it_must():
    code = "import sys, nnapi_prof.execution.profile.session; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
