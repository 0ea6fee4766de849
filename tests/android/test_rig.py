"""The phones of these tests are what they say: bionic's ways, Android's own tools, nothing else."""

import contextlib
import subprocess
from pathlib import Path

import pytest

from nnapi_prof.device.install import device_platform
from nnapi_prof.device.transport.adb import connect_tcp
from nnapi_prof.device_agent import SOURCE_DIR
from tests.android.phone import HERE, MACHINES, AndroidPhone, zig


def build_canary(abi: str, phone: AndroidPhone, folder: Path) -> Path:
    """canary.c with the start file of the agents."""
    machine = MACHINES[abi]
    compiler = [zig(), "cc", "-target", machine.target, "-fPIC", "-O1", "-DNP_ANDROID_API=27"]
    objects = []
    for source in (SOURCE_DIR / "android/crt.c", HERE / "canary.c"):
        objects.append(str(folder / f"{source.stem}.o"))
        subprocess.run([*compiler, "-c", str(source), "-o", objects[-1]], check=True)
    canary = folder / "canary"
    libc = phone.root / machine.libraries / "libc.so"
    linker = [zig(), "ld.lld", "-pie", f"--dynamic-linker=/{machine.linker}"]
    linker += ["--unresolved-symbols=ignore-all", "-o", canary]
    subprocess.run([*linker, *objects, libc], check=True)
    return canary


@pytest.mark.parametrize("abi", MACHINES)
def test_libc_is_bionics(abi, android_phone, tmp_path):
    """Each line was seen with a phone's own libc; an int is 4 bytes in musl's attributes."""
    phone = android_phone(abi)
    canary = build_canary(abi, phone, tmp_path)
    command = AndroidPhone(abi, phone.root, canary).command("last")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    bytes_of_long = MACHINES[abi].bits // 8
    assert done.returncode == 7
    assert done.stdout.splitlines() == [
        "2 arguments, the last last; constructed",
        "errno: right",
        "musl's number of the page size: -1",
        "bionic's number of the page size: right",
        "musl's sigaction: 0, not kept" if abi != "armeabi-v7a" else "musl's sigaction: 0, kept",
        f"mutex attributes: {bytes_of_long} bytes of 4",
        "destructor ran",
    ]
    # The mark that lld makes of -pie, which the agents have no more.
    assert done.stderr.endswith(": unsupported flags DT_FLAGS_1=0x8000000\n")
    assert done.stderr.count("WARNING: linker: ") == 1


@pytest.mark.parametrize("abi", MACHINES)
def test_looks_like_a_phone(abi, start_phone):
    host, _, port = start_phone(abi).partition(":")
    with contextlib.closing(connect_tcp(host, int(port))) as transport:
        assert device_platform(transport) == (abi, "android")

        def say(*command: str) -> str:
            result = transport.shell(command)
            assert result.exit_code == 0, result.output
            return result.output.strip()

        assert say("uname", "-m") == MACHINES[abi].uname
        assert say("getprop", "ro.product.cpu.abi") == abi
        assert say("sh", "-c", "echo $KSH_VERSION").startswith("@(#)MIRBSD KSH")
        assert "toybox" in say("sh", "-c", "ls -l /system/bin/sha256sum")
        # Of the host there is nothing, and the phone's own files cannot be changed.
        assert say("sh", "-c", "ls -d /usr /tmp /home /opt 2>/dev/null; true") == ""
        assert transport.shell(["touch", "/system/etc/hosts"]).exit_code != 0
        say("touch", "/data/local/tmp/file")
