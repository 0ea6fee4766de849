"""The agents that a wheel brings along, one for each device.

    agents/sources            the key of the sources that they were built from
    agents/android-ABI/agent
    agents/linux-ABI/agent

A source tree or an sdist has none of them: there they are built when a device first needs one.
``python -m nnapi_prof.device.shipped`` builds all of them into this folder, for `make wheel`;
``--clean`` takes them away again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from nnapi_prof.errors import BuildError
from nnapi_prof.toolchain import ANDROID_ABIS

AGENTS_DIR = Path(__file__).resolve().parent / "agents"
SHIPPED = (
    *(("android", abi) for abi in ANDROID_ABIS),
    ("linux", "x86_64"),
    ("linux", "arm64-v8a"),
)


def find(abi: str, os_name: str, key: str, folder: Path = AGENTS_DIR) -> Path | None:
    """The shipped agent for a device, where there is one that was built of the sources ``key``."""
    agent = folder / f"{os_name}-{abi}" / "agent"
    sources = folder / "sources"
    if not agent.is_file() or not sources.is_file():
        return None
    return agent if sources.read_text().strip() == key else None


def _main() -> int:
    # Here, for build.py imports this module.
    from nnapi_prof.device.build import build_agent, sources_key

    parser = argparse.ArgumentParser(prog="python -m nnapi_prof.device.shipped")
    parser.add_argument("--clean", action="store_true", help="remove them")
    if parser.parse_args().clean:
        shutil.rmtree(AGENTS_DIR, ignore_errors=True)
        return 0
    try:
        for os_name, abi in SHIPPED:
            built = build_agent(abi, os_name, progress=lambda text: print(text, file=sys.stderr))
            target = AGENTS_DIR / f"{os_name}-{abi}" / "agent"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built, target)
            print(target)
        (AGENTS_DIR / "sources").write_text(sources_key() + "\n")
    except (BuildError, OSError) as error:
        print(f"python -m nnapi_prof.device.shipped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
