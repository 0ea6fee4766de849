"""Models from files and from memory; steps with a device and a table that are open."""

import contextlib
import gc
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import nnapi_prof as np_
from nnapi_prof.api import Listener, open_client
from nnapi_prof.api.cost_tables import note_other_agent
from nnapi_prof.api.costs import Interrupted
from nnapi_prof.bundle.storage import read_bundle
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device import description_of, device_fingerprint
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.errors import CostError, FrontendError, InputSpecError, ModelFileError
from nnapi_prof.graph.plan import CPU
from tests.api.conftest import PHONE
from tests.cli.common import TinyNet, trace
from tests.measure.scripted import NPU, info, interrupt_at
from tests.models import Function

X = torch.zeros(1, 3, 8, 8)
NET = nn.Sequential(
    *(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(256, 5))
).eval()


def scripted(module: nn.Module, *traced_with: torch.Tensor) -> torch.jit.ScriptModule:
    """TorchScript, without its announcement that it retires."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, traced_with) if traced_with else torch.jit.script(module)


SOURCES: dict[str, Callable[[], tuple[object, object]]] = {
    "module": lambda: (NET, X),
    "texts": lambda: (NET, ["1x3x8x8"]),
    "traced": lambda: (scripted(NET, X), [X]),
    "scripted": lambda: (scripted(NET), "1x3x8x8"),
    "exported": lambda: (torch.export.export(NET, (X,)), None),
}
ONCE = np_.MeasureOptions(refine=False)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_model_in_memory_is_the_one_that_runs(tmp_path, kind):
    x = torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        source, inputs = SOURCES[kind]()
        model = np_.load(source, inputs, name="mine")
        torch.testing.assert_close(model.eager(x)[0], NET(x))
    assert model.name == "mine" and len(model.graph.units) >= 3
    costs = np_.profile(model, PHONE, costs=tmp_path / "costs.sqlite", options=ONCE)
    ran = np_.run(np_.partition(model, costs, verify=False), inputs=[x], runs=2, baselines=False)
    folder = ran.save(tmp_path / "mine.nnprof")
    assert ran.agrees and np_.run(folder, device=PHONE, runs=2, baselines=False).agrees


def test_a_module_in_training_stays_so_and_is_measured_as_it_infers():
    model = np_.load(NET.train(), X)
    assert NET.training and NET[2].training
    NET.eval()
    assert torch.equal(model.eager(X + 1)[0], model.eager(X + 1)[0]), "dropout is at work"
    assert model.name == "Sequential"


def test_the_copy_of_a_model_from_memory_goes_with_it():
    model = np_.load(NET, X)
    folder = model.path.parent
    assert model.path.is_file()
    del model
    gc.collect()
    assert not folder.exists()


def test_sizes_left_open_stay_open_in_the_bundle(tmp_path):
    model = np_.load(scripted(nn.Conv2d(3, 4, 3)), ["1x3x?=8x?=8"])
    costs = np_.profile(model, PHONE, costs=tmp_path / "costs.sqlite", options=ONCE)
    assert np_.partition(model, costs, verify=False).bundle.inputs == ("1x3x?=8x?=8",)


@pytest.mark.parametrize(
    ("source", "inputs", "error", "words"),
    [
        (Path("none.pt"), None, ModelFileError, "does not exist"),
        (NET, None, InputSpecError, "say its inputs"),
        (NET, ["1x4x8x8"], InputSpecError, "does not run on the inputs 1x4x8x8"),
        (3, ["1x4x8x8"], InputSpecError, "int is not one of these"),
        (Function(lambda x: x + 1 if x.sum() > 0 else x), X, FrontendError, "cannot be exported"),
    ],
)
def test_models_that_cannot_be_loaded(source, inputs, error, words):
    with pytest.raises(error, match=words):
        np_.load(source, inputs)  # type: ignore[arg-type]


def test_a_device_and_a_table_that_are_open(way, tmp_path):
    notes: list[str] = []
    listener = Listener(note=notes.append, busy=notes.append)
    with CostStore(way.table) as store, open_client(PHONE) as client:
        costs = np_.read_costs(way.model, store, client)
        assert costs.device_spec == PHONE and costs.agent_info == client.info()
        assert costs.device == way.costs.device and costs.location == str(way.table)
        again = np_.profile(way.model, client, costs=store, options=ONCE, listener=listener)
        assert again.outcome is not None and again.outcome.n_measured == 0
        assert notes[0] == f"tiny on {costs.device}"
        assert notes[1].startswith("the CPU gets 4 threads") and len(notes) == 2
        planned = np_.partition(way.model, costs, device=client, verify=False)
        assert planned.converted is not None and planned.device_spec == PHONE
        assert np_.run(planned, client, runs=2, baselines=False).agrees
        assert store.devices(), "both stay open"
        on_cpu = np_.Latency(pin={"*": "cpu"})
        pinned = np_.partition(way.model, costs, on_cpu, device=client, listener=listener)
        assert "a faster baseline does not replace it" in notes[-1]
        assert {segment.target.key for segment in pinned.plan.segments} == {"cpu"}
    bundle = read_bundle(planned.save(tmp_path / "tiny.nnprof"))
    assert bundle.plans == planned.plans and bundle.costs == str(way.table)
    assert bundle.fits is not None and costs.measured is not None
    assert bundle.fits.keys() == costs.measured.fits.keys()


def test_ctrl_c_while_it_measures_says_what_is_kept(way, tmp_path):
    asked = {"costs": tmp_path / "costs.sqlite", "conditions": np_.ConditionOptions(threads=1)}
    with pytest.raises(Interrupted, match=r"4 measurements are kept in .*; the same call goes on"):
        np_.profile(way.model, PHONE, progress=interrupt_at(4), **asked)
    rest = np_.profile(way.model, PHONE, options=ONCE, **asked)
    assert rest.outcome is not None and rest.outcome.n_reused >= 4
    assert issubclass(Interrupted, KeyboardInterrupt), "what catches errors lets it through"


def test_a_listener_hears_the_notes_of_a_model_and_when_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))  # no earlier run has read it
    told: list[str] = []

    @contextlib.contextmanager
    def working(what: str) -> Iterator[None]:
        told.append(what)
        yield

    file, listener = (
        trace(TinyNet(), tmp_path / "unread.pt"),
        Listener(note=told.append, working=working),
    )
    model = np_.load(file, listener=listener)
    assert told == ["reading unread.pt", *model.notes] and "guessed" in model.notes[0]
    told.clear()
    again = np_.load(file, listener=listener)
    assert told == [*model.notes] and again.graph == model.graph, "its units are remembered"
    assert again.program.units == model.graph and told[-1] == "reading unread.pt"


def test_costs_of_a_table_that_lacks_a_unit_on_the_cpu(way, tmp_path):
    table, unit = shutil.copyfile(way.table, tmp_path / "costs.sqlite"), way.model.graph.units[1]
    with contextlib.closing(sqlite3.connect(table)) as link, link:
        lost = "delete from measurements where target = 'cpu' and signature = ?"
        link.execute(lost, [unit.signature])
    with pytest.raises(CostError, match=r"1 of the model's .* never measured on this device's CPU"):
        np_.read_costs(way.model, table)
    with open_client(PHONE) as client, CostStore(table) as store:
        filled = np_.read_costs(way.model, store, client, fill=True)
        planned = np_.partition(way.model, filled, device=client, verify=False)
    assert filled.measured is not None and "estimated" in filled.notes[-1]
    assert planned.bundle.fits is None and filled.notes[-1] in planned.bundle.notes


def add_unit_on_cpu(store: CostStore, agent: AgentInfo) -> None:
    fingerprint, version = device_fingerprint(agent), agent.cost_version
    store.add_device(fingerprint, description_of(agent), False)
    named = {"label": "conv2d", "members": ("s",), "offsets": (0, 1), "status": Status.OK}
    where = {"target": CPU, "fingerprint": fingerprint, "agent_version": version}
    store.add(Measurement("s", Kind.UNIT, samples_ns=(30,), **named, **where))


def notes(store: CostStore, agent: AgentInfo) -> list[str]:
    heard: list[str] = []
    note_other_agent(store, agent, Listener(note=heard.append))
    return heard


def test_portable_kernels_are_another_agent_where_the_clock_is_real():
    simulated = info(NPU)
    real = replace(simulated, simulated=False)
    fast = replace(real, engines={"cpu": ("xnnpack", "portable")})
    portable = replace(real, engines={"cpu": ("portable",)})
    assert fast.cost_version == "test-1" != portable.cost_version
    with CostStore(":memory:") as store:
        assert notes(store, portable) == []
        add_unit_on_cpu(store, portable)
        assert notes(store, portable) == []
        (note,) = notes(store, fast)
        assert fast.cost_version in note and portable.cost_version in note
        # With XNNPACK the emulator of a host has another accelerator: another fingerprint.
        faster = replace(fast, nnapi=info(NPU, replace(NPU, name="nnapi-fast")).nnapi)
        assert device_fingerprint(faster) != device_fingerprint(portable)
        assert notes(store, faster) == [note]
        add_unit_on_cpu(store, faster)
        assert notes(store, faster) == []
    # A simulated clock does not depend on the kernels.
    assert simulated.cost_version == replace(simulated, engines={"cpu": ("portable",)}).cost_version
