"""Costs that another agent measured: told apart, and told."""

from dataclasses import replace

from nnapi_prof.api import Listener
from nnapi_prof.api.cost_tables import note_other_agent
from nnapi_prof.costs.measurement import Kind, Measurement, Status
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device import description_of, device_fingerprint
from nnapi_prof.device.protocol import AgentInfo
from nnapi_prof.graph.plan import CPU
from tests.measure.scripted import NPU, info


def unit_on_cpu(agent: AgentInfo) -> Measurement:
    return Measurement(
        signature="s",
        kind=Kind.UNIT,
        label="conv2d",
        members=("s",),
        offsets=(0, 1),
        target=CPU,
        fingerprint=device_fingerprint(agent),
        agent_version=agent.cost_version,
        status=Status.OK,
        samples_ns=(30,),
    )


def notes(store: CostStore, agent: AgentInfo) -> list[str]:
    heard: list[str] = []
    note_other_agent(store, agent, Listener(note=heard.append))
    return heard


def test_portable_kernels_are_another_agent_where_the_clock_is_real() -> None:
    real = replace(info(NPU), simulated=False)
    fast = replace(real, engines={"cpu": ("xnnpack", "portable")})
    portable = replace(real, engines={"cpu": ("portable",)})
    assert fast.cost_version == "test-1" != portable.cost_version
    with CostStore(":memory:") as store:
        assert notes(store, portable) == []
        store.add_device(device_fingerprint(portable), description_of(portable), False)
        store.add(unit_on_cpu(portable))
        assert notes(store, portable) == []
        (note,) = notes(store, fast)
        assert fast.cost_version in note and portable.cost_version in note
        # With XNNPACK the emulator of a host has another accelerator: another fingerprint.
        faster = replace(fast, nnapi=info(NPU, replace(NPU, name="nnapi-fast")).nnapi)
        assert device_fingerprint(faster) != device_fingerprint(portable)
        assert notes(store, faster) == [note]
        store.add_device(device_fingerprint(faster), description_of(faster), False)
        store.add(unit_on_cpu(faster))
        assert notes(store, faster) == []


def test_a_simulated_clock_does_not_depend_on_the_kernels() -> None:
    simulated = info(NPU)
    assert simulated.cost_version == replace(simulated, engines={"cpu": ("portable",)}).cost_version
