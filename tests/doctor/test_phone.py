"""Phones: real adbd devices with the storage, system and state that a phone may have."""

import contextlib
import sys
from dataclasses import replace
from typing import Any

import pytest

from nnapi_prof.device.find import open_local
from nnapi_prof.device.transport import CommandResult, LocalTransport, adb
from nnapi_prof.doctor import CheckedDevice, CheckResult, Family, Host, Severity, joined, ok, run
from nnapi_prof.doctor import examine as checks
from nnapi_prof.doctor import problem as problem_
from nnapi_prof.doctor import warning as warning_
from nnapi_prof.doctor.adb import ADB
from nnapi_prof.doctor.examine import PHONE, examine
from tests.doctor.common import only, problem, script, warning, well

DUMPSYS = """
case $1 in
  thermalservice) echo 'IsStatusOverride: false'; echo 'Thermal Status: {thermal}' ;;
  battery) echo '  AC powered: false'; echo '  USB powered: {usb}'; echo '  level: {level}';
           echo '  temperature: {tenths}' ;;
  power) echo '  mWakefulness={wake}' ;;
esac
"""


@pytest.fixture(autouse=True)
def phone_alone(monkeypatch):
    """The host's own checks have tests of their own."""
    monkeypatch.setattr("nnapi_prof.device.transport.adb.UsbTransport", None)
    monkeypatch.setattr("nnapi_prof.doctor.examine.HOST", [])


def test_a_phone_that_is_well(start_adbd, built_host):
    serial = start_adbd("npu-phone")
    findings = examine(serial)
    assert [each for each in findings if each.level is Severity.PROBLEM] == []
    assert well(findings, "device") == f"{serial} (nnapi-prof Test Phone), adb over TCP"
    assert well(findings, "Android") == "11, API 30"
    assert well(findings, "ABI") == "x86_64, pages of 4 KB"
    assert "MB free in /data/local" in only(findings, "space").found
    assert well(findings, "execution").startswith("programs run in /data/local/tmp/nnapi-prof")
    assert well(findings, "agent").startswith("runs there: ")
    assert "sim-npu (accelerator, API" in well(findings, "NNAPI")
    assert "(simulated)" in well(findings, "NNAPI")
    assert not {"thermal", "battery", "screen"} & {each.check for each in findings}


def test_the_only_phone_is_looked_at(adb_server, start_daemon):
    daemon = start_daemon("npu-phone")
    adb_server.connect(daemon.serial)
    assert well(examine(), "device").startswith(daemon.serial)
    other = start_daemon()
    adb_server.connect(other.serial)
    words, fix = warning(examine())
    assert words.startswith("several are within reach: ") and "none was looked at" in words
    assert fix == "nnapi-prof doctor --device SERIAL"


def test_no_phone():
    words, fix = warning(examine())
    assert words == "no phone is available: simulated ones replace it"
    assert "USB debugging on" in fix


@pytest.mark.parametrize(
    ("storage", "check", "words"),
    [
        ("2m", "space", "2 MB free in /data/local/tmp: too little for the agent and weights"),
        ("64m", "space", "64 MB free in /data/local/tmp: too little for large models"),
        ("ro", "execution", "is read-only"),
        ("64m,noexec", "execution", "nothing may run in /data/local/tmp/nnapi-prof: "),
    ],
)
def test_storage(start_adbd, storage, check, words):
    finding = only(examine(start_adbd(storage=storage)), check)
    assert finding.level is not Severity.OK and words in finding.found, finding
    assert finding.fix is not None and ("agent clean" in finding.fix or "NNAPI_PROF" in finding.fix)


def test_an_agent_that_does_not_fit(start_adbd, built_host):
    serial = start_adbd(storage="64k")
    words, fix = problem(examine(serial), "agent")
    assert "is full" in words and "free some space there" in fix


@pytest.mark.parametrize(
    ("sdk", "level", "words"),
    [
        ("26", Severity.PROBLEM, "11, API 26: NNAPI came with Android 8.1 (API 27)"),
        ("34", Severity.OK, "11, API 34"),
        ("35", Severity.WARNING, "11, API 35: NNAPI is deprecated since Android 15"),
    ],
)
def test_android_versions(start_adbd, sdk, level, words):
    finding = only(examine(start_adbd(properties={"ro.build.version.sdk": sdk})), "Android")
    assert finding.level is level and finding.found.startswith(words)


def test_an_abi_without_an_agent(start_adbd):
    findings = examine(start_adbd(properties={"ro.product.cpu.abi": "mips"}))
    words, fix = problem(findings, "ABI")
    assert words == "mips: there is no agent for it" and "arm64-v8a" in fix
    assert "agents exist for" in problem(findings, "agent")[1]


def test_an_agent_that_is_not_built(start_adbd, tmp_path, monkeypatch):
    serial = start_adbd("npu-phone")
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    findings = examine(serial)
    words, fix = warning(findings, "agent")
    assert words == "none is built for linux on x86_64: what NNAPI has there is not known"
    assert fix.startswith("nnapi-prof agent build --abi host")
    assert "NNAPI" not in {each.check for each in findings}
    assert not (tmp_path / "agents").exists()


def test_no_nnapi_or_nothing_but_the_cpu(start_adbd, built_host):
    words, fix = problem(examine(start_adbd()), "NNAPI")
    assert words.startswith("the device has no NNAPI: ") and "the phone's maker" in fix
    words, _ = warning(examine(start_adbd("")), "NNAPI")
    assert "; nothing but the CPU: nnapi-" in words
    assert "nnapi-reference (cpu, API 30, 1.0)" in words


WELL = dict(thermal="not throttled", battery="80 %, charging, 27.5 degrees Celsius", screen="on")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (dict(), WELL),
        (dict(thermal="3"), dict(thermal="throttled: severe (3 of 6)")),
        (dict(level="9", usb="false"), dict(battery="9 %, not charging, 27.5 degrees Celsius: ph")),
        (dict(tenths="431"), dict(battery="80 %, charging, 43.1 degrees Celsius: hot")),
        (
            dict(saver="1"),
            dict(battery="80 %, charging, 27.5 degrees Celsius; battery saver is on"),
        ),
        (dict(wake="Dozing"), dict(screen="off (dozing): some phones clock down then")),
    ],
)
def test_state(start_daemon, state, expected):
    daemon = start_daemon()
    usual = {"thermal": "0", "usb": "true", "level": "80", "tenths": "275", "wake": "Awake"}
    script(daemon.folder / "bin" / "dumpsys", DUMPSYS.format(**usual | state))
    script(daemon.folder / "bin" / "settings", f"echo {state.get('saver', 0)}")
    findings = examine(daemon.serial)
    for check, words in expected.items():
        finding = only(findings, check)
        assert finding.found.startswith(words)
        assert (finding.level is Severity.OK) == (not state)


def test_what_a_phone_does_not_tell_or_allow(built_host):
    with contextlib.closing(LocalTransport("phone", "a phone", {})) as transport:
        linux = CheckedDevice(transport, "x86_64", "linux", {}, "/proc/none/agent")
        mute = replace(linux, os="android", facts={"page": "65536"})
        assert (
            well(checks.android(linux)) == "none: a Linux on x86_64"
            and well(checks.processor(linux)) == "x86_64"
        )
        assert warning(checks.android(mute)) == ("its version is not reported", "adb shell getprop")
        words = "x86_64, pages of 65536 bytes: agents are built for pages of 4 and 16 KB"
        assert warning(checks.processor(mute)) == (words, "use a phone with pages of 4 or 16 KB")
        assert checks.battery(mute) is None and checks.nnapi(mute) is None
        words, fix = problem(checks.execution(mute))
        assert words.startswith("/proc/none/agent cannot be written to: mkdir: cannot create")
        assert fix.startswith("export NNAPI_PROF_REMOTE_DIR=/another/folder")
        transport.shell = lambda *_: CommandResult(1, "df: not found\n")
        words = "not reported for /proc/none: df: not found"
        assert warning(checks.space(mute)) == (words, "adb shell df /proc/none")
    with open_local() as client:
        info = client.info()
    alone = replace(linux, info=replace(info, nnapi=replace(info.nnapi, accelerators=())))
    assert well(checks.nnapi(alone)).endswith(
        "; before Android 10 only its own choice (auto) is measured"
    )


def test_out_of_reach(asking_phone, monkeypatch):
    monkeypatch.setattr(adb, "CONSENT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(adb, "LINK_TIMEOUT_S", 0.5)
    stranger, dead = asking_phone(), asking_phone(silent=True)
    words, fix = problem(examine(stranger.serial))
    assert words == f"{stranger.serial} does not know this computer yet"
    assert fix.startswith("confirm 'Allow USB debugging'")
    words, fix = problem(examine(dead.serial))
    assert words.startswith(f"{dead.serial} does not answer as a device does")
    assert fix == "check that it is awake and in the same network"
    words, fix = problem(examine("127.0.0.1:1"))
    assert words == "no device at 127.0.0.1:1" and "adb tcpip 5555" in fix


def test_a_phone_that_leaves(start_daemon, monkeypatch):
    """Every check after that says so; none ends the others."""
    daemon = start_daemon()
    name, first = PHONE.checks[0]

    def and_away(phone: Any) -> CheckResult | None:
        finding = first(phone)
        daemon.kill()
        return finding

    checks = [(name, and_away), *PHONE.checks[1:]]
    monkeypatch.setattr("nnapi_prof.doctor.examine.PHONE", Family("Phone", checks))
    findings = examine(daemon.serial)
    assert well(findings, "Android") == "11, API 30"
    for check in ("space", "execution", "agent", "thermal"):
        assert "does not answer any more" in problem(findings, check)[0]


def test_simulated_and_local(built_host, tmp_path, monkeypatch):
    findings = examine("sim:gpu-phone")
    assert well(findings, "device") == "sim:gpu-phone: simulated phone on this host"
    assert "sim-gpu (gpu, API" in well(findings, "NNAPI")
    assert not {"Android", "space", "battery"} & {each.check for each in findings}
    words, fix = problem(examine("sim:nosuch"))
    assert words.startswith("no simulated phone 'nosuch'") and "gpu-phone" in f"{words} {fix}"
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    assert "is built at first use" in well(examine("sim:gpu-phone"))


def test_a_check_that_fails():
    family = Family("F")

    @family("a bad idea")
    def bad(_: Any) -> CheckResult:
        raise ZeroDivisionError("division by zero")

    @family("a good one")
    def good(_: Any) -> CheckResult:
        return ok("fine")

    broken, fine = run([family], None)
    assert (broken.family, broken.check, broken.level) == ("F", "a bad idea", Severity.PROBLEM)
    assert broken.found == "this check failed itself: ZeroDivisionError: division by zero"
    assert broken.fix is not None and "doctor --json" in broken.fix
    assert (fine.check, fine.found) == ("a good one", "fine")


def test_a_check_whose_package_is_missing(monkeypatch):
    monkeypatch.delitem(sys.modules, "nnapi_prof.device.transport.adb")
    monkeypatch.setitem(sys.modules, "adb_shell", None)
    words, fix = problem(run([ADB], Host()), "adb key")
    assert words.startswith("not looked at: adb_shell") and words.endswith(" is not installed")
    assert fix == "install what is missing: see Python above"


def test_of_several_things_the_worst_is_told():
    both = joined([ok("a"), warning_("b", "mend b"), problem_("c", "mend c"), problem_("d", "x")])
    assert (both.level, both.found, both.fix) == (Severity.PROBLEM, "c; d", "mend c; x")
    assert joined([ok("a"), ok("b")]).found == "a; b"
    with pytest.raises(ValueError, match="what is not ok has a fix, what is ok has none"):
        CheckResult(Severity.PROBLEM, "hot")
