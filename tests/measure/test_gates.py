"""What a device must be like before it is measured, and waits for a hot one; anchors, drift and a
busy phone, on simulated phones whose heat outlives a process."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sqlite3
import struct
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
import torch
from torch import nn

import nnapi_prof as nnp
from nnapi_prof.api import Listener, profiling
from nnapi_prof.costs.measurement import DRIFTING, LOW, Kind, Measurement
from nnapi_prof.costs.store import CostStore
from nnapi_prof.costs.store.selection import Selection
from nnapi_prof.device.agent import AgentClient
from nnapi_prof.device.protocol import ActionResult, End
from nnapi_prof.device.state import SCRIPT, SILENCE_S, DeviceState, Gates, parse_state
from nnapi_prof.device.transport import CommandResult, Transport
from nnapi_prof.errors import DeviceError
from nnapi_prof.execution.profile import ProfileOptions, device_monitor
from nnapi_prof.execution.profile.device_monitor import DeviceMonitor, DriftMonitor
from nnapi_prof.execution.profile.state import Waits
from nnapi_prof.graph.plan import CPU
from tests.conftest import PHONES
from tests.emulator.phones.descriptions import constant
from tests.measure.scripted import NPU, ScriptedClient, info

ANDROID = """\
IsStatusOverride: false
Thermal Status: 1
Cached temperatures:
 Temperature{mValue=29.0, mType=3, mName=skin, mStatus=0}
Current temperatures from HAL:
 Temperature{mValue=51.2, mType=0, mName=cpu0, mStatus=0}
 Temperature{mValue=38.4, mType=3, mName=skin, mStatus=1}
Current Battery Service state:
  AC powered: false
  USB powered: true
  level: 87
  temperature: 312
saver=0
  mWakefulness=Awake
  mStayOn=false
clock cpu0 1800000
clock cpu7 2000000
cpu  100 0 100 700 100 0 0 0 0 0
cpu  150 0 130 760 100 10 0 0 0 0
"""
LINUX = "zone x86_pkg_temp 45000\nzone acpitz 27800\nzone off -40000\nsupply 64 Discharging\n"
AMBIENT_C = 25
HOT_C = 40
WAITING = "waiting for the device"


def test_what_android_tells():
    assert parse_state(ANDROID) == DeviceState(
        skin_mc=38_400,
        sensor="skin",
        thermal_status=1,
        allowed_khz={"cpu0": 1_800_000, "cpu7": 2_000_000},
        throttled=True,
        awake=True,
        stays_awake=False,
        battery_percent=87,
        battery_mc=31_200,
        charging=True,
        saver=False,
        load_percent=60,
    )


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (ANDROID, []),
        (ANDROID.replace("Awake", "Dozing"), ["screen of phone is off"]),
        (ANDROID.replace("USB powered: true", "USB powered: false"), ["on no charger"]),
        ("", []),
    ],
)
def test_a_phone_that_may_sleep_is_told_before_it_is_measured(monkeypatch, output, words):
    client = create_autospec(AgentClient, instance=True, serial="phone", transport=None)
    client.info.return_value.simulated, client.info.return_value.os = False, "android"
    monkeypatch.setattr(profiling, "read_state", lambda _: parse_state(output))
    notes = []
    profiling.note_sleep(client, Listener(note=notes.append))
    assert len(notes) == len(words) and all(each in notes[0] for each in words)


SAMSUNG = """Thermal Status: 0
Cached temperatures:
 Temperature{mValue=99.0, mType=4, mName=TYPE_SKIN, mStatus=0}
Current temperatures from HAL:
 Temperature{mValue=41.0, mType=1, mName=TYPE_CPU, mStatus=0}
 Temperature{mValue=24.4, mType=3, mName=TYPE_BATTERY, mStatus=0}
 Temperature{mStatus=0, mName=TYPE_SKIN, mType=4, mValue=25.3}
 Temperature{mValue=-99.9, mType=6, mName=TYPE_POWER_AMPLIFIER, mStatus=0}
Current cooling devices from HAL:
 CoolingDevice{mValue=0, mType=2, mName=TYPE_CPU}
Temperature static thresholds from HAL:
 TemperatureThreshold{mType=3, mName=skin, mHotThrottlingThresholds=[NaN, 39.0]}
"""


@pytest.mark.parametrize(
    ("output", "skin_mc", "sensor", "others"),
    [
        (LINUX, 45_000, "hottest zone", {"battery_percent": 64, "charging": False}),
        ("level: 5\ntemperature: 301\n", 30_100, "battery", {}),
        (SAMSUNG, 25_300, "skin", {}),  # its types count from 1
        ("Current temperatures from HAL:\n Temperature{mValue=NaN, mType=3, mName=s, mStatus=0}\n",
         None, "", {}),
        ("Cached temperatures:\n Temperature{mValue=31.5, mType=3, mName=therm, mStatus=0}\n"
         "Current temperatures from HAL:\n", 31_500, "skin", {}),
        ("Temperature{mValue=33200.0, mType=3, mName=skin, mStatus=0}", 33_200, "skin", {}),
        ("CPU temperatures: [45.0, 47.5]\nSkin temperatures: [30.5]\n", 30_500, "skin", {}),
        ("CPU temperatures: [45.0, 47.5]\nSkin temperatures: []\n", 47_500, "hottest zone", {}),
        ("zone quiet-therm 36\nzone cpu-0 41\n", 36_000, "skin", {}),  # whole degrees
    ],
)  # fmt: skip
def test_what_others_and_other_releases_tell(output, skin_mc, sensor, others):
    told = parse_state(output)
    assert (told.skin_mc, told.sensor) == (skin_mc, sensor)
    assert {name: getattr(told, name) for name in others} == others


GARBAGE = """Thermal Status: 99
Temperature{mValue=1e400, mType=3}
Temperature{mType=3, mName=skin}
  level: -5
  temperature: 99999999999999999999
  mWakefulness=
clock cpu0 -1
clock cpu1 99999999999999999999
zone skin 99999999999999999999
cpu  9 9
saver=yes"""


@pytest.mark.parametrize(
    "output", ["no words of ours", GARBAGE, f"Thermal Status: {'9' * 5000}\n"], ids=len
)
def test_garbage_tells_nothing(output):
    assert parse_state(output) == DeviceState()


@pytest.mark.parametrize("mute", ["", "thermalservice"])
def test_a_service_that_hangs_is_left_alone(tmp_path, mute):
    """The others are heard; one that is mute is not asked."""
    dumpsys, asked = tmp_path / "dumpsys", tmp_path / "asked"
    dumpsys.write_text(
        f'#!/bin/sh\necho "$1" >> {asked}\n[ "$1" = thermalservice ] && exec sleep 30\n'
        'echo "  level: 87"\n'
    )
    dumpsys.chmod(0o755)
    script = f"mute='{mute}'; {SCRIPT}".replace(f"sleep {SILENCE_S};", "sleep 0.3;")
    path, began = f"{tmp_path}:{os.environ['PATH']}", time.monotonic()
    told = subprocess.run(
        ["sh", "-c", script], env=os.environ | {"PATH": path}, text=True, stdout=subprocess.PIPE
    )
    assert time.monotonic() - began < 20
    state, hung = parse_state(told.stdout), set() if mute else {"thermalservice"}
    assert (state.silent, state.battery_percent, state.throttled) == (hung, 87, None)
    assert set(asked.read_text().split()) == {"hardware_properties", "power", "battery"} | hung


@pytest.mark.parametrize(
    ("gates", "reasons"),
    [
        (Gates(), []),
        (Gates(max_temp_c=50), ["held back by heat"]),
        (Gates(max_temp_c=38), ["skin at 38.4 °C, 38 at most", "held back by heat"]),
        (Gates(min_battery=90), []),  # it is on a charger
        (Gates(max_load=50), ["others keep 60 % busy, 50 at most"]),
        (Gates(max_load=60), []),
    ],
)
def test_reasons(gates, reasons):
    assert gates.reasons(parse_state(ANDROID)) == reasons


def test_a_battery_is_low_and_a_core_held_down_where_it_was_faster():
    low = DeviceState(battery_percent=12, charging=False)
    assert bool(Gates(min_battery=20).reasons(low)) and not Gates(min_battery=10).reasons(low)
    state, asked = parse_state("clock cpu0 1800000\nclock cpu7 2000000\n"), Gates(max_temp_c=50)
    assert asked.reasons(state) == []
    assert asked.reasons(state, {"cpu0": 1_800_000, "cpu7": 2_050_000}) == []
    held = asked.reasons(state, {"cpu0": 1_800_000, "cpu7": 2_400_000})
    assert held == ["1 cores held below the clock that they had"]


@pytest.fixture
def body(tmp_path, monkeypatch):
    path = tmp_path / "body"
    monkeypatch.setenv("NNAPI_EMULATOR_BODY", str(path))
    return path


def phone_in(folder: Path, heat_c: float = 0) -> str:
    """A simulated phone that is half as fast above HOT_C; what is busy heats it by ``heat_c``."""
    described = json.loads((PHONES / "npu-phone.json").read_text())
    described["thermal"] = {
        "ambient": constant(AMBIENT_C, "degC"),
        "time_constant": constant(100, "s"),
        "throttle": [{"above": constant(HOT_C, "degC"), "factor": constant(2, "ratio")}],
    }
    for unit in (described["cpu"], *described["accelerators"]):
        unit["heat"] = constant(heat_c, "degC")
    path = folder / "phone.json"
    path.write_text(json.dumps(described))
    return f"sim:{path}"


def heat(body: Path, degrees: float) -> None:
    """As if somebody had just used the phone."""
    body.touch()
    with body.open("r+b") as file:  # in place: the phone's processes have it mapped
        file.write(struct.pack("<dQ", degrees, time.time_ns()))


@functools.cache
def small_model() -> nnp.Model:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    return nnp.load(torch.export.export(module, (torch.zeros(1, 3, 16, 16),)))


BRIEF = nnp.MeasureOptions(preferences=["fast"], refine=False, runs=5)


def profiled(
    costs: Path, phone: str, options: nnp.MeasureOptions = BRIEF, **more: Any
) -> nnp.Costs:
    return nnp.profile(small_model(), phone, costs=costs, options=options, **more)


def rows(costs: Path, *kinds: Kind) -> list[Measurement]:
    with CostStore(costs) as store:
        newest = store.select(Selection(newest=True, kinds=kinds or (Kind.UNIT, Kind.CHAIN)))
    return sorted(newest, key=lambda m: (m.signature, m.target.key))


def test_a_hot_phone_is_waited_for(tmp_path, body):
    phone = phone_in(tmp_path)
    small_model()
    heat(body, 900)
    with pytest.raises(DeviceError, match=r"after 0 s of waiting: simulated phone at \d+\.\d °C"):
        profiled(tmp_path / "none.sqlite", phone, gates=nnp.Gates(max_temp_c=60, wait_s=0))
    waits = []

    def cool(progress):
        if progress.phase == WAITING:
            waits.append(progress.label)
            heat(body, AMBIENT_C)

    costs = profiled(tmp_path / "a.sqlite", phone, gates=nnp.Gates(max_temp_c=60), progress=cool)
    assert costs.outcome.spent_s["wait"] > 0
    assert len(waits) == 1 and "60 at most" in waits[0]
    measured = [row for row in rows(tmp_path / "a.sqlite") if row.usable]
    assert measured and all(row.skin_mc is not None and row.skin_mc <= 60_000 for row in measured)


def silently(_purpose: str) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


@pytest.mark.parametrize(("statuses", "limit_s"), [([3, 1, 0], 600.0), ([3], 0.0), ([0], 600.0)])
def test_a_phone_that_android_calls_hot(monkeypatch, statuses, limit_s):
    monkeypatch.setattr(device_monitor, "REST_S", 0.0)
    client = create_autospec(AgentClient, instance=True, serial="phone")
    client.info.return_value = replace(info(NPU), os="android", simulated=False)
    dumps = [ANDROID.replace("Status: 1", f"Status: {status}") for status in statuses]
    client.transport = create_autospec(Transport, instance=True)
    client.transport.shell.side_effect = [CommandResult(0, text) for text in dumps]
    waits, phases, options = Waits({}, bounded=False), [], ProfileOptions(cooldown_s=limit_s)
    monitor = DeviceMonitor(client, options, iter, silently, lambda *words: phases.append(words))
    assert monitor.before(waits) == parse_state(dumps[-1])
    assert phases == [(WAITING, 0, 600, "the phone to cool down")] * (len(dumps) - 1)
    assert (waits.waited_s > 0, waits.fruitless) == (len(dumps) > 1, False)


@pytest.mark.parametrize("cools", [True, False])
def test_a_phone_rests_until_the_reference_is_as_fast_as_before(monkeypatch, cools):
    monkeypatch.setattr(device_monitor, "LOOK_SIMULATED_S", 0.0)
    client, waits, phases = ScriptedClient(throttled=(False,) * 9), Waits({}, bounded=False), []

    def report(*words: object) -> None:
        phases.append(words)
        client.throttled = (not cools or len(phases) < 2,) * 9

    def ask(request):
        return (event for event in client.run(request) if isinstance(event, ActionResult))

    options = ProfileOptions(cooldown_s=60.0 if cools else 0.01)
    monitor = DeviceMonitor(client, options, ask, silently, report)
    calm, drift, held_down = monitor.anchor(), DriftMonitor(0.0), DriftMonitor(0.0)
    client.throttled = (True,) * 9
    hot = monitor.anchor()
    drift.add(calm)
    held_down.add(hot)
    monitor.rest(drift.settled, waits)
    words = (WAITING, 0, 60 if cools else 1, "the reference model to be as fast as it was")
    assert set(phases) == {words} and (len(phases) == 2 or not cools)
    assert (waits.waited_s > 0, waits.fruitless) == (True, not cools)
    earlier = [row for anchor in (hot, calm) for row in monitor.rows(anchor, "f")]
    for each in (drift, held_down):
        each.note_earlier(earlier)
    assert (drift.low, held_down.low) == (False, True)


def test_what_drifts_is_marked_and_measured_again(tmp_path, body):
    phone, calm, drifting = phone_in(tmp_path), tmp_path / "calm.sqlite", tmp_path / "drift.sqlite"
    profiled(calm, phone)
    used = []

    def use(progress):
        if progress.phase == "trial" and progress.done and not used:
            used.append(progress.done)
            heat(body, 300)
        elif progress.phase == WAITING:
            heat(body, AMBIENT_C)

    # Without the agent's own waiting for hot phones, which would repeat these rounds.
    gates = nnp.Gates(anchor_s=0.001, max_temp_c=HOT_C - 1)
    costs = profiled(drifting, phone, replace(BRIEF, cooldown_s=0), gates=gates, progress=use)
    assert used and costs.outcome.spent_s["anchor"] > 0
    assert DRIFTING not in costs.outcome.doubts
    before, after = ([(m.key, m.samples_ns) for m in rows(table)] for table in (calm, drifting))
    assert before == after
    with CostStore(drifting) as store:
        marked = [row for row in store.select(Selection()) if row.drift_percent is not None]
    assert marked and all(row.drift_percent > 50 and DRIFTING in row.flags for row in marked)
    anchors = rows(drifting, Kind.ANCHOR)
    assert {row.target.key.partition(":")[0] for row in anchors} == {"cpu", "nnapi"}
    assert all(row.simulated and len(row.samples_ns) == 25 for row in anchors)


def test_a_phone_that_is_slower_than_in_earlier_profiles(tmp_path, body):
    """As one whose clock is held down all the time, which no later round shows."""
    phone, table = phone_in(tmp_path), tmp_path / "a.sqlite"
    fresh, gates = replace(BRIEF, fresh=True), nnp.Gates(anchor_s=3600)
    watched = functools.partial(profiled, table, phone, fresh, gates=gates)
    for _ in range(2):
        assert LOW not in watched().outcome.doubts
    with contextlib.closing(sqlite3.connect(table)) as link, link:
        link.execute(
            "update measurements set samples_ns = ? where id in (select min(id) from measurements"
            " where kind = 'anchor' and target = 'cpu')",
            (json.dumps([900] * 25),),
        )
    outcome = watched().outcome
    assert outcome.doubts[LOW] == outcome.n_measured - outcome.n_failed > 0


def test_a_busy_phone(tmp_path, body):
    phone, table = phone_in(tmp_path, heat_c=200), tmp_path / "a.sqlite"
    profiled(table, phone, conditions=nnp.ConditionOptions(sustained=20))
    body.unlink()
    profiled(table, phone)
    medians: dict[int, list[float]] = {0: [], 20: []}
    for row in rows(table):
        if row.usable and row.target == CPU:
            medians[row.conditions.sustained_s].append(row.summary.median_ns)
    ratios = [busy / calm for calm, busy in zip(medians[0], medians[20], strict=True)]
    assert len(ratios) > 2 and all(1.8 < ratio < 2.2 for ratio in ratios), ratios


def test_waits_take_a_tenth_of_measuring():
    spent = {"measure": 40.0}
    waits = Waits(spent, bounded=True)
    assert (waits.left_s(60), waits.patience(False).wait_ms) == (0, 0)  # 4 s cool nothing
    spent["measure"] = 100.0
    assert (waits.left_s(60), waits.left_s(7)) == (10, 7)
    spent["measure"] += 8
    waits.note(End(3, 3, 0, 8000, False, (1_800_000, None)), simulated=False)
    assert waits.left_s(60) == 0
    assert waits.patience(False).seen_khz == (1_800_000, None)
    spent["measure"] += 100
    assert waits.left_s(60) == 12
    waits.rested(6, brought=True)  # while nothing was measured
    assert waits.left_s(60) == 6
    waits.note(End(3, 3, 0, 6000, True, ()), simulated=False)  # it stayed hot
    spent["measure"] += 1000
    assert (waits.left_s(60), waits.waited_s) == (0, 20)
    assert waits.patience(False).wait_ms == 0
    assert waits.patience(False).seen_khz == (1_800_000, None)


def test_who_asks_for_it_waits_as_long_as_said():
    asked = Waits({}, bounded=False)
    assert (asked.left_s(600), asked.patience(False).wait_ms) == (600, None)
    simulated = Waits({}, bounded=True)
    assert simulated.patience(True).wait_ms is None
    simulated.note(End(1, 1, 0, 60_000, True), simulated=True)
    assert (simulated.patience(True).wait_ms, simulated.waited_s) == (0, 0)
