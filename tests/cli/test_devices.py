"""``devices``, ``doctor``, phones that refuse, and other doors to NNAPI."""

import itertools
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from nnapi_prof.cli import measure
from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.build import HostBuild
from nnapi_prof.device.find import list_phones
from nnapi_prof.device.transport import adb
from nnapi_prof.execution.profile import measurer
from nnapi_prof.execution.report import RunReport
from tests.cli.common import INPUT, Cli, Result, count_rows, python, trace


@pytest.fixture
def use(cli: Cli, tiny: Path, tmp_path: Path) -> Cli:
    """``use(SERIAL)`` profiles a tiny model there."""

    def call(serial: str, *more: object) -> Result:
        named = ("--device", serial, "--input", INPUT, "--costs", tmp_path / "costs.sqlite")
        return cli("profile", *named, "--runs", 3, *more, tiny)

    return call


def test_listed_without_a_phone(cli):
    result = cli.ok("devices")
    head, *rows = (line.split() for line in result.out.splitlines())
    assert result.err == "" and head == ["device", "reached", "by", "state", "description"]
    document = cli.document("devices")["devices"]
    # With the extra of that name there are more.
    rows = [row[0] for row in rows if not row[0].startswith("qnn:")]
    told = {d["serial"]: d["simulated"] for d in document if not d["serial"].startswith("qnn:")}
    assert rows == list(told) == ["local", *(f"sim:{name}" for name in list_phones())]
    assert list(told.values()) == [False, *[True] * len(list_phones())]


def test_listed_with_phones(cli, adb_server, asking_phone, start_daemon):
    stranger, friend = asking_phone(), start_daemon()
    adb_server.adb("connect", stranger.serial)
    adb_server.connect(friend.serial)
    rows = {row["serial"]: row for row in cli.document("devices")["devices"]}
    for phone, state in ((stranger, "unauthorized"), (friend, "device")):
        row = rows[phone.serial]
        assert (row["state"], row["kind"]) == (state, "adb server")
    table = cli("devices").out
    assert re.search(rf"{re.escape(stranger.serial)} +adb server +unauthorized", table)


def test_without_a_phone_a_simulated_one_is_used_and_named(cli):
    note = "note: no phone is connected: using the simulated phone sim:npu-phone"
    assert note in cli.ok("agent", "info").err


def test_an_unauthorised_phone(use, asking_phone, monkeypatch):
    monkeypatch.setattr(adb, "CONSENT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(adb, "LINK_TIMEOUT_S", 0.5)
    phone = asking_phone()
    result = use(phone.serial)
    assert result.code == 1 and result.out == ""
    assert result.error == (
        f"{phone.serial} does not know this computer yet: confirm 'Allow USB debugging' on the "
        "phone's screen, then run again"
    )
    # While there was time to do so, the user was told to look at the phone.
    assert f"{phone.serial} asks its owner: confirm 'Allow USB debugging'" in result.err


def test_a_device_that_never_finishes(use, start_adbd):
    """The watchdog ends every run: what remains is the estimate for eager PyTorch. Without an
    NNAPI, whose drivers would be waited for."""
    result = use(start_adbd(), "--timeout-s", 0.001, "--runs", 100_000)
    assert result.code == 0
    measured = result.out.split()[0]
    assert f"note: {measured} of these the device refused or did not finish" in result.err
    table = [re.split(r" *[┃│] *", line)[1:-1] for line in result.out.splitlines()]
    (host,) = (row[1] for row in table if len(row) == 2 and row[0].startswith("sigmoid "))
    assert ["unit", "host"] in table and float(host) > 0


def test_what_was_waited_for_is_told(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(measure, "say", lines.append)
    waits = {"waited_s": 12.4, "stayed_hot": True, "lost_s": 20.0}
    measure._say_doubts(SimpleNamespace(n_failed=0, doubts={}, stable=True, **waits), True)
    assert lines == [
        "note: waited 12 s for a phone that was too hot, and no longer, because it stayed hot",
        "note: waited 20 s for drivers that died or hung",
    ]


def test_storage_too_small_for_the_weights(cli, start_adbd, built_host, tmp_path, monkeypatch):
    """What was measured before the storage was full is kept."""
    monkeypatch.setattr(measurer, "MAX_ACTIONS", 5)  # one unit in a request, the heavy one last
    agent_kb = built_host.agent.stat().st_size // 1024
    serial = start_adbd("npu-phone", storage=f"{agent_kb + 2000}k")
    heavy = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16384))  # 4 MiB at its end
    model, costs = trace(heavy, tmp_path / "heavy.pt", (1, 64)), tmp_path / "costs.sqlite"
    named = ("--input", "1x64", "--costs", costs, "--preference", "fast", "--runs", 3)
    # A trial of threads would begin with the heaviest unit.
    error = cli.error("profile", "--device", serial, *named, "--threads", 1, model, code=1)
    assert "is full" in error and "free some space there" in error
    assert count_rows(costs) >= 4
    assert f"the {count_rows(costs)} measurements made before are kept in {costs}" in error


# ---- doctor --------------------------------------------------------------------------------------


FAMILIES = ["Python", "Compilers", "Cache", "Agents", "Costs", "ADB", "USB", "Phone"]


def test_the_doctor_without_a_phone(cli):
    result = cli.ok("doctor")
    lines = result.out.splitlines()
    assert result.err == "" and [line for line in lines[:-1] if line[0] != " "] == FAMILIES
    # A finding is a line, and its fix another.
    for before, line in itertools.pairwise(lines):
        is_fix = line.startswith("           fix: ")
        assert (before.split()[0] in ("warning", "problem")) == is_fix
    assert "  warning  device: no phone is available: simulated ones" in result.out
    assert lines[-1].startswith("0 problems, ")
    data = cli.document("doctor")
    assert data["problems"] == 0
    assert list(dict.fromkeys(each["family"] for each in data["findings"])) == FAMILIES
    assert data["warnings"] == sum(each["level"] == "warning" for each in data["findings"])


def test_a_problem(cli, tmp_path, monkeypatch):
    table = tmp_path / "costs.sqlite"
    monkeypatch.setenv("NNAPI_PROF_COSTS", str(table))
    table.write_text("hello " * 200)
    result = cli("doctor")
    assert result.code == 1 and result.err == ""
    assert f"  problem  cost table: {table}: file is not a database\n" in result.out
    assert result.out.splitlines()[-1].startswith("1 problem, ")
    result = cli("doctor", "--json")
    assert result.code == 1 and result.document("doctor")["problems"] == 1


def test_a_phone(cli, start_adbd):
    serial = start_adbd("npu-phone")
    result = cli.ok("doctor", "--device", serial)
    assert f"  ok       device: {serial} (nnapi-prof Test Phone), adb over TCP\n" in result.out
    assert "\nNNAPI\n" in result.out
    result = cli("doctor", "--device", start_adbd("npu-phone", storage="ro"))
    assert result.code == 1 and "is read-only" in result.out


def test_fast_and_without_torch():
    """As the user starts it: under 5 s, and what is slow to import is not imported.

    Seconds of the processor, with those of the compilers it tries: machines of tests are shared.
    """
    code = (
        "import sys\nfrom nnapi_prof.cli import main\n"
        "try: main(['doctor', '-q'])\n"
        "finally: print(sorted({'torch', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    before = os.times()
    assert python("-c", code, check=True).stdout.splitlines()[-1] == "[]"
    after = os.times()
    assert sum(after[2:4]) - sum(before[2:4]) < 5


# ---- other doors: the emulator as a support library and as NeuronAdapter -------------------------


PHONE = "sim:npu-phone"
WIDE = ("--input", "1x3x32x32")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is too much for the CPU: 40 million multiplications."""
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3))
    return trace(model, tmp_path_factory.mktemp("models") / "wide.pt", (1, 3, 32, 32))


@pytest.fixture
def libraries(built_host: HostBuild) -> dict[str, Path]:
    """Door -> the emulator behind it."""
    return {
        "nnapi": built_host.library,
        "support library": built_host.support_library,
        "neuron adapter": built_host.neuron_adapter,
    }


def test_a_model_goes_all_the_way_through_each_door(cli, wide, tmp_path, libraries):
    """Rows of one door are not another's, outputs are."""
    costs = tmp_path / "costs.sqlite"
    errors = []
    for door, library in libraries.items():
        through = ("--device", PHONE, "--nnapi-library", library)
        same = ("--device", f"{PHONE},library={library}")
        named = (*through, *WIDE, "--costs", costs, "--threads", 1)
        bundle = tmp_path / f"{door}.nnprof"
        nnapi = cli.ok("devices", *through, "--json").document("agent-info")["nnapi"]
        at = "" if door == "nnapi" else f"@{library.name}"
        names = [each["name"] for each in nnapi["accelerators"]]
        assert nnapi["door"] == door
        assert names == [f"{name}{at}" for name in ("sim-npu", "sim-gpu", "nnapi-reference")]
        cli.ok("profile", *named, "--preference", "fast", "--runs", 3, wide)
        cli.ok("partition", *named, "--output", bundle, wide)
        cli.ok("run", *same, "--runs", 3, bundle)
        report = RunReport.from_json((bundle / "run.json").read_text())
        accelerators = {segment.target.accelerator for segment in report.runs[0].plan.segments}
        assert accelerators - {None} == {f"sim-npu{at}"}
        assert all(check.ok for check in report.checks)
        errors.append([check.max_abs for check in report.checks])
    assert errors[0] == errors[1] == errors[2]
    # A plan of one door is not run through another.
    bundle = tmp_path / "support library.nnprof"
    assert "sim-npu@libnnapi_support.so" in cli.error("run", "--device", PHONE, bundle)
    with CostStore(costs) as store:
        assert len(store.devices()) == 3


@pytest.mark.parametrize("command", ["profile", "agent info", "devices"])
def test_a_library_that_cannot_be_used(cli, wide, tmp_path, command):
    model = (wide,) if command == "profile" else ()
    through = ("--device", PHONE, "--nnapi-library", tmp_path / "none.so")
    error = cli.error(*command.split(), *through, *model, code=1)
    assert "no accelerator is reached through" in error and "none.so" in error


def test_the_loaders_choice_is_no_accelerator_of_a_door(cli, wide, libraries):
    named = ("--device", PHONE, "--nnapi-library", libraries["neuron adapter"], *WIDE)
    error = cli.error("profile", *named, "--accelerator", "auto", wide)
    assert "no accelerator 'auto' on this device" in error
