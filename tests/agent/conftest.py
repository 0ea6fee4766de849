"""The agent's tests drive the built binary; requests come from packer.py.

$NNAPI_PROF_TEST_BUILD names a build folder with ``agent`` and ``libneuralnetworks.so``; without it
both come from the repository's build cache. $NNAPI_PROF_TEST_CC names the compiler for libraries
that such an agent can load, where that is not this host's.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nnapi_prof.toolchain import find_compiler

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
PHONES = REPO / "device_agent" / "emulator" / "phones"

# The tests are no package: the packer is put where they can import it.
_spec = importlib.util.spec_from_file_location("agent_packer", HERE / "packer.py")
assert _spec is not None and _spec.loader is not None
agent_packer = importlib.util.module_from_spec(_spec)
sys.modules["agent_packer"] = agent_packer
_spec.loader.exec_module(agent_packer)


@pytest.fixture(scope="session")
def agent_build(request: pytest.FixtureRequest) -> Path:
    """A folder with ``agent`` and ``libneuralnetworks.so``."""
    if named := os.environ.get("NNAPI_PROF_TEST_BUILD"):
        return Path(named)
    return Path(request.getfixturevalue("built_host").directory)


@pytest.fixture
def agent(agent_build: Path, tmp_path: Path) -> agent_packer.Agent:
    """The agent with the emulator in real time."""
    return agent_packer.Agent(agent_build / "agent", agent_build / "libneuralnetworks.so", tmp_path)


@pytest.fixture
def npu_phone(agent: agent_packer.Agent) -> agent_packer.Agent:
    """The agent on the simulated phone npu-phone."""
    agent.simulate(PHONES / "npu-phone.json")
    return agent


@pytest.fixture(scope="session")
def compile_library(
    agent_build: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Compiles tests/agent/NAME.c into a library over the emulator, once for the session."""
    named = os.environ.get("NNAPI_PROF_TEST_CC")
    folder = tmp_path_factory.mktemp("libraries")
    built: dict[str, Path] = {}

    def compile_it(name: str) -> Path:
        if name not in built:
            path = folder / f"lib{name}.so"
            subprocess.run(
                [
                    named or str(find_compiler(REPO / "build" / "cache").path),
                    "-shared",
                    "-fPIC",
                    "-o",
                    str(path),
                    str(HERE / f"{name}.c"),
                    f"-Wl,-rpath,{agent_build}",
                    f"-L{agent_build}",
                    "-Wl,--no-as-needed",
                    "-lneuralnetworks",
                ],
                check=True,
            )
            built[name] = path
        return built[name]

    return compile_it
