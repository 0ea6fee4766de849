"""Devices, their descriptions and their storage; what agents are built with."""

import json

from nnapi_prof.device.find import phone_file
from nnapi_prof.device.transport import adb
from tests.cli.messages.provoked import SHAPE, SIM, Arguments, Place, met_by, provoked


def profile_on(at: Place, serial: object) -> Arguments:
    return ["profile", "--device", serial, *SHAPE, "--costs", at.tmp / "costs.sqlite", at.model]


met_by(
    "profile --device R5CT12 {at.shape} {at.model}",
    1,
    "no device R5CT12: there are local, sim:dsp-phone, sim:gpu-phone, sim:npu-phone, "
    "sim:slow-nnapi-phone; HOST:PORT reaches a phone over the network",
)
met_by(
    "profile --device sim:npu-fone {at.shape} {at.model}",
    1,
    "no simulated phone 'npu-fone' (did you mean npu-phone?): there are dsp-phone, gpu-phone, "
    "npu-phone, slow-nnapi-phone; sim:PATH.json takes a description of your own",
)
met_by(
    "profile --device sim:gpu-phone --accelerator tpu {at.shape} {at.model}",
    2,
    "no accelerator 'tpu' on this device; there are: sim-gpu, nnapi-reference, auto",
)


@provoked(1, facts=("{tmp}/mine.json", "line 1, column 2"))
def a_damaged_description(at: Place) -> Arguments:
    return profile_on(at, f"sim:{at.file('mine.json', '{')}")


@provoked(
    1,
    "no phone can be simulated by {tmp}/mine.json: accelerators[0].feature_level: found "
    '"high", wanted a whole number from 27 to 31: fix the description '
    "(device_agent/emulator/PHONES.md)",
)
def a_description_with_a_wrong_value(at: Place) -> Arguments:
    described = json.loads(phone_file("gpu-phone").read_text())
    described["accelerators"][0]["feature_level"] = "high"
    return profile_on(at, f"sim:{at.file('mine.json', json.dumps(described))}")


@provoked(1, facts=("{serial}", "no answer for 0.3 s"))
def an_offline_phone(at: Place) -> Arguments:
    at.env.setattr(adb, "LINK_TIMEOUT_S", 0.3)
    return ["run", "--device", at.fixture("asking_phone")(silent=True).serial, at.profiled.bundle]


@provoked(1, facts=("/proc/absent/adbkey", "No such file", "ADB_VENDOR_KEYS"))
def an_adb_key_that_cannot_be_made(at: Place) -> Arguments:
    at.env.setenv("ANDROID_USER_HOME", "/proc/absent")
    return ["agent", "info", "--device", "127.0.0.1:1"]


@provoked(
    1,
    facts=(
        "{serial}",
        "/data/local/tmp/nnapi-prof/",
        "126: Permission denied",
        "NNAPI_PROF_REMOTE_DIR",
    ),
    needs=("adbd",),
)
def storage_that_forbids_execution(at: Place) -> Arguments:
    return ["agent", "push", "--device", at.fixture("start_adbd")(storage="64m,noexec")]


@provoked(
    1,
    "NNAPI_PROF_CC is 'no-such-cc', which is not a working C compiler: name another, or unset it "
    "(`nnapi-prof doctor` tells what is wrong)",
)
def a_compiler_that_is_none(at: Place) -> Arguments:
    at.env.setenv("NNAPI_PROF_CC", "no-such-cc")
    return profile_on(at, "sim:npu-phone")


@provoked(1, facts=("/proc/absent", "No such file", "NNAPI_PROF_CACHE_DIR"))
def a_cache_that_cannot_be_written(at: Place) -> Arguments:
    at.env.setenv("NNAPI_PROF_CACHE_DIR", "/proc/absent")
    return ["run", *SIM, at.profiled.bundle]


@provoked(1, facts=("NNAPI_PROF_XNNPACK", "{tmp}"))
def xnnpack_where_it_is_not(at: Place) -> Arguments:
    at.env.setenv("NNAPI_PROF_XNNPACK", str(at.tmp))
    return ["agent", "info", *SIM]
