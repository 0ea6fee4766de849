"""Devices that are listed, that are not there, that refuse, and that cannot store anything."""

import re
from pathlib import Path

import pytest
from torch import nn

from nnapi_prof.device.find import list_phones
from nnapi_prof.device.transport import adb
from nnapi_prof.execution.profile import measurer
from tests.cli.common import INPUT, Cli, Result, count_rows, trace, unit_row


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
