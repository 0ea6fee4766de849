"""``agent info`` and the command line."""

import pytest


def test_emulator_in_real_time(agent):
    info = agent.info()
    assert (info["type"], info["protocol"]) == ("info", 5)
    assert (info["simulated"], info["phone"], info["identity"]) == (False, None, "")
    assert info["abi"] in ("x86_64", "arm64-v8a", "armeabi-v7a")
    assert info["cpus"] == len(info["cpu_max_khz"]) >= 1
    assert info["memory_kb"] > 0
    assert info["nnapi"]["library"].endswith("libneuralnetworks.so")
    assert info["nnapi"]["error"] is None
    # The emulator has feature level 4, so the functions of API 31 are absent.
    assert "ANeuralNetworks_getRuntimeFeatureLevel" in info["nnapi"]["missing"]
    assert "ANeuralNetworksModel_create" not in info["nnapi"]["missing"]
    names = {a["name"]: a for a in info["nnapi"]["accelerators"]}
    assert names["nnapi-reference"]["feature_level"] == 30
    assert names["nnapi-reference"]["type"] == "CPU"


def test_simulated_phone(npu_phone):
    info = npu_phone.info()
    assert (info["simulated"], info["phone"]) == (True, "npu-phone")
    assert (info["os"], info["api_level"]) == ("android", 30)
    assert info["identity"] != ""
    assert info["properties"]["ro.product.model"] == "npu-phone"
    assert set(info["cpu_max_khz"]) == {None}  # this host's say nothing about the phone
    assert "sim-npu" in [a["name"] for a in info["nnapi"]["accelerators"]]


@pytest.mark.parametrize(
    "fault, words", [("segv", "crashed when asked for its accelerators: SIGSEGV"), ("exit", "9")]
)
def test_library_that_breaks_when_opened(faulty, fault, words):
    faulty.fault(fault, "load")
    assert words in faulty.info()["nnapi"]["error"]


@pytest.mark.parametrize("times", ["once", "always"])
def test_a_driver_that_dies_while_the_devices_are_listed(faulty, tmp_path, times):
    """Such a phone has no accelerator for the moment, and all of them when it is asked again."""
    faulty.fault("segv", "list")
    if times == "once":
        faulty.env["NP_FAULT_ONCE"] = str(tmp_path / "once")
    nnapi = faulty.info()["nnapi"]
    error = nnapi["error"]
    assert bool(nnapi["accelerators"]) == (error is None) == (times == "once")
    assert error is None or "crashed when asked for its accelerators: SIGSEGV" in error


def test_properties_come_from_getprop(agent, tmp_path):
    script = tmp_path / "getprop"
    script.write_text(
        "#!/bin/sh\ncase $1 in\nro.product.model) echo 'Tab \"1\"';;\n"
        "ro.build.version.sdk) echo 29;;\n*) echo;;\nesac\n"
    )
    script.chmod(0o755)
    agent.env["PATH"] = f"{tmp_path}:{agent.env['PATH']}"
    info = agent.info()
    assert info["properties"] == {"ro.product.model": 'Tab "1"'}
    assert (info["api_level"], info["os"]) == (29, "android")


@pytest.mark.parametrize(
    "arguments, words",
    [
        ([], "what is to be done?"),
        (["walk"], "unknown command walk"),
        (["info", "--fast"], "unknown option --fast"),
        (["run", "r", "--store", "s"], "run needs a request, --store and --work"),
        (["run", "r", "--store"], "a value is missing after --store"),
        (["run", "r", "q", "--store", "s", "--work", "w"], "one request at a time, not also q"),
        (["info", "r"], "a request belongs to run, not to info"),
        (["version", "--nnapi-library", "l"], "belongs to run and info, not to version"),
        (["clean", "--store", "."], "clean needs --store and --work"),
        (["clean", "--store", ".", "--work", ".", "--older-than-days", "-1"], "no number of days"),
        (["clean", "--store", ".", "--work", ".", "--max-bytes", "1x"], "no number of bytes"),
        (["clean", "--store", ".", "--work", ".", "--max-bytes", "9" * 20], "no number of bytes"),
        (["info", "--max-bytes", "1"], "belong to clean"),
        (["clean", "x", "--store", ".", "--work", "."], "a request belongs to run"),
    ],
)
def test_usage(agent, arguments, words):
    answer = agent.call(*arguments)
    assert (answer.exit_code, answer.lines) == (2, [])
    assert words in answer.stderr and "usage: agent info" in answer.stderr
