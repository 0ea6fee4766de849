"""``nnapi-prof agent``: build, push, info, clean."""

from pathlib import Path

from nnapi_prof.device import build as build_module
from nnapi_prof.errors import BuildError
from tests.cli.common import SIM


def test_build_says_abi_size_and_path(cli, built_host, tmp_path):
    result = cli.ok("agent", "build", "--abi", "host", "--output", tmp_path / "out")
    agent = tmp_path / "out" / "host" / "agent"
    size = agent.stat().st_size
    assert result.out == f"host\t{size}\t{agent}\n"
    assert agent.read_bytes() == built_host.agent.read_bytes() and agent.stat().st_mode & 0o111
    assert cli("agent", "build", "--abi", "host").out.split("\t")[2].strip() == str(
        built_host.agent
    )
    (document,) = cli.document("agent build", "--abi", "host")["agents"]
    assert document == {"abi": "host", "n_bytes": size, "file": str(built_host.agent)}


def test_build_makes_all_abis_unless_told(cli, built_host, monkeypatch):
    asked = []

    def agent_binary(abi: str, os_name: str, progress: object) -> Path:
        asked.append((abi, os_name))
        if abi == "armeabi-v7a":
            raise BuildError("no compiler for armeabi-v7a: install ziglang")
        return built_host.agent

    monkeypatch.setattr(build_module, "agent_binary", agent_binary)
    result = cli("agent", "build")
    assert asked[1:] == [("arm64-v8a", "android"), ("armeabi-v7a", "android")]
    assert asked[0][1] == "linux"
    assert result.code == 1 and result.error == "no compiler for armeabi-v7a: install ziglang"


def test_push_says_where_it_is_and_clean_what_went(cli, built_host):
    result = cli("agent", "push", *SIM)
    assert (result.code, result.out) == (0, f"sim:npu-phone\t{built_host.agent}\n")
    document = cli.document("agent push", *SIM)
    assert (document["serial"], document["path"]) == ("sim:npu-phone", str(built_host.agent))
    for options in ((), ("--older-than", "3"), ("--all",)):
        out = cli.ok("agent", "clean", *SIM, *options).out
        assert out.startswith("sim:npu-phone: 0.0 MB removed, 0.0 MB kept; 0 agents")
    result = cli.document("agent clean", *SIM)
    assert (result["n_agents"], result["n_bytes"]) == (0, 0)


def test_info_names_engines_and_accelerators(cli, built_host):
    out, document = cli.ok("agent", "info", *SIM).out, cli.document("agent info", *SIM)
    for word in ("simulated phone", "protocol 5", "cpu (", "portable", "sim-npu", "sim-gpu"):
        assert word in out
    assert document["simulated"] and document["phone"] == "npu-phone"
    assert document["fingerprint"] in out
    named = {each["name"] for each in document["nnapi"]["accelerators"]}
    assert {"sim-npu", "sim-gpu"} <= named
