"""Simulated fleets: phones that are drawn, alike at every call, and real to the emulator."""

from __future__ import annotations

import math
import statistics
from collections import Counter

import pytest

import nnapi_prof as np_
from nnapi_prof.device.find import open_device
from nnapi_prof.device.fleet import CPU_SPREAD, FleetSpec, draw_phone, parse_fleet, phone_path
from nnapi_prof.device.protocol.description import device_fingerprint
from nnapi_prof.errors import DeviceNotFound, UsageError


def test_a_phone_is_drawn_alike_at_every_call() -> None:
    spec = FleetSpec(40, 3, 7)
    assert draw_phone(spec) == draw_phone(spec)
    assert draw_phone(spec) != draw_phone(FleetSpec(40, 4, 7))
    assert phone_path(spec) == phone_path(spec)


def test_a_fleet_is_as_wide_as_its_sources_say() -> None:
    phones = [draw_phone(phone) for phone in FleetSpec(300, 5).phones()]
    assert len({p["properties"]["ro.build.fingerprint"] for p in phones}) == 300
    socs: dict[str, list[float]] = {}
    for phone in phones:
        origin = phone["cpu"]["peak"]["default"]["origin"]
        factor = float(origin.rpartition("drawn: ")[2].partition(" ")[0])
        socs.setdefault(phone["properties"]["ro.soc.model"], []).append(math.log(factor))
    assert 45 <= len(socs) <= 60
    spread = statistics.stdev(statistics.fmean(each) for each in socs.values())
    assert spread == pytest.approx(CPU_SPREAD, rel=0.25)
    within = [v - statistics.fmean(each) for each in socs.values() if len(each) > 3 for v in each]
    assert 0.03 < statistics.stdev(within) < 0.07
    kinds = Counter(phone["description"].split()[2].rstrip(",") for phone in phones)
    assert len(kinds) == 4 and min(kinds.values()) > 20


def test_the_emulator_is_each_of_them() -> None:
    fingerprints = set()
    for index in (0, 1):
        serial = f"sim-fleet:12?seed=1#{index}"
        with open_device(serial) as opened:
            info = opened.client.info()
            assert opened.serial == serial and info.simulated
        drawn = draw_phone(parse_fleet(serial))
        assert info.properties["ro.soc.model"] == drawn["properties"]["ro.soc.model"]
        assert info.properties["ro.product.model"] == f"fleet-1-{index}"
        assert [a.name for a in info.nnapi.accelerators] == [
            a["name"] for a in drawn["accelerators"]
        ]
        fingerprints.add(device_fingerprint(info))
    assert len(fingerprints) == 2


def test_the_list_of_a_fleet() -> None:
    listed = np_.devices("sim-fleet:4?seed=2")
    assert [each.serial for each in listed] == [f"sim-fleet:4?seed=2#{i}" for i in range(4)]
    assert all("Drawn from" in each.description for each in listed)
    assert [each.serial for each in np_.devices("sim-fleet:4#1")] == ["sim-fleet:4?seed=0#1"]


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("sim-fleet:", UsageError, "is not a simulated fleet"),
        ("sim-fleet:0", UsageError, "is not a simulated fleet"),
        ("sim-fleet:3?seed=x", UsageError, "is not a simulated fleet"),
        ("sim-fleet:3?seed=1", UsageError, r"is a fleet of 3: name one of them"),
        ("sim-fleet:3#3", DeviceNotFound, r"has phones #0 to #2, not #3"),
    ],
)
def test_mistakes(spec: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_device(spec)
