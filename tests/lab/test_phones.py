"""Which phones a selector means, and that a phone has one user at a time."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from nnapi_prof.device.transport import LocalTransport
from nnapi_prof.errors import DeviceNotFound, UsageError
from nnapi_prof.lab import (
    LabPhone,
    PhoneBusy,
    held_here,
    held_there,
    listed,
    named,
    select,
    serials_of,
    shelf,
)
from tests.processes import wait_until

PIXEL = LabPhone("a1", "left", "f00d", "Google Pixel 8", "Tensor G3", "14", "arm64-v8a", False)
GALAXY = LabPhone("b2", "right", "cafe", "samsung SM-S911B", "SM8550", "14", "arm64-v8a", False)
OLD = LabPhone("c3", "right", "beef", "Google Pixel 2", "MSM8998", "11", "arm64-v8a", False)
PHONES = (PIXEL, GALAXY, OLD)


@pytest.mark.parametrize(
    ("selectors", "chosen"),
    [
        ((), PHONES),
        (("*pixel*",), (PIXEL, OLD)),
        (("f00d",), (PIXEL,)),
        (("soc=sm*,android=14",), (GALAXY,)),
        (("android=11", "host=left"), (OLD, PIXEL)),
        (("b2", "host=right"), (GALAXY, OLD)),
    ],
)
def test_select(selectors, chosen):
    assert select(PHONES, selectors) == list(chosen)


def test_select_says_what_there_is_and_phones_survive_an_environment():
    with pytest.raises(DeviceNotFound, match=r"fits 'nokia': there are .*Pixel 2 \(c3\)"):
        select(PHONES, ["nokia"])
    with pytest.raises(UsageError, match="phones have no 'chip'; ask for fingerprint, name, soc"):
        select(PHONES, ["chip=x"])
    assert named(listed(PHONES)) == list(PHONES)


def test_a_shelf_of_what_answers_by_a_pattern_of_serials_too(tmp_path):
    gone = f"sim:{tmp_path}/gone.json"
    phones, silent = shelf(["sim:npu-phone", gone])
    assert [(phone.serial, phone.simulated) for phone in phones] == [("sim:npu-phone", True)]
    assert [serial for serial, _ in silent] == [gone]
    assert "sim:npu-phone" in serials_of("sim:*") and "local" not in serials_of("sim:*")
    assert serials_of("10.0.0.7:5555") == ["10.0.0.7:5555"]
    with pytest.raises(DeviceNotFound, match=r"no device of this host fits 'pixel\*': .*local"):
        serials_of("pixel*")


def test_drawn_phones_by_pattern_and_by_folder(tmp_path):
    """The emulator is each of them, and each is a phone of its own."""
    folder = tmp_path / "drawn [1]"
    script = Path(__file__).parents[2] / "benchmarks" / "draw_phones.py"
    subprocess.run([sys.executable, script, folder, "--phones", "3", "--seed", "2"], check=True)
    phones, silent = shelf([f"{tmp_path}/drawn*/*.json"])
    assert len({phone.fingerprint for phone in phones}) == 3 and not silent
    assert all(phone.simulated for phone in phones)
    assert [phone.name.rpartition(" ")[2] for phone in phones] == [f"fleet-2-{i}" for i in range(3)]
    assert serials_of(f"sim:{folder}") == serials_of(str(folder)) == [p.serial for p in phones]
    assert select([PIXEL, *phones], [f"{tmp_path}/*/*.json"]) == phones


HOLDER = """
import sys, time
from nnapi_prof.lab import held_here
with held_here(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_of_this_host(tmp_path, monkeypatch):
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", HOLDER, "phone-1"]

    def is_free(serial: str) -> bool:
        try:
            with held_here(serial):
                return True
        except PhoneBusy as busy:
            assert f"{serial} is in use by another process of " in str(busy)
            return False

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert not is_free("phone-1") and is_free("phone-2")
        other.kill()
    wait_until(lambda: is_free("phone-1"))  # the kernel lets go when the process is gone


def test_another_host(tmp_path):
    folder, described = f"{tmp_path}/phone", "a phone that two hosts reach"
    with contextlib.closing(LocalTransport("phone", described, {})) as transport:
        with held_there(transport, folder, "left 1"):
            with pytest.raises(PhoneBusy, match="phone is in use by left"):
                with held_there(transport, folder, "right 2"):
                    pytest.fail("two hosts at once")
            with held_there(transport, folder, "left 1"):
                pass  # it had died, and found its own name
        with held_there(transport, folder, "right 2"):
            transport.shell(["touch", "-d", "3 hours ago", f"{folder}/lab-lock"])
            with held_there(transport, folder, "left 1"):
                pass  # whoever had it has been silent for longer than a model takes
        assert not (tmp_path / "phone" / "lab-lock").exists()


def test_what_runs_here_alone_needs_no_lock_there(tmp_path):
    with contextlib.closing(LocalTransport("sim:a", "simulated", {})) as transport:
        with held_there(transport, f"{tmp_path}/phone"), held_there(transport, f"{tmp_path}/phone"):
            assert not (tmp_path / "phone").exists()
