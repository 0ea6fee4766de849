"""A phone whose governor raises the clock within 60 ms of being busy and drops it within 20 ms of
rest, against the same phone at its highest clock.

With the warm-up of real phones at f374024 (ten runs that look alike, and one run a round)
the units of the network below that take the CPU 0.05 to 1 ms were measured 2.40 to 2.92 times as
long on such a phone, in the median 2.44 times; the test measures that, too (UnpacedOptions).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from nnapi_prof.costs.measurement import UNREADABLE, Kind, Measurement
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.find import open_device
from nnapi_prof.device.protocol.actions import Timing
from nnapi_prof.execution.profile import ProfileOptions, ProfileOutcome
from nnapi_prof.execution.profile.session import profile
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU
from tests.models import Function
from tests.parts import again_but
from tests.phones.conftest import CLEAN, GOVERNOR, constant

pytestmark = pytest.mark.slow


def pyramid() -> nn.Module:
    """Convolutions whose times on the phone's CPU lie between 0.05 and a few ms."""
    widths = (3, 8, 16, 24, 32, 48)
    layers = [nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in itertools.pairwise(widths)]
    activated = [part for layer in layers for part in (layer, nn.Sigmoid())]
    mean = Function(lambda x: x.mean((2, 3)))
    return nn.Sequential(*activated, mean, nn.Linear(widths[-1], 10))


@dataclass(frozen=True, slots=True)
class UnpacedOptions(ProfileOptions):
    """Warm-up as it was on real phones at f374024: ten runs that look alike, and one a round."""

    def timing(self, simulated: bool, unit: bool = False) -> Timing:
        usual = ProfileOptions.timing(self, False, unit)
        return replace(usual, warmup_ns=30_000_000, warm_ns=0, spin_ns=0, cooldown_ms=0)


Rows = Mapping[tuple[str, str], Measurement]
"""By unit or region and target."""


@pytest.fixture(scope="module")
def program():
    torch.manual_seed(0)
    return prepare(pyramid().eval(), (torch.zeros(1, 3, 160, 160),), "pyramid")


@pytest.fixture
def measure(built_host, program, phone, tmp_path):
    """Profiles the network, into a new table, on a phone that has these members of its CPU."""

    def run(options: type[ProfileOptions] = ProfileOptions, **cpu) -> tuple[ProfileOutcome, Rows]:
        usual = {name: value for name, value in CLEAN["cpu"].items() if name != "frequency"}
        device, table = phone({**CLEAN, "cpu": usual | cpu}), tmp_path / "costs.db"
        table.unlink(missing_ok=True)
        with CostStore(table) as store, open_device(device) as opened:
            outcome = profile(program, opened.client, store, options())
            rows = store.measurements(outcome.fingerprint)
        return outcome, {(row.signature, row.target.key): row for row in rows}

    return run


def ratios_of(rows: Rows, wanted: Rows) -> dict[tuple[str, str], float]:
    """How much longer things took than on another phone, of what was measured on both."""
    return {
        key: rows[key].latency_ns / row.latency_ns
        for key, row in wanted.items()
        if key in rows and row.usable
    }


def short_units(rows: Rows) -> set[tuple[str, str]]:
    """Units that take the CPU 0.05 to 1 ms."""
    return {
        key
        for key, row in rows.items()
        if row.kind is Kind.UNIT and row.target == CPU and 5e4 <= row.latency_ns <= 1e6
    }


def segments(outcome: ProfileOutcome) -> list[tuple[tuple[int, ...], str]]:
    return [(s.units, s.target.key) for s in outcome.plan.segments]


@pytest.mark.parametrize("readable", [True, False], ids=["readable", "unreadable"])
def test_units_cost_what_they_cost_at_the_highest_clock(measure, readable):
    clock = {"frequency": constant(2840, "MHz")} if readable else {}
    steady, wanted = measure(**clock)
    outcome, rows = measure(governor=GOVERNOR, **clock)
    ratios = ratios_of(rows, wanted)
    assert len(short_units(wanted)) >= 4 and short_units(wanted) <= ratios.keys()
    assert max(abs(ratio - 1) for ratio in ratios.values()) < 0.05
    assert segments(outcome) == segments(steady)
    assert set(outcome.doubts) == (set() if readable else {UNREADABLE})
    assert outcome.n_failed == steady.n_failed
    assert all(row.status is wanted[key].status for key, row in rows.items() if key in wanted)
    for key in short_units(wanted):
        for each in rows[key].rounds:
            assert each.moved is False
            assert each.cpu_khz == ((2_840_000, 2_840_000) if readable else (None, None))

    _, before = measure(UnpacedOptions, governor=GOVERNOR, **clock)
    short = [ratios_of(before, wanted)[key] for key in short_units(wanted)]
    assert min(short) > 2


CLOCKS = {
    "within rounds": (7, 1.4, None),
    "another beat": (29, 5.8, None),
    "for whole rounds": (90, 40, None),
    "for whole rounds, and cannot be read": (90, 40, "nothing"),
    "and says the highest": (90, 40, "stuck"),
    "and says anything": (90, 40, "noise"),
    "never, and says anything": (90, 0.001, "noise"),
}
HARDEST = "within rounds", "for whole rounds, and cannot be read", "and says anything"


@pytest.mark.parametrize("kind", again_but(CLOCKS, *HARDEST, why="less to tell it by"))
def test_a_clock_that_halves(measure, kind):
    """Rounds in which it did are measured again, and left out, whatever the clock says."""
    every, lasts, told = CLOCKS[kind]
    clock = {"frequency": constant(2840, "MHz")}
    held = {"every": constant(every, "ms"), "lasts": constant(lasts, "ms")}
    governor = {**GOVERNOR, "held": held | {"to": constant(0.5, "ratio")}}
    clean, steady = measure(**clock)
    if told == "nothing":
        del clock["frequency"]
    elif told:
        governor["told"] = told
    outcome, rows = measure(governor=governor, **clock)
    ratios = ratios_of(rows, steady)
    assert short_units(steady) <= ratios.keys()
    assert max(abs(ratio - 1) for ratio in ratios.values()) < 0.05
    rounds = [each for key in short_units(steady) for each in rows[key].rounds]
    moved = [each for each in rounds if each.moved]
    assert bool(moved) == ("never" not in kind)
    assert len(rounds) - len(moved) >= (1 if told else len(moved))
    assert any(each.repeats is not None for each in rounds) == bool(moved)
    assert outcome.n_failed == clean.n_failed
    assert told or segments(outcome) == segments(clean)
    assert set(outcome.doubts) == ({UNREADABLE} if told else set())
