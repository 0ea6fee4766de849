"""Waits for a hot device: a tenth of measuring, none twice in vain; clocks seen are carried on."""

from __future__ import annotations

from nnapi_prof.device.protocol import End
from nnapi_prof.execution.profile.state import Waits


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
