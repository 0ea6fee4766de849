"""``devices``, ``doctor``, phones that refuse, and other doors to NNAPI."""

import itertools
import os
import re
from pathlib import Path

import pytest
from torch import nn

from nnapi_prof.costs.store import CostStore
from nnapi_prof.device.build import build_host
from nnapi_prof.device.find import list_phones
from nnapi_prof.device.transport import adb
from nnapi_prof.execution.profile import measurer
from nnapi_prof.execution.report import RunReport
from tests.cli.common import INPUT, Cli, Result, count_rows, python, trace, unit_row


@pytest.fixture
def use(cli: Cli, tiny: Path, tmp_path: Path) -> Cli:
    """``use(SERIAL)`` profiles a tiny model there."""

    def call(serial: str | None, *more: object) -> Result:
        named = () if serial is None else ("--device", serial)
        costs = ("--costs", tmp_path / "costs.sqlite")
        return cli("profile", *named, "--input", INPUT, *costs, "--runs", 3, *more, tiny)

    return call


# ---- the list ----------------------------------------------------------------------------------


def test_listed_without_a_phone(cli):
    result = cli.ok("devices")
    assert result.err == ""
    head, *rows = (line.split() for line in result.out.splitlines())
    assert head == ["device", "reached", "by", "state", "description"]
    rows = [row for row in rows if not row[0].startswith("qnn:")]  # with the extra of that name
    assert [row[0] for row in rows] == ["local", *(f"sim:{name}" for name in list_phones())]
    result = cli("devices", "--json")
    document = result.document("devices")["devices"]
    document = [row for row in document if not row["serial"].startswith("qnn:")]
    assert [row["serial"] for row in document] == [row[0] for row in rows]
    assert [row["simulated"] for row in document] == [row[0] != "local" for row in rows]


def test_listed_with_phones(cli, adb_server, asking_phone, start_daemon):
    stranger, friend = asking_phone(), start_daemon()
    adb_server.adb("connect", stranger.serial)
    adb_server.connect(friend.serial)
    result = cli.document("devices")
    rows = {row["serial"]: row for row in result["devices"]}
    assert rows[stranger.serial]["state"] == "unauthorized"
    assert rows[friend.serial]["state"] == "device"
    assert {rows[p.serial]["kind"] for p in (stranger, friend)} == {"adb server"}
    table = cli("devices").out
    assert re.search(rf"{re.escape(stranger.serial)} +adb server +unauthorized", table)


# ---- not there ---------------------------------------------------------------------------------


def test_without_a_phone_a_simulated_one_is_used_and_named(use):
    result = use(None)
    assert result.code == 0
    assert "note: no phone is connected: using the simulated phone sim:npu-phone" in result.err


# ---- there, and unwilling ----------------------------------------------------------------------

CONSENT = "does not know this computer yet: confirm 'Allow USB debugging' on the phone's screen"


def test_an_unauthorised_phone(use, asking_phone, monkeypatch):
    monkeypatch.setattr(adb, "CONSENT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(adb, "LINK_TIMEOUT_S", 0.5)
    phone = asking_phone()
    result = use(phone.serial)
    assert result.code == 1 and result.out == ""
    assert result.error == f"{phone.serial} {CONSENT}, then run again"
    # While there was time to do so, the user was told to look at the phone.
    assert f"{phone.serial} asks its owner: confirm 'Allow USB debugging'" in result.err


def test_a_device_that_never_finishes(use):
    """The watchdog ends every run: what remains is the estimate for eager PyTorch."""
    result = use("local", "--preference", "fast", "--timeout-s", 0.001, "--runs", 100_000)
    assert result.code == 0
    measured = result.out.split()[0]
    assert f"note: {measured} of these the device refused or did not finish" in result.err
    row = unit_row(result.out, "sigmoid")
    assert set(row) == {"unit", "host"} and float(row["host"]) > 0


# ---- its storage -------------------------------------------------------------------------------


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
    assert f"measurements made before are kept in {costs}" in error
    assert count_rows(costs) >= 4
    assert f"the {count_rows(costs)} measurements" in error


# ---- doctor --------------------------------------------------------------------------------------


FAMILIES = ["Python", "Compilers", "Cache", "Agents", "Costs", "ADB", "USB", "Phone"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cost table of the test's own, and no XNNPACK that others name."""
    monkeypatch.setenv("NNAPI_PROF_COSTS", str(tmp_path / "costs.sqlite"))


def test_without_a_phone(cli):
    result = cli.ok("doctor")
    assert result.err == ""
    lines = result.out.splitlines()
    assert [line for line in lines[:-1] if not line.startswith(" ")] == FAMILIES
    # A finding is a line, and its fix another.
    for before, line in itertools.pairwise(lines):
        if line.startswith("           fix: "):
            assert before.split()[0] in ("warning", "problem")
        else:
            assert before.split()[0] not in ("warning", "problem")
    assert "  warning  device: no phone is available: simulated ones" in result.out
    assert lines[-1].startswith("0 problems, ")


def test_a_problem(cli, tmp_path):
    (tmp_path / "costs.sqlite").write_text("hello " * 200)
    result = cli("doctor")
    assert result.code == 1 and result.err == ""
    assert f"  problem  cost table: {tmp_path}/costs.sqlite: file is not a database\n" in result.out
    assert result.out.splitlines()[-1].startswith("1 problem, ")


def test_the_document(cli, tmp_path):
    data = cli.document("doctor")
    assert data["problems"] == 0
    assert list(dict.fromkeys(each["family"] for each in data["findings"])) == FAMILIES
    assert data["warnings"] == sum(each["level"] == "warning" for each in data["findings"])
    (tmp_path / "costs.sqlite").write_text("hello " * 200)
    result = cli("doctor", "--json")
    assert result.code == 1 and result.document("doctor")["problems"] == 1


def test_a_phone(cli, start_adbd):
    serial = start_adbd("npu-phone")
    result = cli.ok("doctor", "--device", serial)
    assert f"  ok       device: {serial} (nnapi-prof Test Phone), adb over TCP\n" in result.out
    assert "\nNNAPI\n" in result.out
    result = cli("doctor", "--device", start_adbd("npu-phone", storage="ro"))
    assert result.code == 1 and "is read-only" in result.out


def test_fast_and_without_torch(tmp_path):
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
INPUT = "1x3x32x32"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is too much for the CPU: 40 million multiplications."""
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3))
    return trace(model, tmp_path_factory.mktemp("models") / "wide.pt", (1, 3, 32, 32))


@pytest.fixture(scope="module")
def libraries() -> dict[str, Path]:
    """Door -> the emulator behind it."""
    built = build_host()
    return {
        "nnapi": built.library,
        "support library": built.support_library,
        "neuron adapter": built.neuron_adapter,
    }


def test_a_model_goes_all_the_way_through_each_door(cli, wide, tmp_path, libraries):
    costs = tmp_path / "costs.sqlite"
    errors = {}
    for door, library in libraries.items():
        through = ("--device", PHONE, "--nnapi-library", library)
        named = (*through, "--input", INPUT, "--costs", costs, "--threads", 1)
        bundle = tmp_path / f"{door}.nnprof"
        info = cli.ok("devices", *through, "--json").document("agent-info")
        at = "" if door == "nnapi" else f"@{library.name}"
        assert info["nnapi"]["door"] == door
        names = [each["name"] for each in info["nnapi"]["accelerators"]]
        assert names == [f"{name}{at}" for name in ("sim-npu", "sim-gpu", "nnapi-reference")]
        cli.ok("profile", *named, "--preference", "fast", "--runs", 3, wide)
        cli.ok("partition", *named, "--output", bundle, wide)
        cli.ok("run", *through, "--runs", 3, bundle)
        report = RunReport.from_json((bundle / "run.json").read_text())
        plan = report.runs[0].plan
        accelerators = {segment.target.accelerator for segment in plan.segments}
        assert accelerators - {None} == {f"sim-npu{at}"}
        assert all(check.ok for check in report.checks)
        errors[door] = [check.max_abs for check in report.checks]
    assert errors["support library"] == errors["neuron adapter"] == errors["nnapi"]
    with CostStore(costs) as store:
        assert len(store.devices()) == 3  # no rows of one door are another's


def test_a_plan_of_one_door_is_not_run_through_another(cli, wide, tmp_path, libraries):
    through = ("--device", f"{PHONE},library={libraries['support library']}")
    costs = tmp_path / "costs.sqlite"
    named = ("--input", INPUT, "--costs", costs, "--threads", 1, "--runs", 3)
    bundle = tmp_path / "wide.nnprof"
    cli.ok("profile", *through, *named, "--preference", "fast", wide)
    cli.ok("partition", *through, *named[:-2], "--output", bundle, wide)
    result = cli("run", "--device", PHONE, bundle)
    assert (result.code, "sim-npu@libnnapi_support.so" in result.error) == (2, True)


@pytest.mark.parametrize("command", ["profile", "agent info", "devices"])
def test_a_library_that_cannot_be_used(cli, wide, tmp_path, command):
    model = (wide,) if command == "profile" else ()
    through = ("--device", PHONE, "--nnapi-library", tmp_path / "none.so")
    error = cli.error(*command.split(), *through, *model, code=1)
    assert "no accelerator is reached through" in error and "none.so" in error


def test_the_loaders_choice_is_no_accelerator_of_a_door(cli, wide, libraries):
    named = ("--device", PHONE, "--nnapi-library", libraries["neuron adapter"])
    error = cli.error("profile", *named, "--accelerator", "auto", "--input", INPUT, wide)
    assert "no accelerator 'auto' on this device" in error
