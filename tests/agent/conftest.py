"""The agent's tests drive the built binary; requests come from packer.py.

$NNAPI_PROF_TEST_BUILD names a build folder with ``agent`` and ``libneuralnetworks.so``; without it
both come from the repository's build cache. $NNAPI_PROF_TEST_CC names the compiler for libraries
that such an agent can load, where that is not this host's.
"""

import functools
import os
import subprocess
from pathlib import Path

import pytest

from nnapi_prof.toolchain import find_compiler
from tests.agent.packer import Agent
from tests.conftest import CACHE, PHONES

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def agent_build(request):
    """A folder with ``agent`` and ``libneuralnetworks.so``."""
    if named := os.environ.get("NNAPI_PROF_TEST_BUILD"):
        return Path(named)
    return request.getfixturevalue("built_host").directory


@pytest.fixture
def agent(agent_build, tmp_path):
    """The agent with the emulator in real time."""
    return Agent(agent_build / "agent", agent_build / "libneuralnetworks.so", tmp_path)


@pytest.fixture
def npu_phone(agent):
    """The agent on the simulated phone npu-phone."""
    agent.simulate(PHONES / "npu-phone.json")
    return agent


@pytest.fixture
def faulty(agent, compile_library):
    """The agent with a vendor's library that does what :meth:`Agent.fault` says."""
    agent.library = compile_library("faulty")
    return agent


@pytest.fixture(scope="session")
def compile_library(agent_build, tmp_path_factory):
    """Compiles tests/agent/NAME.c into a library over the emulator, once for the session."""
    compiler = os.environ.get("NNAPI_PROF_TEST_CC") or find_compiler(CACHE).path
    folder = tmp_path_factory.mktemp("libraries")

    @functools.cache
    def compile_it(name: str) -> Path:
        path = folder / f"lib{name}.so"
        options = ["-shared", "-fPIC", "-o", path, HERE / f"{name}.c"]
        options += [f"-Wl,-rpath,{agent_build}", f"-L{agent_build}", "-Wl,--no-as-needed"]
        subprocess.run([compiler, *options, "-lneuralnetworks"], check=True)
        return path

    return compile_it
